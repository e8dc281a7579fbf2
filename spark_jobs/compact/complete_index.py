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
from spark_jobs.build.place_entries import EntryBlock, PlacedFile
from spark_jobs.compact.merge_entries import MergeSummary
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
    return [IndexHole(first, last) for summary in merges for first, last in summary["left_out"]]


def stretches_lost(merges: Sequence[MergeSummary], segments: Sequence[SegmentPlace]) -> list[IndexHole]:
    """Where entries were dropped whose records may turn up again, or whose places were written anew.

    That is, where they pointed at no record, or into a segment that is missing; if that is a long one, the distance
    between entries shows it.
    """
    holes = [IndexHole(first, last) for summary in merges for first, last in summary["lost"]]
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


def complete_files(placed: Sequence[PlacedFile]) -> list[bool]:
    """Whether each of the files that are going to be built has its stretch of the log for itself.

    That is, if a block may be cut where two files share it, which is for who reads the block to say.
    """
    spans = [_span(file) for file in placed]
    blocks = {(piece.block.path, piece.block.position): piece.block for file in placed for piece in file.pieces}
    firsts = sorted(block.first for block in blocks.values())
    ends = sorted(block.end for block in blocks.values())
    return [
        span is not None
        and bisect_left(firsts, span[1]) - bisect_right(ends, span[0]) == len(_blocks(file))
        and _ends_at_its_cuts(file)
        for file, span in zip(placed, spans, strict=True)
    ]


def holes_of(file: PlacedFile, holes: Sequence[IndexHole]) -> tuple[IndexHole, ...]:
    """Return the stretches that may lie within a file."""
    span = _span(file)
    return () if span is None else tuple(hole for hole in holes if hole.lies_within(*span))


def _blocks(file: PlacedFile) -> list[EntryBlock]:
    return [piece.block for piece in file.pieces]


def _span(file: PlacedFile) -> tuple[int, int] | None:
    """The stretch of the log, [from, to), that the blocks of a file are of; None for a file without entries."""
    if not file.pieces:
        return None
    return min(block.first for block in _blocks(file)), max(block.end for block in _blocks(file))


def _ends_at_its_cuts(file: PlacedFile) -> bool:
    """Whether a block that goes on in the file before comes first in the log too, and one that does behind it last."""
    blocks = _blocks(file)
    first, last = file.pieces[0], file.pieces[-1]
    if first.skip and any(block.first < first.block.end for block in blocks[1:]):
        return False
    goes_on = last.skip + last.count < last.block.entries
    return not (goes_on and any(block.end > last.block.first for block in blocks[:-1]))
