"""What a job that writes is going to do: what it reads and writes, disk and time that it takes, and the sizes chosen.

A plan is made in a second or two, without an engine: of the files' sizes, one index file, and the first records of a
few segments. It is shown before a job starts, and is all that `--dry-run` does; that of a rescue reads the log as well,
for what will be lost (:mod:`spark_jobs.convert.foresee`).
"""

import bisect
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import ConfigError
from protocol.system_topics import LIGHT_PREFIX
from spark_jobs.build.build_request import BuildRequest
from spark_jobs.build.kept_index import IndexShapeWanted, choose_shape
from spark_jobs.build.rebuild import plan_queues
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.compact.index_cost import index_cost
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.convert.foresee import RescueForecast
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.run.local_engine import cores
from spark_jobs.scan.probe_store import IndexFileFacts, LogReader, SegmentPlace, check_index_file
from spark_jobs.scan.segment_window import SegmentWindow
from spark_jobs.scan.source import StoreSource
from storage.amounts import bytes_text, count_text, counted, duration_text
from storage.build.dispatch_scan import DispatchOptions, DispatchScan
from storage.build.queue_plan import QueuePlan
from storage.files.kept_files import can_share_blocks
from storage.kernels.indexes import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.queue.consume_queue import UNIT

SAMPLED_SEGMENTS: Final = 3
SAMPLED_BYTES: Final = 1024 * 1024
LOOK_BYTES: Final = 4096
"""What is read in each look for the end of a segment that is not full."""
LOOKED_AT: Final = 3
"""Index files that are read, from the newest on, until one shows its counts and whether it has entries of tags."""

START_SECONDS: Final = {False: 1, True: 10}
"""By whether Spark starts."""
READ_RATE: Final = 500_000_000
"""Bytes of log a second and core, where the disk delivers as many; from memory it is several times as fast."""
BUILD_RATE: Final = 8_000_000
"""Index entries or queue units a second and core."""
COPY_RATE: Final = 1_500_000_000
"""Bytes of log that are copied a second, where the disk takes as many."""
BLOCK_BYTES: Final = 35
"""Bytes of packed blocks in the work directory for a message, and `ENTRY_BLOCK_BYTES` for each of its entries."""
ENTRY_BLOCK_BYTES: Final = 4


class JobPlan(msgspec.Struct, kw_only=True, rename="camel"):
    """What a job is going to do. Bytes, numbers and seconds are estimates but for `free_bytes`.

    `index_files` is the number of those that are read in the place of the log. `chosen` are sentences: each size or
    kind that was chosen, and why. `seconds` is None on a cluster. `outlook`: of a rescue, what it will keep and lose.
    """

    command: str
    store: str
    out: str
    segments: int
    index_files: int
    read_bytes: int
    messages: int
    entries: int
    units: int
    written_bytes: int
    work: str
    work_bytes: int
    free_bytes: int
    seconds: float | None
    is_live: bool
    chosen: list[str]
    outlook: RescueForecast | None = None

    @property
    def replaces(self) -> bool:
        """Whether files of the store are replaced."""
        return self.out == self.store


def make_plan(command: str, request: BuildRequest, source: StoreSource) -> JobPlan:
    """Plan a job; raises what the job would raise for a store or options with which it cannot start."""
    chosen: list[str] = []
    makes_index = not isinstance(request, RebuildRequest) or request.index
    makes_queues = isinstance(request, RebuildRequest) and request.queues
    shape = _choose_index(request, source, chosen) if makes_index else None
    by_index = isinstance(request, CompactRequest) and not request.from_log
    used = [place.size for place in source.segments]
    if used:  # a broker makes a file as long as it will be, and the next one in advance
        used[-2:] = [_used_bytes(place) for place in source.segments[-2:]]
    messages, entries = _estimate(source, used, tags=shape is None or shape.tags)
    read = sum(used)
    if by_index:
        read, entries = _size_of_index(source)
    entries = entries if makes_index else 0
    units = messages if makes_queues else 0
    if isinstance(request, RebuildRequest) and request.queues:
        _choose_queues(request, plan_queues(request, source.layout.root), chosen)
    chosen += _absent_topics(request)
    written = UNIT.size * units
    if shape is not None:
        files = math.ceil(entries / max(shape.capacity - 1, 1))
        written += files * (INDEX_HEADER + SLOT_BYTES * shape.slots) + ENTRY_BYTES * entries
    work = Path(tempfile.gettempdir()) if request.sent_to is not None and request.work is None else request.work_base
    copied = _copied_bytes(request, source, read, _existing(work)) if isinstance(request, ConvertRequest) else 0
    written += copied
    blocks = (0 if by_index else BLOCK_BYTES * messages) + ENTRY_BLOCK_BYTES * entries
    return JobPlan(
        command=command,
        store=request.store,
        out=request.target,
        segments=len(source.segments),
        index_files=len(source.index_files) if by_index else 0,
        read_bytes=read,
        messages=messages,
        entries=entries,
        units=units,
        written_bytes=written,
        work=str(work),
        work_bytes=written + blocks,
        free_bytes=_free(work),
        seconds=_seconds(request, read, entries + units, copied, len(source.segments)),
        is_live=source.is_live,
        chosen=chosen,
    )


def _absent_topics(request: BuildRequest) -> Iterator[str]:
    """Sentences about topics that a request names and the store does not have; the log may have messages of them."""
    if not (isinstance(request, RebuildRequest | CompactRequest) and request.topics):
        return
    from spark_jobs.read.absent_topics import absent_topics  # opens the store, which few jobs need

    named = (topic for topic in request.topics if not topic.startswith(LIGHT_PREFIX))
    for absence in absent_topics(request.store, request.commit_log_directories, request.storage, named):
        yield str(absence)


def plan_lines(plan: JobPlan) -> Iterator[str]:
    """Line by line, for a person."""
    what = [text for text, count in (
        (f"about {counted(plan.entries, 'index entry')}", plan.entries),
        (f"about {counted(plan.units, 'queue unit')}", plan.units),
    ) if count]  # fmt: skip
    read_from = counted(plan.segments, "segment")
    if plan.index_files:
        read_from = f"{counted(plan.index_files, 'index file')}, and the messages that they lead to"
    yield (
        f"plan: {plan.command} {plan.store}: reads {bytes_text(plan.read_bytes)} of "
        f"{read_from}, writes {' and '.join(what) or 'nothing'}, "
        f"about {bytes_text(plan.written_bytes)}"
    )
    if plan.replaces:
        yield "plan: replaces the store's own directories in one step each, and keeps the old ones as NAME.bak-TIME"
        if plan.is_live:
            yield "plan: a broker runs on the store: it has to be stopped first, or give --out DIR"
    else:
        yield f"plan: writes into {plan.out}; the store stays as it is"
    room = f"plan: disk: about {bytes_text(plan.work_bytes)} at {plan.work}, of {bytes_text(plan.free_bytes)} free"
    yield room + ("; that is NOT ENOUGH" if plan.work_bytes > plan.free_bytes else "")
    if plan.seconds is None:
        yield "plan: time: depends on the cluster"
    else:
        yield f"plan: time: about {duration_text(round(plan.seconds))}, longer where the disk is slow or others use it"
    yield from (f"plan: {sentence}" for sentence in plan.chosen)
    if plan.outlook is not None:
        yield from (f"plan: {sentence}" for sentence in plan.outlook.sentences())


def _choose_index(request: BuildRequest, source: StoreSource, chosen: list[str]) -> IndexShapeWanted:
    """Counts of index files as the job is going to choose them, with why."""
    facts: list[IndexFileFacts] = []
    names = [] if source.tree is not None else list(reversed(source.index_files))[:LOOKED_AT]
    for name in names:
        path = source.layout.index / name
        facts.insert(0, check_index_file(path, LogReader(source.segments), request.slots or 0))
        if "slots" in facts[0] and facts[0].get("has_tags") is not None:
            break
    shape = choose_shape(facts, profile=request.profile, slots=request.slots, capacity=request.entries)
    size = INDEX_HEADER + SLOT_BYTES * shape.slots + ENTRY_BYTES * shape.capacity
    files = f"index files of {count_text(shape.slots)} slots and {count_text(shape.capacity)} entries"
    readable = [each["name"] for each in facts if "slots" in each]
    if request.slots and request.entries:
        why = "as asked for"
    elif readable:
        why = f"as {readable[-1]} has"
    elif source.tree is not None:
        why = "a broker's defaults unless the index files at the URL, which the job reads, have others"
    else:
        why = (
            "a broker's defaults (guessed: no index file is left that shows its own; --slots and --entries give the "
            "broker's maxHashSlotNum and maxIndexNum)"
        )
    chosen.append(f"{files}, {bytes_text(size)} each whatever it holds: {why}")
    chosen.append(f"profile {shape.profile}: {_why_profile(request, facts)}")
    return shape


def _why_profile(request: BuildRequest, facts: list[IndexFileFacts]) -> str:
    if request.profile != "auto":
        return "as asked for"
    named = [each["name"] for each in facts if each.get("has_tags") is not None]
    if named:
        return f"as {named[-1]} was written"
    return "a broker's from 5.4 on (guessed: no index file shows it; --profile gives another)"


def _choose_queues(request: RebuildRequest, plan: QueuePlan, chosen: list[str]) -> None:
    asked = {CONSUME_QUEUE: request.queue_file_size, BATCH_CONSUME_QUEUE: request.batch_queue_file_size}
    for tree, size in plan.file_sizes.items():
        if tree not in asked or (tree == BATCH_CONSUME_QUEUE and not plan.batch_topics):
            continue
        if any(tree in guess for guess in plan.guesses):
            continue  # the guess says it
        if asked[tree]:
            why = "as asked for"
        elif any(key.tree == tree for key in plan.existing):
            why = "as most of the store's files have"
        else:
            option = "--queue-file-size" if tree == CONSUME_QUEUE else "--batch-queue-file-size"
            why = f"a broker's default (guessed: no file of {tree} is left; {option} gives another)"
        chosen.append(f"files of {count_text(size)} bytes in {tree}: {why}")
    chosen += plan.guesses


def _used_bytes(place: SegmentPlace) -> int:
    """Bytes of a segment up to where nothing is written yet, by a few looks for zeros.

    How much the disk holds says less: a broker may reserve whole files, and file systems fill holes that are read.
    """
    if place.remote is not None:
        return place.size
    try:
        with open(place.path, "rb", buffering=0) as file:
            blocks = range(math.ceil(place.size / LOOK_BYTES))
            return min(place.size, LOOK_BYTES * bisect.bisect_left(blocks, True, key=partial(_is_zero, file.fileno())))
    except OSError:  # a running broker deletes the oldest ones
        return 0


def _is_zero(descriptor: int, block: int) -> bool:
    """Whether nothing is written in one of a file's blocks of `LOOK_BYTES`."""
    return not any(os.pread(descriptor, LOOK_BYTES, LOOK_BYTES * block))


def _estimate(source: StoreSource, used: list[int], *, tags: bool) -> tuple[int, int]:
    """Messages and index entries of the log, by the first records of a few segments."""
    places = source.segments
    numbers = sorted({len(places) * part // SAMPLED_SEGMENTS for part in range(SAMPLED_SEGMENTS)})
    size = records = entries = 0
    for number in numbers:
        place = places[number]
        with SegmentWindow(place.path, place.base_offset, place.remote, SAMPLED_BYTES) as window:
            window.show(0, min(SAMPLED_BYTES, window.size))
            at = window.record_start(0) - window.start
            scan = DispatchScan(DispatchOptions(tags=tags, units=False))
            scan.run(window.region, at, window.filled, window.base_offset + window.start, 0, window.filled)
            block = scan.take()
        size += block.end_offset - block.first_offset
        records += block.records
        entries += int(block.record_entries.sum())
    if not size:
        return 0, 0
    share = sum(used) / size
    return round(records * share), round(entries * share)


def _size_of_index(source: StoreSource) -> tuple[int, int]:
    """Bytes and entries of the index files that there are, by their headers; behind a URL by their sizes."""
    if source.tree is not None:
        remote = (source.index_file(name)[1] for name in source.index_files)
        size = sum(each.size for each in remote if each is not None)
        return size, size // ENTRY_BYTES
    cost = index_cost(source.layout.index)
    return cost.bytes, cost.entries


def _copied_bytes(request: ConvertRequest, source: StoreSource, read: int, work: Path) -> int:
    """Bytes of the log that the new store does not have in common with the old one."""
    if not isinstance(request, RescueRequest):
        return read
    last = source.segments[-1]
    if request.link:
        return last.size
    return 0 if can_share_blocks(Path(last.path), work) else read


def refuse_without_room(plan: JobPlan) -> None:
    """Raise ConfigError, with how much is missing, where a job would fill the disk."""
    if plan.work_bytes > plan.free_bytes:
        raise ConfigError(
            f"the disk is too small: this takes about {bytes_text(plan.work_bytes)} at {plan.work}, where "
            f"{bytes_text(plan.free_bytes)} are free: about {bytes_text(plan.work_bytes - plan.free_bytes)} are "
            "missing. Give --out a place with more room; with --link sound segments are not copied"
        )


def _existing(path: Path) -> Path:
    """The directory that is there, of those that lead to a path."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _free(path: Path) -> int:
    return shutil.disk_usage(_existing(path)).free


def _seconds(request: BuildRequest, read: int, built: int, copied: int, segments: int) -> float | None:
    if request.works_elsewhere:
        return None
    at_once = cores()
    return (
        START_SECONDS[request.is_on_spark]
        + read / (READ_RATE * min(at_once, segments))
        + built / (BUILD_RATE * at_once)
        + copied / COPY_RATE
    )
