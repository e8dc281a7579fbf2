"""The tasks that let what points into a log point to the new places of its records, once all of them are known.

They are the commits whose half messages lie in other segments, and the units of `timerlog/`.
"""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NotRequired

import msgspec
import numpy as np

from protocol.errors import StoreError
from spark_jobs.build.moved_log import NOWHERE, MovedLog
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, is_made, run_attempt
from spark_jobs.run.blocks import Block, read_block
from spark_jobs.run.work_directory import WorkDirectory, write_whole
from storage.files.kept_files import first_data
from storage.files.mapped_file import list_segment_files, open_read_only
from storage.kernels.moving import mend_record
from storage.kernels.records import MINIMUM_SIZE, TOTAL_SIZE
from storage.layout.timer_log import TIMER_LOG, TIMER_UNIT, TIMER_UNIT_DTYPE, are_units, has_timers

PHASE: Final = "relate"
UNITS_AT_ONCE: Final = 1 << 18
_SIZE_BYTES: Final = 4


class LinkTask(msgspec.Struct, frozen=True):
    """A new segment with commits whose half messages are elsewhere, and the file of blocks that lists them.

    `moved` is the path of a file that holds a MovedLog; `modified_ns` is when the old segment was written last, -1
    where that is not known.
    """

    work: str
    base_offset: int
    segment: str
    links: str
    moved: str
    modified_ns: int

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-links-{self.base_offset:020d}"


class TimerTask(msgspec.Struct, frozen=True):
    """A file of `timerlog/`, and where it goes in the end; `moved` is the path of a file that holds a MovedLog."""

    work: str
    path: str
    out: str
    moved: str

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-timers-{Path(self.path).name}"


class Related(AttemptRecord):
    """How many commits or units of a timer point to new places, and how many to nothing that the log has.

    `segment` names the attempt that made the segment of these commits: one that is made again has to be mended again.
    """

    found: int
    lost: int
    segment: NotRequired[str]


def timer_tasks(root: Path, work: WorkDirectory, moved: str) -> Iterator[TimerTask]:
    """A task for each file of a store's timer; `moved` is the path of a file that holds a MovedLog."""
    if not has_timers(root):
        return
    staged = work.staged / TIMER_LOG
    staged.mkdir(exist_ok=True)
    for _, path in list_segment_files(root / TIMER_LOG)[0]:
        yield TimerTask(str(work.root), str(path), str(staged / path.name), moved)


def relate(task: LinkTask | TimerTask) -> Related:
    """Run a task of either kind."""
    record: Related
    if isinstance(task, LinkTask):
        record = run_attempt(task.work, task.name, partial(_link, task), partial(_is_of_segment, task))
    else:
        record = run_attempt(task.work, task.name, partial(_move_timers, task), partial(_is_whole, task))
    return record


def read_moved(path: str) -> MovedLog:
    """The MovedLog that the driver has left in a file."""
    return msgspec.msgpack.decode(Path(path).read_bytes(), type=MovedLog)


def _link(task: LinkTask, _: Attempt, notify: Notify) -> Related:
    """Write the new offsets into the records where they lie; each attempt writes the same bytes.

    The offset of a half message that the log has not is -1, which no record has.
    """
    moved = read_moved(task.moved)
    found = lost = 0
    descriptor = os.open(task.segment, os.O_RDWR | os.O_CLOEXEC)
    try:
        for block in _blocks(Path(task.links)):
            offsets = moved.new_offsets(block.columns["halves"].astype(np.int64))
            for position, half in zip(block.columns["positions"].tolist(), offsets.tolist(), strict=True):
                _mend(descriptor, position, half)
            lost += int((offsets == NOWHERE).sum())
            found += int((offsets != NOWHERE).sum())
            notify(found + lost, found + lost)
        if task.modified_ns >= 0:
            os.utime(descriptor, ns=(task.modified_ns, task.modified_ns))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return {"found": found, "lost": lost, "segment": Path(task.links).stem}


def _is_of_segment(task: LinkTask, _: WorkDirectory, done: Related) -> bool:
    return done.get("segment") == Path(task.links).stem


def _mend(descriptor: int, position: int, half: int) -> None:
    size = int.from_bytes(os.pread(descriptor, _SIZE_BYTES, position + TOTAL_SIZE), signed=True)
    record = bytearray(os.pread(descriptor, max(size, MINIMUM_SIZE), position))
    mend_record(record, 0, size, half)
    os.pwrite(descriptor, record, position)


def _blocks(path: Path) -> list[Block]:
    blocks, position, size = list[Block](), 0, path.stat().st_size
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while position < size:
            block, position = read_block(path, descriptor, position)
            blocks.append(block)
    finally:
        os.close(descriptor)
    return blocks


def _move_timers(task: TimerTask, attempt: Attempt, notify: Notify) -> Related:
    """Write the file with the new places of messages and nothing else changed; what was never written is a hole."""
    moved, source = read_moved(task.moved), Path(task.path)
    found = lost = position = 0
    descriptor = open_read_only(source)
    try:
        size = os.fstat(descriptor).st_size
        with attempt.partial.open("xb") as file:
            while position < size:
                # A hole stays one, however long it is; units are whole.
                position += (first_data(descriptor, position, size) - position) // TIMER_UNIT.size * TIMER_UNIT.size
                data = os.pread(descriptor, UNITS_AT_ONCE * TIMER_UNIT.size, position)
                if not data:
                    break
                units = np.frombuffer(bytearray(data), TIMER_UNIT_DTYPE, len(data) // TIMER_UNIT.size)
                real = are_units(units)
                offsets = moved.new_offsets(units["physical_offset"][real].astype(np.int64))
                units["physical_offset"][real] = offsets
                if any(data):
                    file.seek(position)
                    file.write(units.tobytes() + data[units.nbytes :])
                lost += int((offsets == NOWHERE).sum())
                found += int((offsets != NOWHERE).sum())
                position += len(data)
                notify(position, found + lost)
            file.truncate(size)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(source, what=f"cannot be read, or not be written anew: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return {"found": found, "lost": lost}


def _is_whole(task: TimerTask, work: WorkDirectory, done: Related) -> bool:
    try:
        return is_made(work, done, task.out, os.stat(task.path).st_size)
    except OSError:
        return False


def leave_moved(work: WorkDirectory, moved: MovedLog) -> str:
    """Write where records are and were into the work directory, for :func:`read_moved`; the path."""
    path = work.root / "moved.msgpack"
    write_whole(path, msgspec.msgpack.encode(moved))
    return str(path)
