"""Which commit of an Iceberg table counts, and how that is found without pyiceberg where the catalog is a file.

pyiceberg and SQLAlchemy take most of a second to load. A run that finds nothing new needs neither: the catalog's row
says which file has the table's metadata, and that file is JSON, both as Iceberg specifies them. Whatever is not as
expected there is left to pyiceberg, which then says so in its own words.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from protocol.errors import ConfigError, StoreError
from spark_jobs.places.file_systems import is_url, local_path
from spark_jobs.places.place_names import ATTEMPTS
from spark_jobs.places.placed_run import PlacedRun
from spark_jobs.tables._table import DataFile, FileLayout, Table, TableCommit, TableShape, read_commit
from spark_jobs.tables._table_runs import who_committed
from spark_jobs.tables.table_names import HIDDEN

COMMIT: Final = "rocketlens.commit"
"""The property of a snapshot's summary that has the commit of its run; the table has one of that name too."""

SEQUENCE: Final = "rocketlens.commit-sequence-number"
"""The table's property beside that of the commit: the sequence number of the snapshot it came with."""

CATALOG: Final = "catalog.db"
DEFAULT_CATALOG: Final = "default"
DEFAULT_NAME: Final = "rocketmq.messages"
_SQLITE: Final = "sqlite:///"
_VERSIONS: Final = (2, 3)
_ENDING: Final = ".metadata.json"
_COMPRESSED: Final = ".gz.metadata.json"
_FIND: Final = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)


class SnapshotState(msgspec.Struct, frozen=True, rename="kebab"):
    """What a snapshot says of itself."""

    snapshot_id: int
    parent_snapshot_id: int | None = None
    sequence_number: int = 0
    summary: dict[str, str] = {}

    @property
    def commit(self) -> TableCommit | None:
        """The commit of the run that made it, None of another program's; raises StoreError if it is not valid."""
        text = self.summary.get(COMMIT)
        return None if text is None else read_commit(text, f"snapshot {self.snapshot_id}", TableCommit)


class TableState(msgspec.Struct, frozen=True, rename="kebab"):
    """The needed parts of the metadata of a table."""

    location: str
    format_version: int
    current_snapshot_id: int | None = None
    snapshots: tuple[SnapshotState, ...] = ()
    properties: dict[str, str] = {}

    def committed(self) -> TableCommit | None:
        """The commit of the last run, None of an empty table; raises ConfigError for one that no run of ours wrote."""
        known = {each.snapshot_id: each for each in self.snapshots}
        current = at = known.get(self.current_snapshot_id) if self.current_snapshot_id is not None else None
        if current is None:
            return None
        while at is not None:
            commit = at.commit
            if commit is not None:
                return commit
            at = None if at.parent_snapshot_id is None else known.get(at.parent_snapshot_id)
        text, sequence = (self.properties.get(name) for name in (COMMIT, SEQUENCE))
        if text is None or sequence is None:
            raise ConfigError(f"{self.location}: no run of RocketLens has written this Iceberg table: choose another")
        if int(sequence) > current.sequence_number:
            raise ConfigError(
                f"{self.location}: the table was set back to snapshot {current.snapshot_id}, and the snapshot of its "
                "position has expired: export into another table"
            )
        return read_commit(text, self.location, TableCommit)


def catalog_file(url: str, catalog: Mapping[str, str]) -> Path | None:
    """The file of SQLite that is the catalog of a table in a directory; None where there is more to a catalog."""
    if is_url(url) or not catalog.keys() <= {"uri", "catalog"}:
        return None
    uri = catalog.get("uri")
    if uri is None:
        return Path(local_path(url)) / CATALOG
    path = uri.removeprefix(_SQLITE)
    return Path(path) if path and path != uri and "?" not in path else None


class GlancedTable:
    """An Iceberg table in a directory whose catalog is a file; see :class:`spark_jobs.tables._table.Table`.

    It is opened by pyiceberg as soon as more is asked for than what was committed last.
    """

    is_hidden = False
    keeps_partitions = True

    def __init__(self, url: str, file: Path, catalog: str, name: str, make: Callable[[], Table]) -> None:
        """Name the place, the catalog's file, the catalog's name in it, and the table's; nothing is read.

        `make` opens the table by pyiceberg.
        """
        self.where = url
        self._directory, self._file = Path(local_path(url)), file
        self._catalog, self._name = catalog or DEFAULT_CATALOG, name or DEFAULT_NAME
        self._make = make
        self._table: Table | None = None
        self._seen: TableCommit | None = None

    def last(self) -> TableCommit | None:
        """See :class:`spark_jobs.tables._table.Table`."""
        if self._table is None:
            state = None if self._has_left() else self._glance()
            self._seen = None if state is None else state.committed()
            if self._seen is not None:
                return self._seen
            self._table = self._make()
        return self._table.last()

    def layout(self, shape: TableShape) -> FileLayout:
        """See :class:`spark_jobs.tables._table.Table`."""
        return self._opened().layout(shape)

    def begin(self) -> PlacedRun:
        """See :class:`spark_jobs.tables._table.Table`."""
        return self._opened().begin()

    def commit(self, files: Sequence[DataFile], commit: TableCommit) -> None:
        """See :class:`spark_jobs.tables._table.Table`."""
        self._opened().commit(files, commit)

    def drop_before(self, day: date) -> TableCommit | None:
        """See :class:`spark_jobs.tables._table.Table`."""
        return self._opened().drop_before(day)

    def compact(self, target_bytes: int) -> TableCommit | None:
        """See :class:`spark_jobs.tables._table.Table`."""
        return self._opened().compact(target_bytes)

    def close(self) -> None:
        """See :class:`spark_jobs.tables._table.Table`."""
        if self._table is not None:
            self._table.close()

    def _opened(self) -> Table:
        """The table by pyiceberg, at the commit that was seen; raises StoreError where another run was quicker."""
        if self._table is None:
            self._table = self._make()
            last = self._table.last()
            if last != self._seen:
                raise StoreError(
                    self.where, what=f"was changed by {who_committed(last)} meanwhile; this run wrote nothing"
                )
        return self._table

    def _has_left(self) -> bool:
        """Whether a run has left anything, which is to be looked at before anything else is done."""
        entered = self._directory / HIDDEN / ATTEMPTS
        return entered.is_dir() and any(entered.iterdir())

    def _glance(self) -> TableState | None:
        """What the metadata say; None where pyiceberg is to look at it."""
        with contextlib.suppress(OSError, sqlite3.Error, msgspec.MsgspecError):
            found = self._metadata_location()
            if found is None or found.endswith(_COMPRESSED) or not found.endswith(_ENDING):
                return None
            state = msgspec.json.decode(Path(local_path(found)).read_bytes(), type=TableState)
            if state.format_version in _VERSIONS and state.location.rstrip("/") == self.where.rstrip("/"):
                return state
        return None

    def _metadata_location(self) -> str | None:
        """The file that the catalog names."""
        namespace, _, table = self._name.rpartition(".")
        uri = f"file:{quote(str(self._file))}?mode=rw"  # it may have to undo what a killed run began
        with contextlib.closing(sqlite3.connect(uri, timeout=0, uri=True)) as connection:
            row: tuple[str | None] | None = connection.execute(_FIND, (self._catalog, namespace, table)).fetchone()
        return None if row is None else row[0]
