"""The course of a run for tables whose own metadata name the data files, the same for Iceberg and Delta.

What a run has written counts as soon as the metadata name it. From the moment when that is tried, the run itself
removes nothing any more: whether its files count is what the metadata say, to itself if it can ask, or to a later run.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import ClassVar, Generic, TypeAlias, TypeVar

import msgspec

from protocol.errors import RocketLensError, StoreError
from spark_jobs.places.placed_run import PlacedRun
from spark_jobs.tables._compact_files import CompactTask, RunAll, choose_files, put_together
from spark_jobs.tables._lake_runs import LakeRuns, Winner, base_of
from spark_jobs.tables._table import DataFile, FileLayout, TableCommit, TableShape
from spark_jobs.tables._table_runs import follow, who_committed
from spark_jobs.tables.days import start_of

Live = TypeVar("Live")
"""A data file as the metadata describe it."""

Publish: TypeAlias = Callable[[TableCommit], None]
"""Has the metadata name the files of a run, with its commit; raises whatever the library and the place raise."""


class LakeTable(ABC, Generic[Live]):
    """A table at a directory or a URL; see :class:`spark_jobs.tables._table.Table`."""

    is_hidden = False
    keeps_partitions: bool
    kind: ClassVar[str]
    """What the table is called in messages."""
    keeper: ClassVar[str]
    """What has its commits."""

    def __init__(self, url: str, storage: str, run_all: RunAll, compression: str) -> None:
        """Name the place; nothing is read. Raises ConfigError where nothing can be written."""
        self.where = url
        self._runs = LakeRuns(url, storage)
        self._run_all, self._compression = run_all, compression
        self._commit: TableCommit | None = None
        self._run: PlacedRun | None = None

    @abstractmethod
    def last(self) -> TableCommit | None:
        """See :class:`spark_jobs.tables._table.Table`."""

    @abstractmethod
    def layout(self, shape: TableShape) -> FileLayout:
        """See :class:`spark_jobs.tables._table.Table`."""

    def begin(self) -> PlacedRun:
        """See :class:`spark_jobs.tables._table.Table`."""
        self._run = self._runs.begin(self._number())
        return self._run

    def commit(self, files: Sequence[DataFile], commit: TableCommit) -> None:
        """See :class:`spark_jobs.tables._table.Table`."""
        with self._errors():
            self._change(self._prepared(files, ()), files, commit)

    def drop_before(self, day: date) -> TableCommit | None:
        """See :class:`spark_jobs.tables._table.Table`."""
        with self._errors():
            old = self._stored_before(start_of(day))
            if not old:
                return None
            self.begin()
            return self._change(self._prepared((), old), (), follow("drop", self._known_commit, len(old)))

    def compact(self, target_bytes: int) -> TableCommit | None:
        """See :class:`spark_jobs.tables._table.Table`."""
        with self._errors():
            ours = self._ours()
            chosen = choose_files([self._data_file(name, each) for name, each in ours.items()], target_bytes)
        if not chosen:
            return None
        shape = self._known_commit.shape
        layout = self.layout(shape)
        task = CompactTask(
            placed=self.begin(),
            table=self._runs.url,
            columns=tuple(name for name in shape.columns if self.keeps_partitions or name not in shape.partition_by),
            format="parquet",
            compression=self._compression,
            layout=layout,
        )
        try:
            made = put_together(chosen, task, self._run_all)
            old = [ours[each.name] for group in chosen for each in group]
            with self._errors():
                publish = self._prepared(made, old, is_same=True)
                return self._change(publish, made, follow("compact", self._known_commit, len(old)))
        finally:
            self._leave()

    def close(self) -> None:
        """See :class:`spark_jobs.tables._table.Table`."""
        self._leave()

    @abstractmethod
    def _number(self) -> int:
        """The number of the state that the table is known in."""

    @abstractmethod
    def _stored_before(self, limit: int) -> Sequence[Live]:
        """The data files whose messages were all stored before a time in ms."""

    @abstractmethod
    def _ours(self) -> Mapping[str, Live]:
        """The data files that runs of ours wrote and that are as they wrote them, by name."""

    @abstractmethod
    def _data_file(self, name: str, file: Live) -> DataFile:
        """A data file of ours as runs describe it."""

    @abstractmethod
    def _prepared(self, new: Sequence[DataFile], old: Sequence[Live], *, is_same: bool = False) -> Publish:
        """What publishes files that come and go; `is_same`: with the same rows. What it takes is read before."""

    @abstractmethod
    def _winner_after(self, base: int) -> Winner | None:
        """Who made the state after the one of a number."""

    @abstractmethod
    def _winner_now(self, base: int) -> Winner | None:
        """As `_winner_after`, of the table as it is now."""

    @abstractmethod
    def _commit_now(self) -> TableCommit | None:
        """The commit of the last run, of the table as it is now or was when its winner was looked for."""

    @abstractmethod
    def _said(self, error: Exception) -> str:
        """What the library says, in one line."""

    def _is_refusal(self, error: Exception) -> bool:
        """Whether the metadata are surely without the commit, since another run was first."""
        return False

    @property
    def _known_commit(self) -> TableCommit:
        assert self._commit is not None, "there is no table yet"
        return self._commit

    def _leave(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._runs.discard(run.token)

    def _change(self, publish: Publish, files: Sequence[DataFile], commit: TableCommit) -> TableCommit:
        """Commit all of a run; raises StoreError where another run was first, or where nobody can say."""
        run = self._run
        assert run is not None, "a run begins before it commits"
        made = msgspec.structs.replace(commit, run=run.token)
        try:
            self._runs.confirm(run, files)
            # From here on the files may count, whatever ends this run: a later one finds out.
            self._run = None
            publish(made)
        except Exception as error:  # whatever the library and the network have; what became of it is looked at
            self._check(run, error)
        self._run, self._commit = None, made
        self._runs.finish(run.token, {each.written for each in files})
        self._runs.sweep(base_of(run) + 1, self._winner_after)
        return made

    def _check(self, run: PlacedRun, error: Exception) -> None:
        """Raise StoreError, unless the table has the commit although there was an error."""
        try:
            winner = self._winner_now(base_of(run))
        except Exception:  # as above
            winner = None
        if winner is not None and winner.run == run.token:
            return
        if winner is not None or self._is_refusal(error):
            self._run = None
            self._runs.discard(run.token)
            raise self._moved(self._commit_now()) from error
        if isinstance(error, RocketLensError):
            raise error
        raise StoreError(  # it may yet be done; a later run cleans up otherwise
            self.where,
            what=f"it is not known whether the {self.keeper} has the commit: {self._said(error)}; the next run finds "
            "out",
        ) from error

    def _moved(self, commit: TableCommit | None) -> StoreError:
        """Return the error of a run that another one was quicker than."""
        return StoreError(
            self.where, what=f"was changed by {who_committed(commit)} meanwhile; what this run had written is removed"
        )

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise what the library, or what lies below it, refuses as StoreError."""
        try:
            yield
        except RocketLensError:
            raise
        except Exception as error:  # each catalog and each object store has errors of its own
            raise StoreError(self.where, what=f"the {self.kind} table cannot be used: {self._said(error)}") from error
