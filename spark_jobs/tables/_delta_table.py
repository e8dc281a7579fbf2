"""A Delta table, whose log has the position: `--format delta`.

Each run is one version. Its commit information has the commit of the run as JSON, `rocketlens.commit`, and the
transaction of the application `rocketlens` has the physical offset as its version. A version is created once, and
deltalake is not allowed to try the one after it: that would write what another run has written already.
"""

import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import deltalake
import msgspec
import pyarrow as pa
from deltalake import CommitProperties, Transaction
from deltalake.transaction import AddAction, RemoveAction

from protocol.errors import ConfigError
from spark_jobs.places.file_systems import said
from spark_jobs.read.arrow_columns import MICROSECONDS, arrow_schema
from spark_jobs.tables._compact_files import DATA_DIRECTORY, RunAll
from spark_jobs.tables._lake_options import delta_options
from spark_jobs.tables._lake_runs import Winner
from spark_jobs.tables._lake_table import LakeTable, Publish
from spark_jobs.tables._table import (
    DataFile,
    FileLayout,
    TableCommit,
    TableShape,
    read_commit,
)
from spark_jobs.tables.table_names import DATE, TOPIC
from storage.columns.names import FIRST_TIME, LAST_TIME

COMMIT: Final = "rocketlens.commit"
APPLICATION: Final = "rocketlens"
LOG: Final = "_delta_log"
STORED: Final = "store_timestamp"
RESTORE: Final = "RESTORE"
_NEW: Final = {"delta.logRetentionDuration": "interval 365 days"}
"""The position is in the log, so that is kept for longer than the 30 days which are usual."""

_LOOKED_BACK: Final = (8, 256)
"""Number of versions that are searched first for the last commit of a run; then all of them."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DeltaTable(LakeTable[DataFile]):
    """A Delta table at a directory or a URL; see :class:`spark_jobs.tables._table.Table`."""

    keeps_partitions = False
    """The log has their values."""
    kind, keeper = "Delta", "log"

    def __init__(self, url: str, storage: str, run_all: RunAll, compression: str) -> None:
        """Name the place; nothing is read. Raises ConfigError where nothing can be written."""
        super().__init__(url, storage, run_all, compression)
        self._options = delta_options(url, storage)
        self._table: deltalake.DeltaTable | None = None

    def last(self) -> TableCommit | None:
        """See :class:`spark_jobs.tables._table.Table`."""
        with self._errors():
            self._table = self._load()
            if self._table is None:
                self._runs.refuse_foreign([LOG])
                return None
            self._commit = _committed(self._table, self.where)
            self._runs.sweep(self._table.version(), self._winner_after)
            return self._commit

    def layout(self, shape: TableShape) -> FileLayout:
        """See :class:`spark_jobs.tables._table.Table`."""
        with self._errors():
            before = "" if self._commit is None else self._commit.run
            table = self._table or self._create(shape)
            if tuple(table.metadata().partition_columns) != shape.partition_by:
                found = ",".join(table.metadata().partition_columns) or "nothing"
                raise ConfigError(f"--to {self.where}: the table is partitioned by {found}")
            known = {field.name for field in table.schema().fields}
            missing = [field for field in _schema(shape) if field.name not in known]
            if missing:
                fields = [field.with_nullable(True) for field in missing]
                table.alter.add_columns(list(deltalake.Schema.from_arrow(pa.schema(fields)).fields))
            self._table = table = self._opened()
            commit = _committed(table, self.where)
            if ("" if commit is None else commit.run) != before:
                raise self._moved(commit)
            return FileLayout(microseconds=True)

    @property
    def _known(self) -> deltalake.DeltaTable:
        assert self._table is not None, "the table is made before a run begins"
        return self._table

    def _load(self) -> deltalake.DeltaTable | None:
        if not deltalake.DeltaTable.is_deltatable(self._runs.url, self._options):
            return None
        return self._opened()

    def _opened(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self._runs.url, storage_options=self._options)

    def _create(self, shape: TableShape) -> deltalake.DeltaTable:
        try:
            return deltalake.DeltaTable.create(
                self._runs.url,
                _schema(shape),
                partition_by=list(shape.partition_by),
                configuration=_NEW,
                storage_options=self._options,
            )
        except Exception:  # another run may have made it
            table = self._load()
            if table is None:
                raise
            return table

    def _number(self) -> int:
        return self._known.version()

    def _stored_before(self, limit: int) -> list[DataFile]:
        return [each for each in self._live() if STORED in each.bounds and each.bounds[STORED][1] < limit]

    def _ours(self) -> dict[str, DataFile]:
        return {each.name: each for each in self._live() if each.written.startswith(f"{DATA_DIRECTORY}/")}

    def _data_file(self, name: str, file: DataFile) -> DataFile:
        return file

    def _prepared(self, new: Sequence[DataFile], old: Sequence[DataFile], *, is_same: bool = False) -> Publish:
        actions: list[AddAction | RemoveAction] = [
            *(_added(each, is_new=not is_same) for each in new),
            *(_removed(each, is_new=not is_same) for each in old),
        ]
        return partial(self._publish, actions)

    def _publish(self, actions: list[AddAction | RemoveAction], commit: TableCommit) -> None:
        table = self._known
        table.create_write_transaction(
            actions,
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=CommitProperties(
                custom_metadata={COMMIT: msgspec.json.encode(commit).decode()},
                max_commit_retries=0,
                app_transactions=[Transaction(APPLICATION, commit.position.physical_offset)],
            ),
        )

    def _commit_now(self) -> TableCommit | None:
        return _committed(self._opened(), self.where)

    def _said(self, error: Exception) -> str:
        return _plain(error)

    def _winner_now(self, base: int) -> Winner | None:
        return self._winner_after(base)

    def _winner_after(self, base: int) -> Winner | None:
        """Who made the version after one."""
        data = self._runs.place.read(f"{LOG}/{base + 1:020d}.json")
        if data is None:
            return None
        run, names = "", set[str]()
        for line in data.splitlines():
            action = msgspec.json.decode(line, type=dict[str, Any])
            text = (action.get("commitInfo") or {}).get(COMMIT)
            if text is not None:
                run = read_commit(text, self.where, TableCommit).run
            if "add" in action:
                names.add(unquote(action["add"]["path"]))
        return Winner(run, frozenset(names))

    def _live(self) -> Iterator[DataFile]:
        """All data files of the table."""
        table = self._known
        for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            partition = {name: _value(row[f"partition.{name}"]) for name in table.metadata().partition_columns}
            path = unquote(row["path"])
            bounds = {}
            for name in ("physical_offset", STORED):
                low, high = row.get(f"min.{name}"), row.get(f"max.{name}")
                if low is not None and high is not None:
                    bounds[name] = _milliseconds(low), _milliseconds(high)
            yield DataFile(
                name=path.removeprefix(f"{DATA_DIRECTORY}/"),
                written=path,
                partition=partition,
                rows=row["num_records"] or 0,
                bytes=row["size_bytes"],
                sha256="",
                bounds=bounds,
            )


def _schema(shape: TableShape) -> pa.Schema:
    """The columns of a table, and those that it is partitioned by: a topic without a name is null there."""
    schema = arrow_schema(shape.columns, times=MICROSECONDS)
    if TOPIC in shape.partition_by:
        topic = pa.field(TOPIC, pa.string())
        at = schema.get_field_index(TOPIC)
        schema = schema.append(topic) if at < 0 else schema.set(at, topic)
    return schema.append(pa.field(DATE, pa.date32())) if DATE in shape.partition_by else schema


def _added(file: DataFile, *, is_new: bool = True) -> AddAction:
    stats: dict[str, Any] = {"numRecords": file.rows, "minValues": {}, "maxValues": {}}
    for name, (low, high) in file.bounds.items():
        if name == STORED and not FIRST_TIME <= low <= high <= LAST_TIME:
            continue
        stats["minValues"][name], stats["maxValues"][name] = (
            (_written(low), _written(high)) if name == STORED else (low, high)
        )
    return AddAction(
        path=file.written,
        size=file.bytes,
        partition_values=file.partition,
        modification_time=round(time.time() * 1000),
        data_change=is_new,
        stats=msgspec.json.encode(stats).decode(),
    )


def _removed(file: DataFile, *, is_new: bool = True) -> RemoveAction:
    now = round(time.time() * 1000)
    return RemoveAction(file.written, is_new, now, file.bytes, file.partition)


def _written(timestamp: int) -> str:
    return (_EPOCH + timedelta(milliseconds=timestamp)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _milliseconds(value: Any) -> int:
    return (value - _EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else int(value)


def _plain(error: Exception) -> str:
    """What deltalake says, in one line and without colours."""
    return " ".join(_COLOUR.sub("", said(error)).split())


def _value(value: Any) -> str | None:
    return None if value is None else str(value)


def _committed(table: deltalake.DeltaTable, where: str) -> TableCommit | None:
    """The commit of the last run, None of a table without a file; raises ConfigError where no run of ours wrote it."""
    for limit in (*_LOOKED_BACK, None):
        for entry in table.history(limit):
            if COMMIT in entry:
                return read_commit(entry[COMMIT], where, TableCommit)
            if entry.get("operation") == RESTORE:
                raise ConfigError(
                    f"{where}: the table was set back by RESTORE, and its position was not: export into another table"
                )
    if table.transaction_version(APPLICATION) is not None:
        raise ConfigError(f"{where}: the version with the position has been removed from the log of this Delta table")
    if table.count():
        raise ConfigError(f"{where}: no run of RocketLens has written this Delta table: choose another")
    return None
