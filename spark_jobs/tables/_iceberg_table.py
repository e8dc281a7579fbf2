"""An Iceberg table, whose snapshots have the position: `--format iceberg`.

Each run appends one snapshot. Its summary has the commit of the run as JSON, `rocketlens.commit`, and the table's
property of the same name has it too, without the places of damage, for when the snapshot has been expired. Both are
changed in one step of the catalog, which is bound to the snapshot that the run is based on: pyiceberg's own way, to
append once more to whatever the table has become, would write what another run has written already.

The catalog is a file of SQLite in the table's directory, unless properties name another: `uri`, and what pyiceberg
knows besides. `catalog` is the name that a catalog in SQL distinguishes it by, `default` without it.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.table import Table as PyTable
from pyiceberg.table.snapshots import Snapshot

from protocol.errors import ConfigError
from spark_jobs.places.file_systems import has_scheme, local_path, said
from spark_jobs.tables._compact_files import DATA_DIRECTORY, RunAll
from spark_jobs.tables._iceberg_schema import (
    STORED,
    field_ids,
    iceberg_schema,
    partition_names,
    partition_record,
    partition_spec,
    partition_values,
    type_of,
    without_bounds,
)
from spark_jobs.tables._iceberg_state import (
    CATALOG,
    COMMIT,
    DEFAULT_CATALOG,
    DEFAULT_NAME,
    SEQUENCE,
    SnapshotState,
    TableState,
)
from spark_jobs.tables._lake_options import iceberg_options
from spark_jobs.tables._lake_runs import Winner
from spark_jobs.tables._lake_table import LakeTable, Publish
from spark_jobs.tables._table import DataFile, FileLayout, TableCommit, TableShape

_NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
_NEW: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
}
"""Runs every few minutes leave thousands of snapshots: each version of the metadata names all of them, and each list of
manifests would name one of each run.
"""
_LISTED_DAMAGE: Final = 100
"""Places of damage that a snapshot lists, as every later version of the metadata does too; more are counted."""
_IN_MILLISECOND: Final = 1000


class IcebergTable(LakeTable[IcebergFile]):
    """An Iceberg table at a directory or a URL; see :class:`spark_jobs.tables._table.Table`."""

    keeps_partitions = True
    kind, keeper = "Iceberg", "catalog"

    def __init__(
        self, url: str, storage: str, run_all: RunAll, compression: str, catalog: dict[str, str], name: str
    ) -> None:
        """Name the place, and the table in its catalog; nothing is read.

        Raises ConfigError where nothing can be written, or no catalog can be.
        """
        super().__init__(url, storage, run_all, compression)
        self._identifier = name or DEFAULT_NAME
        if "." not in self._identifier:
            raise ConfigError(f"--table {self._identifier}: a table of Iceberg has a namespace: NAMESPACE.TABLE")
        self._file: Path | None = None
        properties = {**iceberg_options(url, storage), **catalog}
        if "uri" not in properties and "type" not in properties:
            if has_scheme(url) and not url.startswith("file://"):
                raise ConfigError(f"--to {url}: name the catalog of the table: --catalog uri=URI")
            self._file = Path(local_path(url)) / CATALOG
            properties["uri"] = f"sqlite:///{self._file}"
        self._catalog_name = properties.pop("catalog", DEFAULT_CATALOG)
        self._properties = properties
        self._stack = contextlib.ExitStack()
        self._opened: Catalog | None = None
        self._table: PyTable | None = None

    def last(self) -> TableCommit | None:
        """See :class:`spark_jobs.tables._table.Table`."""
        with self._errors():
            self._table = self._load()
            if self._table is None:
                self._runs.refuse_foreign([CATALOG, f"{CATALOG}-journal"])
                return None
            if self._table.location().rstrip("/") != self._runs.url:
                raise ConfigError(f"--to {self.where}: the catalog has {self._identifier} at {self._table.location()}")
            self._commit = _committed(self._table)
            self._runs.sweep(_sequence(self._table), self._winner_after)
            return self._commit

    def layout(self, shape: TableShape) -> FileLayout:
        """See :class:`spark_jobs.tables._table.Table`."""
        with self._errors():
            base = _head(self._table)
            table = self._table or self._create(shape)
            if partition_names(table.spec()) != shape.partition_by:
                found = ",".join(partition_names(table.spec())) or "nothing"
                raise ConfigError(f"--to {self.where}: the table is partitioned by {found}")
            missing = [name for name in shape.columns if name not in table.schema().column_names]
            if missing:
                with table.transaction() as transaction:
                    with transaction.update_schema() as update:
                        for name in missing:
                            update.add_column(name, type_of(name, count(1)), required=False)
                    transaction.set_properties(without_bounds(missing))
                table = table.refresh()
            if _head(table) != base:
                raise self._moved(_committed(table))
            self._table = table
            return FileLayout(microseconds=True, field_ids=field_ids(table.schema()))

    def close(self) -> None:
        """See :class:`spark_jobs.tables._table.Table`."""
        super().close()
        self._stack.close()
        self._opened = None

    @property
    def _known(self) -> PyTable:
        assert self._table is not None, "the table is made before a run begins"
        return self._table

    def _catalog(self) -> Catalog:
        if self._opened is None:
            self._opened = load_catalog(self._catalog_name, **self._properties)
            self._stack.callback(self._opened.close)
        return self._opened

    def _load(self) -> PyTable | None:
        if self._file is not None and not self._file.exists():
            return None
        try:
            return self._catalog().load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _create(self, shape: TableShape) -> PyTable:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        schema = iceberg_schema(shape.columns)
        spec = partition_spec(schema, shape.partition_by)
        with contextlib.suppress(NamespaceAlreadyExistsError):
            self._catalog().create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
        with contextlib.suppress(TableAlreadyExistsError):
            return self._catalog().create_table(
                self._identifier,
                schema,
                location=self._runs.url,
                partition_spec=spec,
                properties={**_NEW, **without_bounds(shape.columns)},
            )
        return self._catalog().load_table(self._identifier)

    def _number(self) -> int:
        return _sequence(self._known)

    def _stored_before(self, limit: int) -> list[IcebergFile]:
        return [each for each in self._live() if (highest := self._bound(each, STORED, 1)) and highest < limit]

    def _ours(self) -> dict[str, IcebergFile]:
        return {name: each for each in self._live(whole=True) if (name := self._name(each))}

    def _prepared(self, new: Sequence[DataFile], old: Sequence[IcebergFile], *, is_same: bool = False) -> Publish:
        return partial(self._publish, [self._described(each) for each in new], old)

    def _publish(self, new: Sequence[IcebergFile], old: Sequence[IcebergFile], commit: TableCommit) -> None:
        table = _without_retries(self._known)
        text, short = (msgspec.json.encode(_with_damage(commit, limit)).decode() for limit in (_LISTED_DAMAGE, 0))
        sequence = _sequence(table) + 1
        with table.transaction() as transaction:
            transaction.set_properties({COMMIT: short, SEQUENCE: str(sequence)})
            update = transaction.update_snapshot(snapshot_properties={COMMIT: text})
            with update.overwrite() if old else update.merge_append() as snapshot:
                for each in new:
                    snapshot.append_data_file(each)
                for each in old:
                    snapshot.delete_data_file(each)

    def _winner_now(self, base: int) -> Winner | None:
        self._table = self._load()
        return self._winner_after(base)

    def _commit_now(self) -> TableCommit | None:
        return _committed(self._known)

    def _is_refusal(self, error: Exception) -> bool:
        return isinstance(error, CommitFailedException)

    def _said(self, error: Exception) -> str:
        return said(error)

    def _winner_after(self, base: int) -> Winner | None:
        """Who made the snapshot that came after the one of a sequence number."""
        table = self._known
        found = next((each for each in table.metadata.snapshots if each.sequence_number == base + 1), None)
        if found is None:
            return None
        commit = _snapshot_state(found).commit
        return Winner("" if commit is None else commit.run, frozenset(self._added(table, found)))

    def _added(self, table: PyTable, snapshot: Snapshot) -> Iterator[str]:
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(table.io):
                if entry.status == ManifestEntryStatus.ADDED:
                    yield entry.data_file.file_path.removeprefix(f"{self._runs.url}/")

    def _live(self, *, whole: bool = False) -> list[IcebergFile]:
        """All data files of the table; `whole`: those of which no program has deleted rows."""
        tasks = self._known.scan().plan_files()
        return [task.file for task in tasks if not (whole and task.delete_files)]

    def _name(self, file: IcebergFile) -> str:
        """The name of a data file that a run of ours wrote, relative to where they lie; else ""."""
        start = f"{self._runs.url}/{DATA_DIRECTORY}/"
        return file.file_path.removeprefix(start) if file.file_path.startswith(start) else ""

    def _data_file(self, name: str, file: IcebergFile) -> DataFile:
        bounds = {}
        for column in ("physical_offset", STORED):
            low, high = self._bound(file, column, 0), self._bound(file, column, 1)
            if low is not None and high is not None:
                bounds[column] = low, high
        return DataFile(
            name=name,
            written=f"{DATA_DIRECTORY}/{name}",
            partition=partition_values(self._known.specs()[file.spec_id], file.partition),
            rows=file.record_count,
            bytes=file.file_size_in_bytes,
            sha256="",
            bounds=bounds,
        )

    def _bound(self, file: IcebergFile, column: str, which: int) -> int | None:
        """The lowest (0) or highest (1) value of a column in a file, times in ms; None where none is known."""
        schema = self._known.schema()
        if column not in schema.column_names:
            return None
        field = schema.find_field(column)
        value = ((file.lower_bounds, file.upper_bounds)[which] or {}).get(field.field_id)
        if value is None:
            return None
        found = int(from_bytes(field.field_type, value))  # type: ignore[arg-type]
        return found // _IN_MILLISECOND if column == STORED else found

    def _described(self, file: DataFile) -> IcebergFile:
        """A data file as a manifest has it, with what its footer says of its columns."""
        table = self._known
        path = self._runs.path(file)
        source = table.io.new_input(path)
        with source.open() as opened:
            footer = pq.read_metadata(opened)
        found = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(table.schema(), table.metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(table.schema()),
        )
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=partition_record(table.spec(), file.partition),
            file_size_in_bytes=file.bytes,
            sort_order_id=None,
            spec_id=table.spec().spec_id,
            equality_ids=None,
            key_metadata=None,
            **found.to_serialized_dict(),
        )


def _head(table: PyTable | None) -> int | None:
    """The snapshot that a table is at."""
    return None if table is None else table.metadata.current_snapshot_id


def _sequence(table: PyTable) -> int:
    """The number of the last change of a table's files; a table of the first version of the format has none."""
    metadata = table.metadata
    if metadata.format_version == 1:
        raise ConfigError(f"{table.location()}: the table is of version 1 of Iceberg's format: upgrade it to version 2")
    return metadata.last_sequence_number


def _without_retries(table: PyTable) -> PyTable:
    """Keep pyiceberg from appending once more to a table that has become another; it asks the properties it knows."""
    properties = {**table.metadata.properties, **_NO_RETRIES}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _committed(table: PyTable) -> TableCommit | None:
    """The commit of the last run; see :meth:`TableState.committed`."""
    metadata = table.metadata
    state = TableState(
        location=table.location(),
        format_version=metadata.format_version,
        current_snapshot_id=metadata.current_snapshot_id,
        snapshots=tuple(map(_snapshot_state, metadata.snapshots)),
        properties=metadata.properties,
    )
    return state.committed()


def _with_damage(commit: TableCommit, limit: int) -> TableCommit:
    """A commit whose record lists at most so many places of damage, and counts the others."""
    record = commit.record
    more = record.more_damage + max(len(record.damage) - limit, 0)
    return msgspec.structs.replace(
        commit, record=msgspec.structs.replace(record, damage=record.damage[:limit], more_damage=more)
    )


def _snapshot_state(snapshot: Snapshot) -> SnapshotState:
    return SnapshotState(
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        summary={} if snapshot.summary is None else snapshot.summary.additional_properties,
    )
