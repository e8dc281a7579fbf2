"""The task that makes one segment of a mended log: the old bytes in their places, and fillers where nothing is sound.

A sound segment is copied, by reference where the file system can, or gets a second name if that was asked for. What is
damaged is overwritten in the copy (:mod:`storage.log.fillers`), a file that was cut gets its size back, and a segment
that is missing is made of fillers alone. The old file is only read.
"""

import os
import stat
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, is_made, run_attempt
from spark_jobs.run.work_directory import WorkDirectory
from storage.files.kept_files import copy_kept, copy_range, first_data, link_kept
from storage.files.mapped_file import MappedFile
from storage.files.own_directories import HeldDirectory, new_file
from storage.kernels.records import MINIMUM_SIZE, store_timestamp
from storage.kernels.region import Region
from storage.log.damaged_ranges import find_damaged_ranges
from storage.log.fillers import can_be_filled, fill

PHASE: Final = "mend"
_ZEROS: Final = bytes(1 << 20)
_HEAD_BYTES: Final = MINIMUM_SIZE + 24
"""As much of a record as its store time lies in, whatever addresses it has."""


class TakenRange(NamedTuple):
    """Physical offsets [start, stop) whose bytes lie in a file of ours, the first byte of which is that of `base`."""

    start: int
    stop: int
    path: str
    base: int


class MendTask(msgspec.Struct, frozen=True):
    """The segment to read, `path` empty for one that is missing, and the one to write, `out` in the end.

    `fills` are the ranges of physical offsets without a sound record, `taken` those whose bytes are there, `end` is the
    physical offset behind which nothing is to be left; from `unlisted` on there is damage besides (-1: none). `near`
    is the store time (ms) of the segment's last record, or of one beside a segment that has none. `modified_ns` is when
    the old file was written last. `links`: give it a second name.
    """

    work: str
    path: str
    base_offset: int
    out: str
    size: int
    fills: tuple[tuple[int, int], ...]
    end: int
    unlisted: int
    near: int
    modified_ns: int
    links: bool
    taken: tuple[TakenRange, ...] = ()
    phase: str = PHASE

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{self.phase}-{self.base_offset:020d}"

    @property
    def boundary(self) -> int:
        """The physical offset at which the next segment starts."""
        return self.base_offset + self.size


class MendedSegment(AttemptRecord):
    """A mended segment: `filled` bytes at `places` places; `left` are places where nothing fits; if it is a link."""

    filled: int
    places: int
    left: list[int]
    linked: bool


def mend_segment(task: MendTask) -> MendedSegment:
    """Write one segment and fsync it; its place it gets by :func:`spark_jobs.run.attempt.take_made`."""
    record: MendedSegment = run_attempt(task.work, task.name, partial(_mend, task), partial(_is_whole, task))
    return record


def _mend(task: MendTask, attempt: Attempt, notify: Notify) -> MendedSegment:
    done: MendedSegment = {"filled": 0, "places": 0, "left": [], "linked": False}
    if not _bring(task, attempt.partial):
        descriptor = os.open(attempt.partial, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, task.size)
            _clear(descriptor, task.end - task.base_offset, task.size)
            for taken in task.taken:
                _take(task, descriptor, taken)
            for start, stop in task.fills:
                _fill(task, descriptor, start, stop, done)
            if task.unlisted >= 0:
                _fill_unlisted(task, attempt.partial, descriptor, done)
            os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) | stat.S_IRUSR | stat.S_IWUSR)
            os.utime(descriptor, ns=(task.modified_ns, task.modified_ns))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    else:
        done["linked"] = True
    notify(task.size, 0)
    return done


def _bring(task: MendTask, target: Path) -> bool:
    """Make the file, a copy or an empty one; whether it is the old file under a second name, which stays as it is."""
    if not task.path:
        new_file(target).close()
        return False
    path = Path(task.path)
    with HeldDirectory.open(path.parent) as directory:
        if task.links and link_kept(directory, path.name, target):
            return True
        copy_kept(directory, path.name, target)
    os.chmod(target, stat.S_IMODE(os.lstat(target).st_mode) | stat.S_IRUSR | stat.S_IWUSR)
    return False


def _take(task: MendTask, descriptor: int, taken: TakenRange) -> None:
    """Put bytes into their place that were found elsewhere, and checked."""
    start, stop = max(taken.start, task.base_offset), min(taken.stop, task.boundary)
    source = os.open(taken.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        copy_range(source, descriptor, start - taken.base, stop - taken.base, start - task.base_offset)
    finally:
        os.close(source)


def _fill(task: MendTask, descriptor: int, start: int, stop: int, done: MendedSegment) -> None:
    if not can_be_filled(start, stop, task.boundary):
        done["left"].append(start)
        return
    base = task.base_offset
    timestamp = task.near if stop == task.boundary else store_time(descriptor, stop - base)
    _clear(descriptor, start - base, stop - base)
    for piece in fill(start, stop, base, task.boundary, timestamp or task.near):
        os.pwrite(descriptor, piece.data, piece.physical_offset - base)
    done["filled"] += stop - start
    done["places"] += 1


def _fill_unlisted(task: MendTask, path: Path, descriptor: int, done: MendedSegment) -> None:
    """Fill what a scan has counted and not listed."""
    file, base = MappedFile.open(path), task.base_offset
    stop = min(task.end, task.boundary) - base
    for damage in find_damaged_ranges(file, base, task.unlisted - base, stop, task.boundary):
        _fill(task, descriptor, damage.start, task.boundary if damage.stop - base >= stop else damage.stop, done)


def store_time(descriptor: int, position: int) -> int:
    """The store time (ms) of the record at a position of a segment, 0 where the file ends before that."""
    head = os.pread(descriptor, _HEAD_BYTES, position)
    return store_timestamp(Region(head), 0) if len(head) == _HEAD_BYTES else 0


def _clear(descriptor: int, start: int, stop: int) -> None:
    """Write zeros where there is anything else; holes stay holes."""
    while (start := max(start, first_data(descriptor, start, stop))) < stop:
        start += os.pwrite(descriptor, _ZEROS[: stop - start], start)


def _is_whole(task: MendTask, work: WorkDirectory, done: MendedSegment) -> bool:
    return is_made(work, done, task.out, task.size)
