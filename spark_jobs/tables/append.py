"""Append to a table what came to the log since the last run: `rocketlens export STORE --to TABLE --since-last`.

A run reads from the position that the table has to the log's end as found at its start, a task a segment. What all
tasks have written is committed at once, with the position behind it. Where nothing came, nothing is committed, and no
task is run.
"""

import contextlib
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from protocol.errors import ConfigError
from spark_jobs.places.file_systems import is_url
from spark_jobs.places.place_names import COPIES
from spark_jobs.places.placed_run import this_process
from spark_jobs.read.absent_topics import refuse_absent_topics, unread_of_store
from spark_jobs.read.log_ranges import LogRange, LogRanges, Problem, find_ranges
from spark_jobs.run.attempt import run_phase
from spark_jobs.run.engine import Engine, opened_engine
from spark_jobs.run.engine_names import LOCAL, SPARK
from spark_jobs.run.local_engine import LocalEngine
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.report import Damage, Report
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.tables._known_log import check_log, position_at
from spark_jobs.tables._open_table import open_table
from spark_jobs.tables._table import DataFile, RunRecord, Table, TableCommit, TableShape
from spark_jobs.tables.days import parse_day
from spark_jobs.tables.table_request import TableDetails, TableRequest
from storage.columns.body_content import BodyCounts
from storage.filter.hidden import refuse_hidden
from storage.patterns.mask import hidden_notes, mask_of
from storage.times import format_timestamp

if TYPE_CHECKING:  # what reads and writes messages is loaded when there is something new
    from spark_jobs.tables._append_task import AppendedRange

Task = TypeVar("Task")
Result = TypeVar("Result")

PHASE: Final = "append"
MOST_DAMAGE: Final = 1000
"""Places of damage that the record of a run lists; more are counted."""

OPTIONS: Final = {
    "format": "--format",
    "partition_by": "--partition-by",
    "topics": "--topic",
    "begin": "--since",
    "end": "--until",
    "tag": "--tag",
    "where": "--where",
    "masked": "--mask",
    "unpack": "--unpack",
    "charset": "--charset",
}
"""The options of a command that make the fields of a shape that stay."""

NO_UNPACK: Final = "--no-unpack"

_WRITTEN_BYTES: Final = 8
"""Bytes behind the last record that are zero as long as nothing follows it."""


def run_append(
    request: TableRequest, progress: JobProgress, ahead: LocalEngine | None = None, *, until: int | None = None
) -> Report[TableDetails]:
    """Append new messages, then drop old files and merge small ones, as requested.

    With `until` only what lies before this physical offset, behind a record, is new.

    Raises a RocketLensError for impossible options, for another log than the table's, and where another run has
    committed meanwhile; nothing of this run is left then.
    """
    with _Run(request, progress, ahead, until) as run:
        return run.report()


class _Run:
    """One run, with what it needs for its tasks."""

    def __init__(
        self, request: TableRequest, progress: JobProgress, ahead: LocalEngine | None, until: int | None
    ) -> None:
        self._request, self._progress, self._ahead, self._until = request, progress, ahead, until
        self._started, self._began = time.monotonic(), _now()
        self._stack = contextlib.ExitStack()
        self._table: Table = open_table(request, self._run_all)
        self._opened: Engine | None = None
        self._unread: list[str] = []

    def __enter__(self) -> "_Run":
        return self

    def __exit__(self, *raised: Any) -> None:
        with self._stack:
            self._table.close()

    def report(self) -> Report[TableDetails]:
        """Do all of it."""
        request = self._request
        day = parse_day(request.drop_before) if request.drop_before else None
        refuse_hidden(mask_of(request.masked), request.tag, request.where)
        found = find_ranges(request.store, request.commit_log_directories, request.storage)
        if found.tier is not None:
            raise ConfigError(
                f"{request.store} holds tiered files, a log for each queue: a table is made of one log; use --out"
            )
        last = self._table.last()
        shape = shape_of(request, last)
        start, gap = _where_to_begin(request, found, last)
        pieces = self._new(found, start)
        appended = self._append(pieces, shape) if pieces else []
        if last is None and not any(each["written"] for each in appended):  # a table of nothing that ever comes
            refuse_absent_topics(request.store, request.commit_log_directories, request.storage, request.topics)
        if last is None or not is_url(request.store):  # behind a URL files are fetched for it: once for a table
            self._unread = unread_of_store(request.store, request.storage, request.topics)
        commit = self._commit(found, shape, (start, gap), appended)
        removed = self._keep_house(day)
        stop = start if commit is None else commit.position.physical_offset
        behind: tuple[Damage, ...] = ()
        if self._until is None:  # else there may be more to read
            known = found.problems_within(start, stop)
            behind = tuple(_damage(each) for each in found.problems_behind(stop) if each not in known)
        return self._made(commit, (start, behind), appended, removed)

    def _new(self, found: LogRanges, start: int) -> list[LogRange]:
        """The stretches that are new."""
        pieces = list(found.within(start, found.end if self._until is None else min(found.end, self._until)))
        if len(pieces) == 1 and pieces[0].is_last and not _is_followed(pieces[0]):
            return []
        return pieces

    def _append(self, pieces: Sequence[LogRange], shape: TableShape) -> "list[AppendedRange]":
        from spark_jobs.tables._append_task import AppendTask, append_range  # as above

        table, request = self._table, self._request
        columns = shape.columns
        if not table.keeps_partitions:
            columns = tuple(name for name in columns if name not in shape.partition_by)
        total = sum(each.size for each in pieces)
        layout = table.layout(shape)
        placed = table.begin()  # which refuses a place where nothing can be written: an engine may take long to start
        engine = self._engine()
        work = WorkDirectory.open(self._directory() / "append", {"command": PHASE})
        self._stack.callback(work.close)
        tasks = [
            AppendTask(
                name=f"{PHASE}-{each.base_offset + each.start:020d}",
                work=str(work.root),
                placed=placed,
                range=each,
                shape=shape,
                columns=columns,
                compression=request.compression,
                is_hidden=table.is_hidden,
                layout=layout,
            )
            for each in pieces
        ]
        return run_phase(engine.run_tasks, work, self._progress, Phase(PHASE, total, "bytes"), tasks, append_range)

    def _commit(
        self,
        found: LogRanges,
        shape: TableShape,
        begin: tuple[int, tuple[int, int] | None],
        ranges: "list[AppendedRange]",
    ) -> TableCommit | None:
        """Commit what the tasks have written; None where there was nothing new."""
        start, gap = begin
        stop = ranges[-1]["end"] if ranges else start
        if stop == start:
            return None
        files = [msgspec.convert(file, DataFile) for one in ranges for file in one["written"]]
        problems = [
            *found.problems_within(start, stop),
            *(Problem(**each) for one in ranges for each in one["problems"]),
        ]
        more = sum(each["more_problems"] for each in ranges) + max(len(problems) - MOST_DAMAGE, 0)
        record = RunRecord(
            command=PHASE,
            start=start,
            stop=stop,
            rows=sum(each.rows for each in files),
            bytes=sum(each.bytes for each in files),
            gap=gap,
            damage=tuple(problems[:MOST_DAMAGE]),
            more_damage=more,
            began_timestamp=self._began,
            ended_timestamp=_now(),
            host=this_process(),
        )
        commit = TableCommit(run="", shape=shape, position=position_at(found, stop), record=record)
        self._table.commit(files, commit)
        return commit

    def _keep_house(self, day: date | None) -> int:
        """Drop and put together as asked for; how many files are no more."""
        removed = 0
        for change in (
            *([partial(self._table.drop_before, day)] if day is not None else []),
            *([partial(self._table.compact, self._request.compact_bytes)] if self._request.compact_bytes else []),
        ):
            if self._table.last() is None:
                break  # nothing was ever appended
            made = change()
            removed += 0 if made is None else made.record.removed_files
        return removed

    def _made(
        self,
        commit: TableCommit | None,
        ends: tuple[int, tuple[Damage, ...]],
        ranges: "list[AppendedRange]",
        removed: int,
    ) -> Report[TableDetails]:
        start, behind = ends
        record = None if commit is None else commit.record
        gap = None if record is None else record.gap
        damages = [] if record is None else [_damage(each) for each in record.damage]
        if gap is not None:
            lost = Damage(
                self._request.store, gap[0], gap[1] - gap[0], "messages since the last run", "expired segments"
            )
            damages.insert(0, lost)
        seconds = time.monotonic() - self._started
        return Report(
            command="export",
            store=self._request.store,
            out=self._request.table,
            bytes=sum(each["log_bytes"] for each in ranges),
            messages=sum(each["records"] for each in ranges),
            seconds=seconds,
            steady_seconds=seconds,
            details=TableDetails(
                format=self._request.format,
                start=start,
                stop=start if record is None else record.stop,
                files=sum(len(each["written"]) for each in ranges),
                file_bytes=0 if record is None else record.bytes,
                engine=SPARK if self._request.is_on_spark else LOCAL,
                is_empty=commit is None,
                gap=gap,
                removed_files=removed,
                behind=behind,
            ),
            damages=damages,
            more_damages=0 if record is None else record.more_damage,
            notes=[
                *self._unread,
                *BodyCounts.total(each["bodies"] for each in ranges).sentences(),
                *hidden_notes(sum(each.get("hidden_whole", 0) for each in ranges)),
            ],
        )

    def _run_all(self, tasks: Sequence[Task], function: Callable[[Task], Result]) -> list[Result]:
        """Run tasks that have no progress to show."""
        return self._engine().run_tasks("compact", tasks, function)

    def _engine(self) -> Engine:
        """The engine, which is started once in a run."""
        if self._opened is None:
            opened = opened_engine(
                "export", self._request, self._directory(),
                ahead=self._ahead, tasks="spark_jobs.tables._append_task", notify=self._progress.note,
            )  # fmt: skip
            self._opened = self._stack.enter_context(opened)
        return self._opened

    def _directory(self) -> Path:
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix=COPIES)))


def shape_of(request: TableRequest, last: TableCommit | None) -> TableShape:
    """What the rows are from this run on; raises ConfigError where they would not be those of the table.

    A begin that moves stays where the first run began, and bodies are unpacked or not as in the first run where nothing
    is said. Columns may come, and none may go. A release with more columns than the one before it adds them by itself.
    """
    asked = request.shape
    if last is None:
        return asked
    if not request.since_last:
        raise ConfigError(
            f"--to {request.table}: there is a table already: --since-last appends what came since, or choose another"
        )
    known = last.shape
    if request.begin_moves and known.begin is not None:
        asked = msgspec.structs.replace(asked, begin=known.begin)
    if request.unpack is None or asked.content == known.content:
        asked = msgspec.structs.replace(asked, unpack=known.unpack)
    for name in TableShape.__struct_fields__:
        if name != "columns" and getattr(asked, name) != getattr(known, name):
            made, this = (_typed(name, getattr(each, name)) for each in (known, asked))
            raise ConfigError(f"--to {request.table}: the table was made {made}, and this run is {this}")
    gone = [name for name in known.columns if name not in asked.columns]
    if gone:
        raise ConfigError(f"--to {request.table}: the table has a column {gone[0]}: name it in --columns too")
    come = tuple(name for name in asked.columns if name not in known.columns)
    return msgspec.structs.replace(asked, columns=known.columns + come)


def _typed(name: str, value: Any) -> str:
    """A field of a shape as it is typed: with which option, or without it."""
    flag = OPTIONS[name]
    if name == "unpack":
        return f"with {flag if value else NO_UNPACK}"
    if value in (None, "", ()):
        return f"without {flag}"
    if name in ("begin", "end"):
        return f"with {flag} {format_timestamp(value)}"
    if name == "partition_by":
        value = ",".join(value)
    return "with " + " ".join(f"{flag} {shlex.quote(each)}" for each in ((value,) if isinstance(value, str) else value))


def _where_to_begin(
    request: TableRequest, found: LogRanges, last: TableCommit | None
) -> tuple[int, tuple[int, int] | None]:
    """The physical offset to read from, and the bytes before it that have expired; raises ConfigError."""
    if last is None:
        return found.minimum, None
    at = last.position.physical_offset
    check_log(found, last.position, request.table)
    return (found.minimum, (at, found.minimum)) if at < found.minimum else (at, None)


def _is_followed(rest: LogRange) -> bool:
    """Whether anything is written at the start of a stretch."""
    source = rest.source()
    head = bytearray(min(_WRITTEN_BYTES, rest.size))
    try:
        source.read_into(memoryview(head), rest.start)
    finally:
        source.close()
    return any(head)


def _damage(problem: Problem) -> Damage:
    return Damage(problem.path, problem.physical_offset, problem.length, "an intact record", problem.reason)


def _now() -> int:
    return round(time.time() * 1000)
