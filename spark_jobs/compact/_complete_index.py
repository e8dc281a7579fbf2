"""Decide which files of a compacted index hold every key of the records that they span, and may say so.

Where an index file covers the log, a server takes a key that is not in the file for one that no record has. A broker's
file covers the log between its first and its last entry. Between two files something may be missing, and after they
were merged that could not be seen any more. So it is checked before: the records from the end of one file to the begin
of the next are read, and their keys looked up in both. Distances above 8 MiB stay visible, unless files that prove
nothing (of topics that were left out, or not of this log) have entries there.

Entries that pointed at no record when they were dropped are such places too: the log there may be repaired, or was
written anew and never indexed.

A compacted file also has to have its stretch of the log for itself. Where the clock stepped back, several files share
one, and if any of them were lost, the others would not show it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from spark_jobs.build.build_index_file import IndexHole
from spark_jobs.build.place_entries import Ask, EntryBlock, PlacedFile
from spark_jobs.compact._merge_entries import MergeSummary
from spark_jobs.scan.probe_store import IndexFileFacts, LogReader, SegmentPlace
from storage.files.mapped_file import MappedFile
from storage.index.index_file import ENTRY_DTYPE
from storage.kernels.indexes import GAP_BYTES, INDEX_HEADER, SLOT_BYTES

ENTRIES_AT_ONCE = 1 << 20


class JointFile(msgspec.Struct, frozen=True, array_like=True):
    """An index file: entries 1 to `entries`, of which the first `compacted` lie slot by slot."""

    path: str
    slots: int
    entries: int
    compacted: int


class JointTask(msgspec.Struct, frozen=True):
    """Do files have every key of the records that start in [first, last], with `tags` those of tags too?"""

    segments: tuple[SegmentPlace, ...]
    files: tuple[JointFile, ...]
    first: int
    last: int
    tags: bool


def joint_tasks(
    directory: Path, segments: Sequence[SegmentPlace], checks: Sequence[IndexFileFacts], *, tags: bool
) -> list[JointTask]:
    """Make a task for each short space between complete parts of files; `checks` are what a probe says of the files."""
    tasks = []
    for first, last in _spaces(checks):
        if last - first <= GAP_BYTES:
            files = [
                JointFile(str(directory / check["name"]), check["slots"], check["entries"], check["compacted"])
                for check in checks
                if any(start <= last and stop >= first for start, stop in check.get("parts", ()))
            ]
            near = [place for place in segments if place.base_offset <= last]
            start = max((i for i, place in enumerate(near) if place.base_offset <= first), default=0)
            tasks.append(JointTask(tuple(near[start:]), tuple(files), first, last, tags))
    return tasks


def look_at_joint(task: JointTask) -> bool:
    """Whether no key is missing at a joint."""
    return not task.segments or _has_all_keys(task, LogReader(task.segments))


def _has_all_keys(task: JointTask, log: LogReader) -> bool:
    found = {entry for file in task.files for entry in _entries_between(file, task.first, task.last)}
    for key_hash, physical_offset in log.entries_from(max(task.first, log.minimum), tags=task.tags):
        if physical_offset > task.last:
            break
        if (key_hash, physical_offset) not in found:
            return False
    return True


def find_holes(checks: Sequence[IndexFileFacts], joints: Sequence[tuple[JointTask, bool]]) -> list[IndexHole]:
    """Where keys may be missing that no distance between entries would show; `joints` with what became of them."""
    holes = [IndexHole(task.first, task.last) for task, is_whole in joints if not is_whole]
    others = [check["range"] for check in checks if "range" in check and not check["parts"]]
    parts = _parts(checks)
    if not parts:
        return [*holes, *(IndexHole(first, last) for first, last in others)]
    spaces = [(first, last) for first, last in _spaces(checks) if last - first > GAP_BYTES]
    outside = [(-1, parts[0][0]), (max(stop for _, stop in parts), 1 << 62)]
    for first, last in (*spaces, *outside):
        if any(start < last and stop > first for start, stop in others):
            holes.append(IndexHole(first, last))
    return holes


def stretches_left_out(merges: Sequence[MergeSummary]) -> list[IndexHole]:
    """The ranges where entries were dropped because the request left them out; `merges` are summaries."""
    return [IndexHole(*summary["left_out"]) for summary in merges if summary["left_out"]]


def stretches_lost(merges: Sequence[MergeSummary], segments: Sequence[SegmentPlace]) -> list[IndexHole]:
    """Where entries were dropped whose records may turn up again, or whose places were written anew.

    That is, where they pointed at no record, or into a segment that is missing; if that is a long one, the distance
    between entries shows it.
    """
    holes = [IndexHole(*summary["lost"]) for summary in merges if summary["lost"]]
    for before, place in pairwise(segments):
        end = before.base_offset + before.size
        if end < place.base_offset <= end + GAP_BYTES:
            holes.append(IndexHole(end, place.base_offset))
    return holes


def _parts(checks: Sequence[IndexFileFacts]) -> list[tuple[int, int]]:
    return sorted((start, stop) for check in checks for start, stop in check.get("parts", ()))


def _spaces(checks: Sequence[IndexFileFacts]) -> Iterator[tuple[int, int]]:
    """From the last record of what is complete to the first record of the next that is; they may be one."""
    reached = -1
    for start, stop in _parts(checks):
        if 0 <= reached <= start:
            yield reached, start
        reached = max(reached, stop)


def _entries_between(file: JointFile, first: int, last: int) -> Iterator[tuple[int, int]]:
    """(hash, physical offset) of the entries of the records that start in [first, last]."""
    view = MappedFile.open(Path(file.path)).view
    entries = np.frombuffer(view, ENTRY_DTYPE, file.entries + 1, INDEX_HEADER + SLOT_BYTES * file.slots)
    offsets = entries["physical_offset"]
    for start in range(1, file.compacted + 1, ENTRIES_AT_ONCE):
        stop = min(start + ENTRIES_AT_ONCE, file.compacted + 1)
        piece = offsets[start:stop]
        yield from _pairs(entries[start:stop][(piece >= first) & (piece <= last)])
    later = range(file.compacted + 1, file.entries + 1)
    low = bisect_left(later, first, key=offsets.__getitem__) + later.start
    high = bisect_right(later, last, key=offsets.__getitem__) + later.start
    yield from _pairs(entries[low:high])


def _pairs(entries: np.ndarray) -> Iterator[tuple[int, int]]:
    return zip(entries["key_hash"].tolist(), entries["physical_offset"].tolist(), strict=True)


class BlockSpans(msgspec.Struct, frozen=True):
    """Of all blocks of some tables: their stretches of the log, [first, end), and how many entries lie before each."""

    first: np.ndarray
    end: np.ndarray
    before: np.ndarray
    """One more than there are blocks: the last number is that of all entries."""

    @classmethod
    def of(cls, tables: Sequence[EntryBlock], ask: Ask) -> "BlockSpans":
        """Read the tables where they are: 24 bytes a block."""
        spans = [np.frombuffer(data, np.int64).reshape(-1, 3) for data in ask([(each, read_spans) for each in tables])]
        rows = np.concatenate([np.empty((0, 3), np.int64), *spans])
        return cls(rows[:, 0], rows[:, 1], np.concatenate([[0], np.cumsum(rows[:, 2])]))


def read_spans(table: EntryBlock) -> bytes:
    """Of each block of a table three numbers of 64 bits: first, end, entries."""
    return np.array([(block.first, block.end, block.entries) for block in table.blocks()], np.int64).tobytes()


def complete_files(placed: Sequence[PlacedFile], blocks: BlockSpans | None) -> list[bool]:
    """Whether each of the files that are going to be built has its stretch of the log for itself.

    That is, if a block may be cut where two files share it, which is for who reads the block to say. The files have
    what the blocks hold one after the other; None where they lie in the order of the log: then every file has.
    """
    if blocks is None:
        return [bool(file.pieces) for file in placed]
    firsts, ends = np.sort(blocks.first), np.sort(blocks.end)
    complete, start = [], 0
    for file in placed:
        stop = start + file.entries
        complete.append(stop > start and _has_stretch_for_itself(blocks, firsts, ends, (start, stop)))
        start = stop
    return complete


def _has_stretch_for_itself(blocks: BlockSpans, firsts: np.ndarray, ends: np.ndarray, entries: tuple[int, int]) -> bool:
    """Whether no block but those that hold entries [start, stop) lies in their stretch, nor what goes on in others.

    `firsts` and `ends` are those of all blocks, sorted.
    """
    start, stop = entries
    low = int(np.searchsorted(blocks.before, start, side="right")) - 1
    high = int(np.searchsorted(blocks.before, stop))
    first, end = blocks.first[low:high], blocks.end[low:high]
    inside = np.searchsorted(firsts, end.max()) - np.searchsorted(ends, first.min(), side="right")
    if inside != high - low:
        return False
    # A block that goes on in the file before must come first in the log too, and one that does behind it last.
    begins_before, goes_on = blocks.before[low] < start, stop < blocks.before[high]
    if begins_before and np.any(first[1:] < end[0]):
        return False
    return not (goes_on and np.any(end[:-1] > first[-1]))


class HoleList:
    """Where keys are missing, to be looked up by files."""

    def __init__(self, holes: Sequence[IndexHole]) -> None:
        """In any order."""
        self._holes = holes
        self._first = np.array([hole.first for hole in holes], np.int64)
        self._last = np.array([hole.last for hole in holes], np.int64)

    def within(self, file: PlacedFile) -> tuple[IndexHole, ...]:
        """The stretches that may lie within a file."""
        if not file.pieces:
            return ()
        first, end = min(piece.block.first for piece in file.pieces), max(piece.block.end for piece in file.pieces)
        found = np.flatnonzero((self._first < end) & (self._last > first))
        return tuple(self._holes[number] for number in found.tolist())
