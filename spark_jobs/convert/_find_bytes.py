"""The task that looks in copies of a store for the bytes of holes in its log, and takes what fits.

What is taken lies in a file of ours before it is looked at: the copy may change meanwhile, and its owner may be
anybody. It fits where

- the records right in front of the hole and right behind it are the same in the copy, byte for byte,
- sound records, and the BLANK of each segment, fill the hole exactly: lengths, checksums, physical offsets, texts,
- each was stored when those beside the hole were, and
- in each queue their offsets ascend, and lie between those of the records that the log has of it before and behind;
  where it has none on one side, they adjoin the other.

Where damage begins in the topic or the properties of a record, which no checksum covers, that record counts as sound.
One with zeros there is taken anew with the hole behind it.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec
import numpy as np

from spark_jobs.build.unit_blocks import ScannedUnits, UnitList, queue_runs
from spark_jobs.convert._log_bytes import LogBytes
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.probe_store import SegmentPlace
from spark_jobs.scan.scan_segment import bundle_of
from storage.build.dispatch_scan import BATCH, DispatchBlock, DispatchOptions, DispatchScan, Reason
from storage.files.mapped_file import LARGEST_OFFSET, MappedFile
from storage.files.own_directories import new_file
from storage.kernels.records import check_shape, has_sane_texts, store_timestamp
from storage.kernels.region import Region
from storage.layout.store_layout import BATCH_CONSUME_QUEUE
from storage.log.damaged_ranges import reason_of
from storage.log.segment_end import BLANK_BYTES, TOLERATED_MS
from storage.queue.batch_consume_queue import UNIT as BATCH_UNIT
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from storage.queue.consume_queue import UNIT, UNIT_DTYPE

PHASE: Final = "compare"
MOST_REPLACED: Final = 16
"""Records in front of a hole that are taken anew with it."""

Name = tuple[bytes, int]
"""Topic as stored, and queue id."""


class Hole(msgspec.Struct, frozen=True, array_like=True):
    """Physical offsets [start, stop) without a sound record; the records in front of it end at `front` (−1: none)."""

    start: int
    stop: int
    front: int


class LogCopy(msgspec.Struct, frozen=True, array_like=True):
    """A store that may have what another one lacks: the path as it was given, and the segments of its log."""

    path: str
    places: tuple[SegmentPlace, ...]


class FindTask(msgspec.Struct, frozen=True):
    """Holes that start in the segment at `base_offset`, and where to look for their bytes.

    Of `places`, the damaged log, and of each copy there is what lies beside the holes. Segments start at `minimum` and
    have `size` bytes. `before` and `behind` are the units of this segment and those in front of it, or behind it.
    `options` are those of the scan.
    """

    work: str
    base_offset: int
    minimum: int
    size: int
    holes: tuple[Hole, ...]
    places: tuple[SegmentPlace, ...]
    copies: tuple[LogCopy, ...]
    before: UnitList
    behind: UnitList
    bundles: int
    delays: tuple[int, ...]
    lmq: bool
    batch_topics: tuple[bytes, ...]

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-{self.base_offset:020d}"


class FoundBytes(AttemptRecord):
    """Bytes found for holes: start, stop, number of the copy and messages of each; or its start, stop and reasons.

    A hole that was found may start earlier than it did. The messages are those that the log did not have. The bytes lie
    in the file of the attempt, from the one at the segment's base offset on.
    """

    found: list[tuple[int, int, int, int]]
    refused: list[tuple[int, int, list[str]]]


class DoesNotFit(Exception):
    """Why the bytes of a copy do not belong into a hole."""


class HoleBorders(NamedTuple):
    """The bytes in front of a hole and behind it, and when what was stored between them must have been (ms)."""

    front: bytes
    behind: bytes
    earliest: int
    latest: int


def find_bytes(task: FindTask) -> FoundBytes:
    """Look in the copies for the bytes of each hole; the first copy that fits counts."""
    record: FoundBytes = run_attempt(task.work, task.name, partial(_find, task), _is_there)
    return record


def _is_there(work: WorkDirectory, done: FoundBytes) -> bool:
    return (work.partial / done["attempt"]).exists()


def _find(task: FindTask, attempt: Attempt, notify: Notify) -> FoundBytes:
    done: FoundBytes = {"found": [], "refused": []}
    log, copies = LogBytes(task.places), [LogBytes(copy.places) for copy in task.copies]
    with new_file(attempt.partial) as file:
        os.ftruncate(file.fileno(), max(hole.stop for hole in task.holes) - task.base_offset)
        region = MappedFile.open(attempt.partial).region
        passed = 0
        for each in task.holes:
            hole, replaced = _widened(task, log, each)
            sides, reasons = _sides(log, hole), list[str]()
            for number, copy in enumerate(copies):
                try:
                    messages = _take(task, hole, sides, copy, file.fileno(), region)
                except DoesNotFit as refusal:
                    reasons.append(f"{task.copies[number].path} {refusal}")
                else:
                    done["found"].append((hole.start, hole.stop, number, messages - replaced))
                    break
            else:
                done["refused"].append((each.start, each.stop, reasons))
            passed += each.stop - each.start
            notify(passed, 0)
        os.fsync(file.fileno())
    return done


def _widened(task: FindTask, log: LogBytes, hole: Hole) -> tuple[Hole, int]:
    """A hole with the records right in front of it that have zeros in their texts, and how many these are."""
    for count in range(MOST_REPLACED + 1):
        record = log.record_before(hole.front) if hole.front == hole.start else b""
        start = hole.start - len(record)
        if not record or has_sane_texts(Region(record), 0, len(record)) or start < task.base_offset:
            return hole, count
        hole = Hole(start, hole.stop, start)
    return hole, count


def _sides(log: LogBytes, hole: Hole) -> HoleBorders:
    """What stands beside a hole: the record in front, with the BLANK that may follow it, and the one behind."""
    front = log.record_before(hole.front) if hole.front >= 0 else b""
    behind = log.record_at(hole.stop)
    times = sorted(store_timestamp(Region(record), 0) for record in (front, behind) if record) or [0]
    blank = log.read(hole.front, BLANK_BYTES) if front and hole.front < hole.start else b""
    return HoleBorders(front + blank, behind, times[0] - TOLERATED_MS, times[-1] + TOLERATED_MS)


def _take(task: FindTask, hole: Hole, sides: HoleBorders, copy: LogBytes, target: int, region: Region) -> int:
    """Take the bytes of a hole from a copy; how many messages they are. Raises DoesNotFit."""
    for side, where in ((sides.front, "in front of"), (sides.behind, "behind")):
        if not side:
            raise DoesNotFit(f"cannot be compared: no sound record stands {where} the hole")
    blank = BLANK_BYTES if hole.front < hole.start else 0
    try:
        for place, side in ((hole.front + blank - len(sides.front), sides.front), (hole.stop, sides.behind)):
            there = copy.read(place, len(side))
            if len(there) < len(side):
                raise DoesNotFit(f"has no bytes at physical offset {place + len(there)}")
            if there != side:
                differing = next(
                    number for number, pair in enumerate(zip(there, side, strict=True)) if len({*pair}) > 1
                )
                raise DoesNotFit(f"has another byte at physical offset {place + differing}, beside the hole")
        taken = copy.copy(hole.start, hole.stop, target, hole.start - task.base_offset)
    except OSError as error:
        raise DoesNotFit(f"cannot be read there: {error.strerror}") from error
    if taken < hole.stop:
        raise DoesNotFit(f"has no bytes at physical offset {taken}")
    messages, queues = 0, dict[Name, tuple[Numbers, Numbers]]()
    for block in _records(task, hole, sides, region):
        messages += block.records
        _note_numbers(queues, block)
    _check_numbers(task, hole, queues)
    return messages


def _records(task: FindTask, hole: Hole, sides: HoleBorders, region: Region) -> Iterator[DispatchBlock]:
    """What the records in a hole lead to; raises DoesNotFit where they do not fill it."""
    scan = DispatchScan(
        DispatchOptions(
            tags=False,
            checksums=True,
            delays=task.delays,
            lmq=task.lmq,
            batch_topics=task.batch_topics,
            entries=False,
        )
    )
    base, at = task.base_offset, hole.start
    while at < hole.stop:
        boundary = at + task.size - (at - task.minimum) % task.size
        limit = min(boundary, hole.stop)
        step = scan.run(region, at - base, limit - base, base, boundary, limit - base)
        reached = base + step.position
        _check_records(region, base, at, reached, sides)
        yield scan.take()
        if step.reason == Reason.BLANK:
            at = boundary
        elif step.reason == Reason.FULL or (step.reason == Reason.LIMIT and reached == limit):
            at = reached
        elif step.reason == Reason.ZERO:
            raise DoesNotFit(f"has zeros at physical offset {reached}")
        else:
            why = f": {reason_of(step.code)}" if step.reason == Reason.DAMAGE else " that ends in front of what follows"
            raise DoesNotFit(f"has no intact record at physical offset {reached}{why}")
    if at > hole.stop:
        raise DoesNotFit(f"closes its segment in front of physical offset {hole.stop}, where a record stands")


def _check_records(region: Region, base: int, at: int, stop: int, sides: HoleBorders) -> None:
    """Raise DoesNotFit for records in [at, stop) with a time or with texts that cannot be there."""
    while at < stop:
        size = check_shape(region, at - base, stop - base, at)
        if size <= 0:
            raise DoesNotFit(f"has no intact record at physical offset {at}")
        if not sides.earliest <= store_timestamp(region, at - base) <= sides.latest:
            raise DoesNotFit(f"has a message at physical offset {at} that was not stored when those beside it were")
        if not has_sane_texts(region, at - base, at - base + size):
            raise DoesNotFit(f"has zeros in the texts of the message at physical offset {at}")
        at += size


# --- queue offsets ----------------------------------------------------------------------------------------------------


class Numbers(NamedTuple):
    """Queue offsets [first, stop) of a queue, given to records one behind the other from a physical offset on."""

    physical_offset: int
    first: int
    stop: int


def _note_numbers(queues: dict[Name, tuple[Numbers, Numbers]], block: DispatchBlock) -> None:
    """Note the first and the last numbers of each queue; raises DoesNotFit where they do not ascend."""
    for queue, kind, first, count, position in block.runs.tolist():
        name, size = block.queues[queue], BATCH_UNIT.size if kind == BATCH else UNIT.size
        units = block.units[position : position + count * size].data
        for numbers in _numbers(units, first, is_batch=kind == BATCH):
            earliest, last = queues.get(name, (numbers, None))
            if last is not None and numbers.first < last.stop:
                _refuse_number(name, numbers)
            queues[name] = earliest, numbers


def _check_numbers(task: FindTask, hole: Hole, queues: Mapping[Name, tuple[Numbers, Numbers]]) -> None:
    """Raise DoesNotFit for queue offsets that are not those of the hole."""
    by_bundle: dict[int, set[Name]] = defaultdict(set)
    for name in queues:
        by_bundle[bundle_of(*name, task.bundles)].add(name)
    for bundle, names in by_bundle.items():
        before = _last_before(task.before.read(), bundle, names, hole.start)
        behind = _first_behind(task.behind.read(), bundle, names, hole.stop)
        for name in names:
            _check_queue(name, *queues[name], before.get(name), behind.get(name))


def _check_queue(name: Name, first: Numbers, last: Numbers, before: int | None, behind: int | None) -> None:
    """Raise DoesNotFit where the offsets of one queue do not go from `before` up to `behind`; None: not known."""
    if before is not None and (first.first < before or (behind is None and first.first != before)):
        _refuse_number(name, first)
    if behind is not None and (last.stop > behind or (before is None and last.stop != behind)):
        _refuse_number(name, last)


def _refuse_number(name: Name, numbers: Numbers) -> None:
    topic, queue_id = name
    raise DoesNotFit(
        f"has a message at physical offset {numbers.physical_offset} with queue offset {numbers.first} of "
        f"{topic.decode('utf-8', 'replace')} queue {queue_id}, which does not fit those beside it"
    )


def _numbers(units: memoryview, first: int, *, is_batch: bool) -> Iterator[Numbers]:
    """The numbers of the units of a run."""
    if not is_batch:
        offset = int(np.frombuffer(units[: UNIT.size], UNIT_DTYPE)["physical_offset"][0])
        yield Numbers(offset, first, first + len(units) // UNIT.size)
        return
    for unit in np.frombuffer(units, BATCH_UNIT_DTYPE):
        base = int(unit["base_offset"])
        yield Numbers(int(unit["physical_offset"]), base, base + int(unit["batch_size"]))


def _last_before(files: Sequence[ScannedUnits], bundle: int, names: set[Name], start: int) -> dict[Name, int]:
    """The queue offset behind the last record of each queue in front of a physical offset."""
    found: dict[Name, int] = {}
    for file in reversed(files):
        here: dict[Name, int] = {}
        for block in file.blocks(bundle, start):
            for run in queue_runs(block, start):
                if run.name in names and run.name not in found:
                    is_batch = run.key.tree == BATCH_CONSUME_QUEUE
                    here[run.name] = [each.stop for each in _numbers(run.units, run.first, is_batch=is_batch)][-1]
        found |= here
        if found.keys() >= names:
            break
    return found


def _first_behind(files: Sequence[ScannedUnits], bundle: int, names: set[Name], stop: int) -> dict[Name, int]:
    """The queue offset of the first record of each queue at or behind a physical offset."""
    found: dict[Name, int] = {}
    for file in files:
        for block in file.blocks(bundle, LARGEST_OFFSET):
            if block.header["range"][1] <= stop:
                continue
            for run in queue_runs(block, LARGEST_OFFSET):
                if run.name not in names or run.name in found:
                    continue
                is_batch = run.key.tree == BATCH_CONSUME_QUEUE
                units = np.frombuffer(run.units, BATCH_UNIT_DTYPE if is_batch else UNIT_DTYPE)
                behind = np.flatnonzero(units["physical_offset"] >= stop)
                if behind.size:
                    at = int(behind[0])
                    found[run.name] = int(units["base_offset"][at]) if is_batch else run.first + at
        if found.keys() >= names:
            break
    return found
