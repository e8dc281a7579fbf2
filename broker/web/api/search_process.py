"""A search in a process of its own, which can be killed at any moment.

It reads one :class:`Task` from stdin and writes its steps to stdout as they come, msgpack each with its length before.
Each step has a cursor behind it, so killing the process loses only the piece that it was at. It ends by itself when its
output is closed.
"""

import os
import selectors
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import msgspec

from broker.web.api.errors import ApiError
from broker.web.api.request_context import RequestContext
from protocol.errors import ConfigError, FilterSyntaxError, RocketLensError
from protocol.message import Message, decode_message
from storage.child_process import child_environment, child_ids, python_command
from storage.search import Criteria, ProgressReport, search
from storage.search.step import Step
from storage.store.message_store import MessageStore, StoreOptions

LENGTH: Final = struct.Struct(">I")
START_MILLISECONDS: Final = 12_000
"""How long the process may take until it has opened the store."""

LOOK_SECONDS: Final = 0.1
"""How often to look whether the client still waits."""


class Task(msgspec.Struct, frozen=True):
    """A search of a store, as it is sent to the process."""

    store: str
    commit_log_directories: tuple[str, ...]
    criteria: Criteria
    limit: int
    cursor: str | None
    exhaustive: bool


class ProcessReport(msgspec.Struct):
    """A step as it is sent back: where its messages are, and what their records hold; or why there is none."""

    records: list[tuple[int, bytes]] = []
    progress: tuple[int, int, int, float, int] = (0, 0, 0, 0.0, 0)
    cursor: str | None = None
    is_last: bool = False
    notes: tuple[str, ...] = ()
    problem: str | None = None
    is_store: bool = False
    """Whether the problem is in the store, and not in the criteria."""


@dataclass(frozen=True, slots=True)
class _Pipe:
    """The process's stdout, read without waiting longer than somebody waits for us."""

    context: RequestContext
    stream: IO[bytes]
    selector: selectors.BaseSelector

    def read(self, count: int) -> bytes | None:
        """So many bytes; None when the time is over or the process has ended. Raises `ClientGone`."""
        parts: list[bytes] = []
        while count:
            if self.context.is_time_up:
                return None
            if not self.selector.select(LOOK_SECONDS):
                continue
            part = os.read(self.stream.fileno(), count)
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def search_apart(context: RequestContext, task: Task, milliseconds: int) -> Iterator[Step]:
    """The steps of a search as far as they come in some time after the process has started; one at least.

    Raises `ConfigError` for criteria that cannot be, `ApiError` when not even one piece of the log was searched.
    """
    ids = child_ids()
    process = subprocess.Popen(
        python_command(f"from {__name__} import main; main()"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=child_environment(),
        user=ids.user, group=ids.group,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin as stream:
            stream.write(msgspec.msgpack.encode(task))
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            pipe = _Pipe(context, process.stdout, selector)
            context.allow(START_MILLISECONDS)
            if _read(pipe) is None:
                raise ApiError(503, "slow", "the process that searches did not start in time; ask again")
            context.allow(milliseconds)
            yield from _steps(pipe)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _steps(pipe: _Pipe) -> Iterator[Step]:
    count = 0
    while (report := _read(pipe)) is not None:
        count += 1
        messages = tuple(_message(offset, record) for offset, record in report.records)
        yield Step(messages, ProgressReport(*report.progress), report.cursor, report.is_last, report.notes)
        if report.is_last:
            return
    if not count:
        raise ApiError(
            503,
            "slow",
            ("the expression did not finish any piece of the log in time; make it simpler, or narrow the search"),
        )


def _read(pipe: _Pipe) -> ProcessReport | None:
    """The next report of the process; None when the time is over, or it has ended.

    Raises `ConfigError`, and `ApiError` for a store that cannot be searched.
    """
    head = pipe.read(LENGTH.size)
    data = None if head is None else pipe.read(LENGTH.unpack(head)[0])
    if data is None:
        return None
    report = msgspec.msgpack.decode(data, type=ProcessReport)
    if report.problem is not None:
        raise ApiError(503, "store_error", report.problem) if report.is_store else ConfigError(report.problem)
    return report


def _message(physical_offset: int, record: bytes) -> Message:
    return decode_message(record, physical_offset=physical_offset, check_crc=False)


def main() -> None:
    """Search as the task on stdin says."""
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Task)
    try:
        options = StoreOptions(
            commit_log_directories=tuple(map(Path, task.commit_log_directories)),
            scan_budget=0,
            check_budget=0,
            keeps_state=False,
        )
        store = MessageStore.open(task.store, options)
        _send(ProcessReport())
        for step in search(
            store, task.criteria, limit=task.limit, cursor=task.cursor, threads=1, exhaustive=task.exhaustive
        ):
            _send(_report_of(store, step))
    except (ConfigError, FilterSyntaxError) as error:
        _send(ProcessReport(problem=str(error)))
    except RocketLensError as error:
        _send(ProcessReport(problem=f"the store cannot be searched: {error}", is_store=True))


def _report_of(store: MessageStore, step: Step) -> ProcessReport:
    progress = step.progress
    numbers = (progress.searched_bytes, progress.total_bytes, progress.found, progress.seconds, progress.before_bytes)
    offsets = dict.fromkeys(message.physical_offset for message in step.messages)
    records = [(offset, bytes(store.damaged_record_at(offset) or b"")) for offset in offsets]
    return ProcessReport([each for each in records if each[1]], numbers, step.cursor, step.is_last, step.notes)


def _send(report: ProcessReport) -> None:
    data = msgspec.msgpack.encode(report)
    sys.stdout.buffer.write(LENGTH.pack(len(data)) + data)
    sys.stdout.buffer.flush()
