"""A Delta table, whose log has the position: `--format delta`.

Each run is one version. Its commit information has the commit of the run as JSON, `rocketlens.commit`, and the
transaction of the application `rocketlens` has the physical offset as its version. A version is created once, and
deltalake is not allowed to try the one after it: that would write what another run has written already.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote

import deltalake
import msgspec
import pyarrow as pa
from deltalake import CommitProperties, Transaction
from deltalake.transaction import AddAction, RemoveAction

from protocol.errors import ConfigError, RocketLensError, StoreError
from spark_jobs.places.file_systems import said
from spark_jobs.places.placed_run import PlacedRun
from spark_jobs.read.arrow_columns import FIRST_TIME, LAST_TIME, MICROSECONDS, arrow_schema
from spark_jobs.tables.compact_files import DATA_DIRECTORY, CompactTask, RunAll, choose_files, compact_files
from spark_jobs.tables.days import start_of
from spark_jobs.tables.lake_options import delta_options
from spark_jobs.tables.lake_runs import LakeRuns, Winner, base_of, follow
from spark_jobs.tables.table import (
    DataFile,
    FileLayout,
    TableCommit,
    TableShape,
    read_commit,
)
from spark_jobs.tables.table_names import DATE, TOPIC

COMMIT: Final = "rocketlens.commit"
APPLICATION: Final = "rocketlens"
LOG: Final = "_delta_log"
STORED: Final = "store_timestamp"
RESTORE: Final = "RESTORE"
_NEW: Final = {"delta.logRetentionDuration": "interval 365 days"}
"""The position is in the log, so that is kept for longer than the 30 days which are usual."""

_LOOKED_BACK: Final = (8, 256)
"""So many versions are looked at first for the last commit of a run; then all of them."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DeltaTable:
    """A Delta table at a directory or a URL; see :class:`spark_jobs.tables.table.Table`."""

    is_hidden = False
    keeps_partitions = False
    """The log has their values."""

    def __init__(self, url: str, storage: str, run_all: RunAll, compression: str) -> None:
        """Name the place; nothing is read. Raises ConfigError where nothing can be written."""
        self.where = url
        self._runs = LakeRuns(url, storage)
        self._run_all, self._compression = run_all, compression
        self._options = delta_options(url, storage)
        self._table: deltalake.DeltaTable | None = None
        self._commit: TableCommit | None = None
        self._run: PlacedRun | None = None

    def last(self) -> TableCommit | None:
        """See :class:`spark_jobs.tables.table.Table`."""
        with self._errors():
            self._table = self._load()
            if self._table is None:
                self._runs.refuse_foreign([LOG])
                return None
            self._commit = _committed(self._table, self.where)
            self._runs.sweep(self._table.version(), self._winner_after)
            return self._commit

    def layout(self, shape: TableShape) -> FileLayout:
        """See :class:`spark_jobs.tables.table.Table`."""
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

    def begin(self) -> PlacedRun:
        """See :class:`spark_jobs.tables.table.Table`."""
        self._run = self._runs.begin(self._known.version())
        return self._run

    def commit(self, files: Sequence[DataFile], commit: TableCommit) -> None:
        """See :class:`spark_jobs.tables.table.Table`."""
        with self._errors():
            self._change([_added(each) for each in files], files, commit)

    def drop_before(self, day: date) -> TableCommit | None:
        """See :class:`spark_jobs.tables.table.Table`."""
        limit = start_of(day)
        with self._errors():
            old = [each for each in self._live() if STORED in each.bounds and each.bounds[STORED][1] < limit]
            if not old:
                return None
            self.begin()
            return self._change([_removed(each) for each in old], (), follow("drop", self._known_commit, len(old)))

    def compact(self, target_bytes: int) -> TableCommit | None:
        """See :class:`spark_jobs.tables.table.Table`."""
        with self._errors():
            ours = [each for each in self._live() if each.written.startswith(f"{DATA_DIRECTORY}/")]
            chosen = choose_files(ours, target_bytes)
        if not chosen:
            return None
        shape = self._known_commit.shape
        layout = self.layout(shape)
        run = self.begin()
        tasks = [
            CompactTask(
                name=f"compact-{number:05d}",
                placed=run,
                table=self._runs.url,
                files=tuple(each),
                columns=tuple(name for name in shape.columns if name not in shape.partition_by),
                format="parquet",
                compression=self._compression,
                layout=layout,
            )
            for number, each in enumerate(chosen)
        ]
        try:
            made = [msgspec.convert(each["file"], DataFile) for each in self._run_all(tasks, compact_files)]
            old = [each for group in chosen for each in group]
            actions: list[AddAction | RemoveAction] = [
                *(_added(each, is_new=False) for each in made),
                *(_removed(each, is_new=False) for each in old),
            ]
            with self._errors():
                return self._change(actions, made, follow("compact", self._known_commit, len(old)))
        finally:
            self._leave()

    def close(self) -> None:
        """See :class:`spark_jobs.tables.table.Table`."""
        self._leave()

    def _leave(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._runs.discard(run.token)

    @property
    def _known(self) -> deltalake.DeltaTable:
        assert self._table is not None, "the table is made before a run begins"
        return self._table

    @property
    def _known_commit(self) -> TableCommit:
        assert self._commit is not None, "there is no table yet"
        return self._commit

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

    def _change(
        self, actions: Sequence[AddAction | RemoveAction], files: Sequence[DataFile], commit: TableCommit
    ) -> TableCommit:
        """Commit all of a run; raises StoreError where another run was first, or where nobody can say."""
        run = self._run
        assert run is not None, "a run begins before it commits"
        made = msgspec.structs.replace(commit, run=run.token)
        table = self._known
        properties = CommitProperties(
            custom_metadata={COMMIT: msgspec.json.encode(made).decode()},
            max_commit_retries=0,
            app_transactions=[Transaction(APPLICATION, commit.position.physical_offset)],
        )
        try:
            self._runs.confirm(run, files)
            # From here on the files may count, whatever ends this run: a later one finds out.
            self._run = None
            table.create_write_transaction(
                list(actions),
                mode="append",
                schema=table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=properties,
            )
        except Exception as error:  # whatever the object store has; what became of it is looked at
            self._judge(run, error)
        self._run, self._commit = None, made
        self._runs.finish(run.token, {each.written for each in files})
        self._runs.sweep(base_of(run) + 1, self._winner_after)
        return made

    def _judge(self, run: PlacedRun, error: Exception) -> None:
        """Raise StoreError, unless the table has the commit although there was an error."""
        try:
            winner = self._winner_after(base_of(run))
        except Exception:  # as above
            winner = None
        if winner is not None and winner.run == run.token:
            return
        if winner is not None:
            self._run = None
            self._runs.discard(run.token)
            raise self._moved(_committed(self._opened(), self.where)) from error
        if isinstance(error, RocketLensError):
            raise error
        raise StoreError(  # the object store may yet do it; a later run cleans up otherwise
            self.where,
            what=f"it is not known whether the log has the commit: {_plain(error)}; the next run finds out",
        ) from error

    def _moved(self, commit: TableCommit | None) -> StoreError:
        """Return the error of a run that another one was quicker than."""
        who = "another program" if commit is None else f"the run {commit.run} of {commit.record.host}"
        return StoreError(self.where, what=f"was changed by {who} meanwhile; what this run had written is removed")

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
                run = read_commit(text, self.where).run
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

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise what deltalake, or the object store below it, refuses as StoreError."""
        try:
            yield
        except RocketLensError:
            raise
        except Exception as error:  # each object store has errors of its own
            raise StoreError(self.where, what=f"the Delta table cannot be used: {_plain(error)}") from error


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
                return read_commit(entry[COMMIT], where)
            if entry.get("operation") == RESTORE:
                raise ConfigError(
                    f"{where}: the table was set back by RESTORE, and its position was not: export into another table"
                )
    if table.transaction_version(APPLICATION) is not None:
        raise ConfigError(f"{where}: the version with the position has been removed from the log of this Delta table")
    if table.count():
        raise ConfigError(f"{where}: no run of RocketLens has written this Delta table: choose another")
    return None
