"""Small questions about a store, asked by tasks before the scan: first records, ends of queues, the index there is.

They read a few kilobytes of each segment by blocks, and each index file once.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Required, TypedDict

import msgspec
import numpy as np

from protocol.errors import StoreError
from spark_jobs.places.remote_file import FETCHED_AT_ONCE, RemoteObject
from spark_jobs.places.remote_tree import local_copy
from spark_jobs.scan.segment_window import SegmentWindow
from storage.build.dispatch_scan import DispatchOptions, DispatchScan
from storage.files.mapped_file import MappedFile
from storage.index.index_file import DEFAULT_SLOTS, HEADER, IndexFile, determine_shape
from storage.index.index_mark import mark_of
from storage.index.index_probe import sampled_entries
from storage.kernels.indexes import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES
from storage.kernels.records import MAGIC
from storage.log.log_place import HEAD_BYTES
from storage.recovery.queue_ends import recovered_queues_end

FOLLOWING_BYTES: Final = 8 * 1024 * 1024
"""How far behind an index file's last record the next keyed one is looked for."""

GLANCE_BYTES: Final = 128 * 1024
"""Read at once of a segment behind a URL, of which mostly one record is wanted."""

Entries = list[tuple[int, int]]
"""(hash, physical offset) of entries in the order of putting."""


class SegmentPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a segment lies; `remote` is how it was listed, if its path is a URL."""

    base_offset: int
    size: int
    path: str
    remote: RemoteObject | None = None


class ProbeTask(msgspec.Struct, frozen=True):
    """What to ask: `heads`, `queues` (the root of the store) or `index_file`; the others are empty.

    `remote` is the index file as it was listed, if its path is a URL.
    """

    segments: tuple[SegmentPlace, ...]
    heads: bool = False
    queues: str = ""
    index_file: str = ""
    remote: RemoteObject | None = None
    slots: int = 0


class IndexFileFacts(TypedDict, total=False):
    """What :func:`check_index_file` says of an index file; of one that is none there is but its name and a problem.

    `problem` says why it cannot be kept, "" for nothing. `first` is its first entry (hash, physical offset), `last`
    the physical offset of its last entries, of which there are `last_entries`; `next` is the entry that the file
    behind it must begin with, None where nothing follows in the log. `has_tags`: whether it was written with entries
    of tags, None where no tag was seen. `parts` are stretches of the log, from one record to another one, between
    which it has every key, as far as its entries show; `tags` says whether the entry of each tag is among them.
    """

    name: Required[str]
    problem: Required[str]
    slots: int
    entries: int
    capacity: int
    header: list[int]
    first: list[int]
    last: int
    last_entries: int
    range: list[int]
    compacted: int
    has_tags: bool | None
    parts: list[list[int]]
    tags: bool
    next: list[int] | None


class StoreHeads(msgspec.Struct, frozen=True):
    """How the segments of a log begin: base offset and store time of the first record of each, 0 for none.

    `last_base` is the base offset of the last one to which anything was written; `first_entries` are the first entries
    (hash, physical offset) without and with those of tags.
    """

    heads: list[tuple[int, int]]
    last_base: int
    first_entries: tuple[tuple[int, int] | None, tuple[int, int] | None]


def probe(task: ProbeTask) -> StoreHeads | int | IndexFileFacts:
    """Answer one task: with StoreHeads, with where the queues end, or with what an index file is."""
    if task.heads:
        return _look_at_heads(task.segments)
    if task.queues:
        return recovered_queues_end(Path(task.queues))
    with local_copy(task.index_file, task.remote) as path:
        return check_index_file(path, LogReader(task.segments), task.slots)


def _look_at_heads(segments: tuple[SegmentPlace, ...]) -> StoreHeads:
    """Read the first record of each segment, and the first entries of the log."""
    log = LogReader(segments)
    tagless, tagged = (next(log.entries_from(log.minimum, tags=tags), None) for tags in (False, True))
    return StoreHeads(
        heads=_heads(segments),
        last_base=last_written(segments),
        first_entries=(tagless, tagged),
    )


def _heads(segments: tuple[SegmentPlace, ...]) -> list[tuple[int, int]]:
    """Base offset and store time of the first record of each segment; behind a URL several are asked for at a time."""
    if not any(place.remote for place in segments):
        return [(place.base_offset, _head_timestamp(place)) for place in segments]
    with ThreadPoolExecutor(FETCHED_AT_ONCE, "first records") as pool:
        return list(zip((place.base_offset for place in segments), pool.map(_head_timestamp, segments), strict=True))


def _head_timestamp(place: SegmentPlace) -> int:
    """Store time of the first record of a segment, 0 where there is no intact one."""
    with _opened(place) as window:
        start = 0 if window is None else window.record_start(0)
        return window.store_timestamp(start) if window is not None and window.intact_size(start) else 0


def last_written(segments: tuple[SegmentPlace, ...]) -> int:
    """Base offset of the last segment that does not begin with zeros, or holds a record nevertheless."""
    for place in reversed(segments[1:]):
        with _opened(place) as window:
            if window is None or (window.show(0, HEAD_BYTES) and (window.i32(0) or window.i32(MAGIC))):
                return place.base_offset
            if window.find_candidate(0) >= 0:
                return place.base_offset
    return segments[0].base_offset if segments else 0


@contextmanager
def _opened(place: SegmentPlace) -> Iterator[SegmentWindow | None]:
    """A segment, None where there is none any more: a running broker deletes the oldest ones."""
    if place.remote is not None:
        # Not closed, which would ask whether it has changed: the scan does that, and nothing is held open.
        yield SegmentWindow(place.path, place.base_offset, place.remote, GLANCE_BYTES)
        return
    try:
        window = SegmentWindow(place.path, place.base_offset)
    except StoreError:
        if os.path.exists(place.path):
            raise
        yield None
        return
    with window:
        yield window


class LogReader:
    """Records and their index entries, read from the log one by one."""

    def __init__(self, segments: Sequence[SegmentPlace]) -> None:
        """Read from these segments, sorted by base offset."""
        self._segments = segments
        self._kept: tuple[SegmentPlace, SegmentWindow] | None = None
        self.minimum = segments[0].base_offset if segments else 0

    def entries(self, physical_offset: int) -> tuple[Entries, Entries]:
        """The entries of the record at an offset, with those of tags and without; none where there is no record."""
        place = self._segment(physical_offset)
        if place is None:
            return [], []
        with self._opened(place) as window:
            if window is None:
                return [], []
            position = physical_offset - place.base_offset
            return _entries_at(window, position, tags=True), _entries_at(window, position, tags=False)

    def timestamp(self, physical_offset: int) -> int | None:
        """When the record at an offset was stored (ms), or None."""
        place = self._segment(physical_offset)
        if place is None:
            return None
        with self._opened(place) as window:
            position = physical_offset - place.base_offset
            return window.store_timestamp(position) if window is not None and window.show_record(position) else None

    def entries_from(self, physical_offset: int, *, tags: bool) -> Iterator[tuple[int, int]]:
        """Entries of the records from an offset on, up to `FOLLOWING_BYTES` behind it."""
        for place in self._segments:
            if place.base_offset + place.size <= physical_offset:
                continue
            if place.base_offset > physical_offset + FOLLOWING_BYTES:
                return
            with self._opened(place) as window:
                if window is None:
                    continue
                at = window.find_candidate(max(physical_offset - place.base_offset, 0))
                while 0 <= at < window.size:
                    yield from _entries_at(window, at, tags=tags)
                    at = window.find_candidate(at + 1)
                    if place.base_offset + at > physical_offset + FOLLOWING_BYTES:
                        return

    @contextmanager
    def _opened(self, place: SegmentPlace) -> Iterator[SegmentWindow | None]:
        """A segment; of those behind URLs the last one is kept, since mostly the next question is about it, too."""
        if self._kept is None or self._kept[0] is not place:
            with _opened(place) as window:
                if place.remote is None or window is None:
                    yield window
                    return
                self._kept = place, window
        yield self._kept[1]

    def _segment(self, physical_offset: int) -> SegmentPlace | None:
        for place in self._segments:
            if place.base_offset <= physical_offset < place.base_offset + place.size:
                return place
        return None


def _entries_at(window: SegmentWindow, position: int, *, tags: bool) -> Entries:
    if not window.show_record(position):
        return []
    scan = DispatchScan(DispatchOptions(tags=tags, units=False, records=1))
    at = position - window.start
    scan.run(window.region, at, window.filled, window.base_offset + window.start, 0, at + 1)
    block = scan.take()
    offsets = np.repeat(block.record_offsets.astype(np.int64) + block.first_offset, block.record_entries)
    return list(zip(block.hashes.tolist(), offsets.tolist(), strict=True))


def check_index_file(path: Path, log: LogReader, slots: int) -> IndexFileFacts:
    """Examine an index file: its counts, whether it is sound, full and of this log, and what must follow it."""
    try:
        file = MappedFile.open(path)
    except StoreError as error:
        return {"name": path.name, "problem": str(error)}
    shape = determine_shape(file, [slots] if slots else [DEFAULT_SLOTS])
    if shape is None or not shape.entries:
        problem = "no slot count reproduces its slots and pointers" if shape is None else "it has no entries"
        return {"name": path.name, "problem": problem}
    index = IndexFile(file, shape)
    room = file.size - INDEX_HEADER - SLOT_BYTES * shape.slots
    problem, has_tags = _hold_against_log(index, log)
    facts: IndexFileFacts = {
        "name": path.name,
        "slots": shape.slots,
        "entries": shape.entries,
        "capacity": room // ENTRY_BYTES,
        "header": list(HEADER.unpack_from(file.view, 0)),
        "first": [index.entry(1).key_hash, index.entry(1).physical_offset],
        "last": shape.maximum,
        "last_entries": _entries_at_end(index),
        "range": [shape.minimum, shape.maximum],
        "compacted": shape.compacted,
        "problem": problem,
        "has_tags": has_tags,
    }
    facts["parts"], facts["tags"] = _coverage(index, facts)
    facts["problem"] = facts["problem"] or _shape_problem(index, room) or _time_problem(index, log)
    if not facts["problem"]:
        facts["next"] = _next_entry(log, shape.maximum, facts["last_entries"], tags=facts["has_tags"] is not False)
    return facts


def _coverage(index: IndexFile, facts: IndexFileFacts) -> tuple[list[list[int]], bool]:
    """Return which parts of the log a file covers completely, and whether with entries of tags."""
    shape = index.shape
    mark = mark_of(index.file, shape.slots) if shape.compacted else None
    is_whole = mark.is_complete if mark is not None else shape.ascending
    starts = [shape.minimum, *(stop for _, stop in shape.gaps)]
    stops = [*(start for start, _ in shape.gaps), shape.maximum]
    parts = [list(part) for part in zip(starts, stops, strict=True)] if is_whole and not facts["problem"] else []
    return parts, facts["has_tags"] is not False and (mark is None or mark.has_tags)


def _shape_problem(index: IndexFile, room: int) -> str:
    """Why a file of sound slots and pointers cannot be kept, or nothing."""
    shape, header = index.shape, index.header
    if room % ENTRY_BYTES or room // ENTRY_BYTES != shape.entries + 1:
        return f"it is not full ({shape.entries} entries)"
    if shape.compacted:
        return "it is compacted"
    if not shape.ascending or shape.gaps:
        return "entries are missing between its first and its last one"
    first, last = index.entry(1).physical_offset, index.entry(shape.entries).physical_offset
    said = (header.begin_physical_offset, header.end_physical_offset, header.index_count)
    if said != (first, last, shape.entries + 1):
        return f"its header says {said}, its entries {(first, last, shape.entries + 1)}"
    return ""


def _time_problem(index: IndexFile, log: LogReader) -> str:
    """Whether the header's times are those of the first and the last entry's records, as far as these still exist."""
    header = index.header
    for what, offset, said in (
        ("begins", header.begin_physical_offset, header.begin_timestamp),
        ("ends", header.end_physical_offset, header.end_timestamp),
    ):
        stored = log.timestamp(offset) if offset >= log.minimum else None
        if stored is not None and stored != said:
            return f"its header says that it {what} at {said}, the record was stored at {stored}"
    return ""


def _entries_at_end(index: IndexFile) -> int:
    """How many of the last entries belong to the last record."""
    number = index.shape.entries
    while number > 1 and index.entry(number - 1).physical_offset == index.shape.maximum:
        number -= 1
    return index.shape.entries - number + 1


def _hold_against_log(index: IndexFile, log: LogReader) -> tuple[str, bool | None]:
    """Why sampled entries are not of this log ("": they are), and whether there are ones of tags (None: not seen)."""
    has_tags: bool | None = None
    for number in sampled_entries(index.shape.entries):  # as readers do: what they distrust is not kept
        entry = index.entry(number)
        if entry.physical_offset < log.minimum:
            continue
        all_entries, tagless = log.entries(entry.physical_offset)
        if (entry.key_hash, entry.physical_offset) not in all_entries:
            return f"its entry {number} belongs to no record of this log", has_tags
        if len(all_entries) > len(tagless) and index.shape.minimum < entry.physical_offset < index.shape.maximum:
            around = range(max(1, number - len(all_entries)), min(index.shape.entries, number + len(all_entries)) + 1)
            same = sum(index.entry(near).physical_offset == entry.physical_offset for near in around)
            has_tags = same >= len(all_entries) and has_tags is not False
    return "", has_tags


def _next_entry(log: LogReader, last: int, entries: int, *, tags: bool) -> list[int] | None:
    """The entry that a broker puts behind the `entries` ones of the record at `last`."""
    following = log.entries_from(max(last, log.minimum), tags=tags)
    skipped = 0
    for key_hash, physical_offset in following:
        if physical_offset == last and skipped < entries:
            skipped += 1
        else:
            return [key_hash, physical_offset]
    return None
