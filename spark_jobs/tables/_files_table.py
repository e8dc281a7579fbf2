"""A table of files, which anything reads that reads a directory: Parquet, JSON lines or CSV.

    TABLE/data/topic=T/date=D/part-….parquet      what readers read: whole files of what is committed, nothing else
    TABLE/_rocketlens/commits/G/N.json            commit N, created once; G is N without its last three digits
    TABLE/_rocketlens/_attempts/RUN/…             what runs write, in objects that have numbers for names

A commit is the file that says which attempts' files count, where they belong, and which older files are no more. It is
created where there is none yet, so of several runs that are based on the same commit one gets through. Only then are
its files brought to their places, by whichever process comes first: the run itself or, if it was killed, the next one.
So a directory never shows what is not committed, nor anything twice.

RUN begins with the number of the commit that the run is based on. Once there is a later commit, nothing of such a run
can count any more, and the next run to commit removes it: nobody has to guess by a clock whether a run is alive.
"""

import contextlib
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final

import msgspec

from protocol.errors import ConfigError, StoreError
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import ATTEMPTS
from spark_jobs.places.placed_run import PlacedRun, enter, new_token
from spark_jobs.tables._compact_files import DATA_DIRECTORY, CompactTask, RunAll, choose_files, put_together
from spark_jobs.tables._table import DataFile, FileLayout, TableCommit, TableShape, read_commit
from spark_jobs.tables._table_runs import confirm, follow
from spark_jobs.tables.days import start_of
from spark_jobs.tables.table_names import HIDDEN

COMMITS: Final = f"{HIDDEN}/commits"
EACH: Final = 1000
"""Commits of one directory."""

LISTED: Final = 100
"""Each commit with a number that this divides lists all files of the table, so that nobody reads further back."""

_TRIES: Final = 3


class FilesCommit(TableCommit, frozen=True, kw_only=True):
    """A commit as its file has it: `files` came to the table, those named in `removed` are no more.

    `live` are all files from then on, where the commit says so.
    """

    number: int
    files: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    live: tuple[DataFile, ...] | None = None


class FilesTable:
    """A table of files at a directory or a URL; see :class:`spark_jobs.tables._table.Table`."""

    is_hidden = True
    keeps_partitions = False
    """Readers take them from the names of directories."""

    def __init__(self, url: str, storage: str, run_all: RunAll, columns: Sequence[str], compression: str) -> None:
        """Name the place; raises ConfigError where nothing can be created exactly once.

        `run_all` runs tasks that put files together, into files of these columns.
        """
        self.where = url
        self._place = OutputPlace(url, storage)
        self._run_all, self._columns, self._compression = run_all, tuple(columns), compression
        self._head: FilesCommit | None = None
        self._run: PlacedRun | None = None

    def last(self) -> FilesCommit | None:
        """See :class:`spark_jobs.tables._table.Table`; brings the files of the last commit to their places."""
        self._head = self._newest()
        if self._head is None:
            foreign = [name for name in self._place.names() if name != HIDDEN]
            self._head = self._newest() if foreign else None  # another run may just have made the table
        if self._head is None:
            if foreign:
                raise ConfigError(f"--to {self.where}: it contains {foreign[0]}, and no table: choose an empty place")
            return None
        self._settle(self._head)
        return self._head

    def layout(self, shape: TableShape) -> FileLayout:
        """See :class:`spark_jobs.tables._table.Table`."""
        return FileLayout()

    def begin(self) -> PlacedRun:
        """See :class:`spark_jobs.tables._table.Table`."""
        token = f"{self._number:018d}-{new_token()}"
        self._run = PlacedRun(f"{self._place.url}/{HIDDEN}", self._place.storage, token)
        enter(self._run.place(), self._run, "export")
        return self._run

    def commit(self, files: Sequence[DataFile], commit: TableCommit) -> None:
        """See :class:`spark_jobs.tables._table.Table`."""
        self._commit(files, (), commit)

    def drop_before(self, day: date) -> FilesCommit | None:
        """See :class:`spark_jobs.tables._table.Table`."""
        limit = start_of(day)
        old = [each.name for each in self.live_files() if each.bounds["store_timestamp"][1] < limit]
        if not old:
            return None
        self.begin()
        return self._commit((), old, follow("drop", self._known, len(old)))

    def compact(self, target_bytes: int) -> FilesCommit | None:
        """See :class:`spark_jobs.tables._table.Table`."""
        chosen = choose_files(self.live_files(), target_bytes)
        if not chosen:
            return None
        task = CompactTask(
            placed=self.begin(),
            table=self._place.url,
            columns=self._columns,
            format=self._known.shape.format,
            compression=self._compression,
        )
        try:
            made = put_together(chosen, task, self._run_all)
            old = [each.name for group in chosen for each in group]
            return self._commit(made, old, follow("compact", self._known, len(old)))
        finally:
            self.close()

    def close(self) -> None:
        """See :class:`spark_jobs.tables._table.Table`."""
        run, self._run = self._run, None
        if run is not None:
            self._discard(run)

    def live_files(self) -> tuple[DataFile, ...]:
        """All files of the table, as the last commit has it, in the order in which they came."""
        if self._head is None:
            return ()
        later: list[FilesCommit] = []
        commit: FilesCommit | None = self._head
        while commit is not None and commit.live is None:
            later.append(commit)
            commit = self._read(commit.number - 1) if commit.number > 1 else None
        live = {each.name: each for each in (commit.live or () if commit is not None else ())}
        for each in reversed(later):
            live |= {file.name: file for file in each.files}
            for name in each.removed:
                live.pop(name, None)
        return tuple(live.values())

    @property
    def _known(self) -> FilesCommit:
        assert self._head is not None, "there is no table yet"
        return self._head

    @property
    def _number(self) -> int:
        return 0 if self._head is None else self._head.number

    def _commit(self, files: Sequence[DataFile], removed: Sequence[str], commit: TableCommit) -> FilesCommit:
        run = self._run
        assert run is not None, "a run begins before it commits"
        number = self._number + 1
        fields = {name: getattr(commit, name) for name in TableCommit.__struct_fields__}
        fields["run"] = run.token
        made = FilesCommit(**fields, number=number, files=tuple(files), removed=tuple(removed))
        if number % LISTED == 0:
            gone = {*removed}
            live = (*(each for each in self.live_files() if each.name not in gone), *files)
            made = msgspec.structs.replace(made, live=live)
        winner = self._first(run, files, made)
        if winner.run != run.token:
            self._discard(run)
            raise StoreError(
                self._place.path(_name(number)),
                what=f"is that of another run: {winner.run} of {winner.record.host}; what this run ({run.token}) had "
                "written is removed",
            )
        self._head = made
        self._settle(made)
        self._sweep(made)
        return made

    def _first(self, run: PlacedRun, files: Iterable[DataFile], made: FilesCommit) -> FilesCommit:
        """Create a commit unless another run has; that which is there then."""
        try:
            confirm(self._place, run.directory, files, within=f"{HIDDEN}/")
        except StoreError:
            # A run that has committed removes what is of others.
            winner = self._read(made.number)
            if winner is None:
                raise
            self._run = None
            return winner
        # A run that finds the commit after the power has failed must find what it names.
        self._place.sync(f"{HIDDEN}/{each.written}" for each in files)
        # From here on the files may count, whatever ends this run: the next one finds out.
        self._run = None
        try:
            return self._create(made)
        except OSError:  # there is no room
            if self._read(made.number) is None:
                self._run = run
            raise

    def _create(self, commit: FilesCommit) -> FilesCommit:
        """Create a commit; that which is there then. An answer that was lost, or is late, decides nothing."""
        data = msgspec.json.encode(commit) + b"\n"
        error: StoreError | None = None
        for _ in range(_TRIES):
            try:
                self._place.create(_name(commit.number), data)
            except StoreError as found:
                error = found
            there = self._read(commit.number)
            if there is not None:
                self._place.sync([_name(commit.number)])
                return there
        raise error or StoreError(self._place.path(_name(commit.number)), what="was removed as soon as it was written")

    def _settle(self, commit: FilesCommit) -> None:
        """Bring the files of a commit to their places, and remove those that are no more, as far as that is not done.

        First those go that others replace: for a moment a reader may miss rows, but finds none twice.
        """
        there = self._place.objects(f"{HIDDEN}/{ATTEMPTS}/{commit.run}")
        if not there:
            return
        self._place.remove(f"{DATA_DIRECTORY}/{name}" for name in commit.removed)
        try:
            for each in commit.files:
                written = f"{HIDDEN}/{each.written}"
                if written in there:
                    self._place.move(written, f"{DATA_DIRECTORY}/{each.name}", each.bytes)
            self._place.sync(f"{DATA_DIRECTORY}/{each.name}" for each in commit.files)
        except StoreError:
            # Another process may have done it, and even put the files together by now.
            if self._place.read(_name(commit.number + 1)) is None:
                raise
        self._remove_run(commit.run)

    def _discard(self, run: PlacedRun) -> None:
        """Remove what a run wrote that cannot count any more, if the place can be reached."""
        with contextlib.suppress(StoreError, OSError):
            self._remove_run(run.token)

    def _remove_run(self, token: str) -> None:
        self._place.remove(self._place.objects(f"{HIDDEN}/{ATTEMPTS}/{token}"))

    def _sweep(self, commit: FilesCommit) -> None:
        """Remove what runs left that were based on an earlier commit: none of it can count any more."""
        # A run that was killed while it created a commit leaves it under another name.
        group = _name(commit.number - 1).rpartition("/")[0]
        left = [name for name in self._place.objects(group) if _is_before(name, commit.number)]
        start = f"{HIDDEN}/{ATTEMPTS}/"
        for name in self._place.objects(f"{HIDDEN}/{ATTEMPTS}"):
            base = name.removeprefix(start).partition("-")[0]
            if base.isdecimal() and int(base) < commit.number:
                left.append(name)
        self._place.remove(left)

    def _newest(self) -> FilesCommit | None:
        groups = [name.rpartition("/")[2] for name in self._place.names(COMMITS)]
        for group in sorted(groups, reverse=True):
            numbers = [
                name.rpartition("/")[2].removesuffix(".json") for name in self._place.names(f"{COMMITS}/{group}")
            ]
            known = [int(number) for number in numbers if number.isdecimal()]
            if known:
                return self._read(max(known))
        return None

    def _read(self, number: int) -> FilesCommit | None:
        name = _name(number)
        data = self._place.read(name)
        return None if data is None else read_commit(data, self._place.path(name), FilesCommit)


def _is_before(name: str, number: int) -> bool:
    """Whether an object is what was left of creating a commit before that of a number."""
    first, _, ending = name.rpartition("/")[2].partition(".json.")
    return bool(ending) and first.isdecimal() and int(first) < number


def _name(number: int) -> str:
    return f"{COMMITS}/{number // EACH:015d}/{number:018d}.json"
