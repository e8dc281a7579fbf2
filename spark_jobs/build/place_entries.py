"""Decide by counting which entry goes into which index file, before any file is built.

The blocks of all segments, in order, hold the entries in the order in which a broker puts them. A file takes N − 1 of
them, so running counts alone say where a file begins and ends (store-format §3.9). The driver counts segments
(:class:`EntryTable`); the tasks find the blocks of these by the tables that the scans have left. Only at the two ends
of what is placed, which may lie inside a segment, its table and one block are read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

from spark_jobs.run.attempt import block_file
from spark_jobs.run.blocks import Block, read_block_at, read_list
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_segment import ENTRIES, ScanSummary


class EntryBlock(msgspec.Struct, frozen=True, array_like=True):
    """A block of entries on disk: its file and position, physical range, entries, and last dispatched record."""

    path: str
    position: int
    first: int
    end: int
    entries: int
    last_record: int

    def read(self) -> Block:
        """The block itself."""
        return read_block_at(Path(self.path), self.position)

    def columns(self) -> Mapping[str, Any]:
        """The columns of the block."""
        return self.read().columns

    def blocks(self) -> "Sequence[EntryBlock]":
        """The blocks that this one stands for."""
        return (self,)


class EntryTable(EntryBlock, frozen=True, array_like=True):
    """All blocks of a segment in place of one: `position` is that of their table, the other fields are of them all."""

    def blocks(self) -> Sequence[EntryBlock]:
        """The blocks that the table lists."""
        return [EntryBlock(self.path, *facts) for facts in read_list(Path(self.path), self.position).tolist()]


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Entries [skip, skip + count) of a block, or of all blocks of a segment."""

    block: EntryBlock
    skip: int
    count: int


class Boundary(msgspec.Struct, frozen=True):
    """Where entries that are there already end: at `entries` entries of the record at `physical_offset`."""

    physical_offset: int
    entries: int


class PlacedFile(msgspec.Struct, frozen=True):
    """The entries of one index file, in order; `before` is the entry that precedes them, None for the first ever."""

    pieces: tuple[Piece, ...]
    before: Piece | None

    @property
    def entries(self) -> int:
        """How many there are."""
        return sum(piece.count for piece in self.pieces)


Question: TypeAlias = tuple[EntryBlock, Callable[[EntryBlock], Any]]
"""Blocks, of a segment for example, and a function that reads of them what the driver has to know."""

Ask: TypeAlias = Callable[[Sequence[Question]], list[Any]]
"""Has each question answered where the blocks are; the answers in order."""


def ask_here(questions: Sequence[Question]) -> list[Any]:
    """Answer in this process by reading the files of the blocks."""
    return [function(block) for block, function in questions]


def entry_tables(work: WorkDirectory, segments: Iterable[ScanSummary]) -> list[EntryTable]:
    """What scans found in segments, a table for each that has any block."""
    return [
        EntryTable(str(block_file(work, summary, ENTRIES)), *summary["entry_table"])
        for summary in segments
        if summary["entry_table"]
    ]


def pieces_of_blocks(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Split pieces into pieces of single blocks; the tables of segments are read, one after the other."""
    for piece in pieces:
        skip, left = piece.skip, piece.count
        for block in piece.block.blocks() if left else ():
            count = min(left, block.entries - skip)
            if count > 0:
                yield Piece(block, skip, count)
                left -= count
            skip = max(skip - block.entries, 0)
            if not left:
                break


def cut_blocks(blocks: Sequence[EntryBlock], start: Boundary | None, end: int, ask: Ask = ask_here) -> list[Piece]:
    """Return the entries behind `start` whose records lie below the physical offset `end`."""
    pieces = []
    for block in blocks:
        if block.first >= end or (start is not None and block.end <= start.physical_offset):
            continue
        skip, stop = 0, block.entries
        is_cut = block.end > end and block.last_record >= end
        if is_cut or (start is not None and block.first <= start.physical_offset):
            if start is not None and block.first <= start.physical_offset:
                [skip] = ask([(block, partial(_entries_up_to, start=start))])
            if is_cut:
                [stop] = ask([(block, partial(_entries_below, physical_offset=end))])
        if stop > skip:
            pieces.append(Piece(block, skip, stop - skip))
    return pieces


def place(pieces: Iterable[Piece], capacity: int, has_more: bool) -> list[PlacedFile]:
    """Assign entries to files of `capacity` (N − 1) entries each.

    With `has_more` a record is dispatched after the last entry, which makes a broker begin an empty file where the
    last one is full; so it does where there is no entry to be placed at all, but a record.
    """
    files: list[PlacedFile] = []
    current: list[Piece] = []
    room, before = capacity, None
    for piece in pieces:
        for part in _split(piece, capacity, room):
            if not room:
                files.append(PlacedFile(tuple(current), before))
                before = _last_entry(current[-1])
                current, room = [], capacity
            current.append(part)
            room -= part.count
    if current:
        files.append(PlacedFile(tuple(current), before))
    if has_more and not (files and room):
        files.append(PlacedFile((), _last_entry(current[-1]) if current else None))
    return files


def has_record_behind(
    blocks: Sequence[EntryBlock], pieces: Sequence[Piece], start: Boundary | None, end: int, ask: Ask = ask_here
) -> bool:
    """Whether a record below `end` is dispatched after the last entry of `pieces`, or after `start` without any."""
    last = start.physical_offset if start is not None else -1
    if pieces:
        last = entry_places([_last_entry(pieces[-1])], ask)[0][0]
    behind = [block for block in blocks if block.first < end and block.last_record > last]
    if any(block.last_record < end for block in behind):
        return True
    return any(ask([(block, partial(_has_record_between, last=last, end=end)) for block in behind]))


def entry_places(pieces: Sequence[Piece], ask: Ask = ask_here) -> list[tuple[int, int]]:
    """What :func:`entry_place` says of each piece."""
    return ask([(piece.block, partial(_entry_place_in, skip=piece.skip)) for piece in pieces])


def _entry_place_in(block: EntryBlock, skip: int) -> tuple[int, int]:
    return entry_place(Piece(block, skip, 1))


def _has_record_between(block: EntryBlock, last: int, end: int) -> bool:
    """Whether a last record of any block of a segment lies between two physical offsets."""
    return any(last < each.last_record < end for each in block.blocks())


def entry_place(piece: Piece) -> tuple[int, int]:
    """Physical offset and store timestamp (ms) of the first entry of a piece."""
    piece = next(pieces_of_blocks((piece,)))
    columns = piece.block.columns()
    record = int(np.searchsorted(np.cumsum(columns["counts"], dtype=np.int64), piece.skip, side="right"))
    return piece.block.first + int(columns["offsets"][record]), int(columns["timestamps"][record])


def _split(piece: Piece, capacity: int, room: int) -> Iterator[Piece]:
    """Parts of a piece of which the first fills the room that is left, and the others a file each."""
    skip, left = piece.skip, piece.count
    room = room or capacity
    while left:
        count = min(left, room)
        yield Piece(piece.block, skip, count)
        skip, left, room = skip + count, left - count, capacity


def _last_entry(piece: Piece) -> Piece:
    return Piece(piece.block, piece.skip + piece.count - 1, 1)


def _entries_up_to(block: EntryBlock, start: Boundary) -> int:
    """How many entries of a block are there already; of the boundary's record no more than it has."""
    below = _entries_below(block, start.physical_offset)
    return min(below + start.entries, _entries_below(block, start.physical_offset + 1))


def _entries_below(block: EntryBlock, physical_offset: int) -> int:
    """How many entries of a block, or of all blocks of a segment, belong to records below an offset."""
    below = 0
    for each in block.blocks():
        if each.last_record < physical_offset:
            below += each.entries
        elif each.first < physical_offset:
            columns = each.columns()
            records = int(np.searchsorted(columns["offsets"], physical_offset - each.first))
            below += int(columns["counts"][:records].sum(dtype=np.int64))
    return below
