"""The task that builds one index file from the entries placed in it."""

import contextlib
import os
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import numpy as np

from protocol.checksum import crc32
from spark_jobs.build.place_entries import PlacedFile, entry_place, pieces_of_blocks
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.blocks import Block
from spark_jobs.run.work_directory import WorkDirectory
from storage.build.index_builder import CompactFileBuilder, EntryColumns, IndexFileBuilder
from storage.files.direct_writer import GrowingFile
from storage.index.index_file import IndexHeader

PHASE: Final = "build"
READ_BYTES: Final = 16 * 1024 * 1024


class IndexHole(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of the log, from the record at `first` to the one at `last`, of which an index may lack keys."""

    first: int
    last: int

    def lies_within(self, first: int, last: int) -> bool:
        """Whether a part of it lies between two records; these themselves have keys in the files beside, too."""
        return self.first < last and self.last > first


class BuildIndexTask(msgspec.Struct, frozen=True):
    """The file of a number, whose place is `path`: counts, entries, and the header of the last file that is kept.

    With `compact` the entries of a slot lie side by side; such a file ends at `end_physical_offset`, if that is given
    and no entry lies beyond it. `complete`: nothing is left out of what it spans, if it is cut off from its neighbours
    where the log can be cut, and spans none of the `holes`; `tags`: nor are entries of tags.
    """

    work: str
    number: int
    path: str
    slots: int
    capacity: int
    placed: PlacedFile
    seed: IndexHeader | None
    compact: bool = False
    end_physical_offset: int = 0
    complete: bool = False
    holes: tuple[IndexHole, ...] = ()
    tags: bool = False

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-index-{self.number:08d}"


class BuiltIndexFile(AttemptRecord):
    """A file that was built: its header in numbers, its size, and how much of it is used from the start on.

    `checksum` is the CRC-32 of the used bytes in the order of writing, those before `first` last.
    """

    name: str
    header: list[int]
    entries: int
    size: int
    used: int
    complete: bool
    checksum: int
    first: int


def build_index_file(task: BuildIndexTask) -> BuiltIndexFile:
    """Build one file and fsync it; its header, size and checksum, as left in the work directory.

    The driver has to bring it to its place, by :func:`take_index_file`.
    """
    record: BuiltIndexFile = run_attempt(task.work, task.name, partial(_build, task), partial(_is_whole, task))
    return record


def take_index_file(task: BuildIndexTask, done: BuiltIndexFile) -> None:
    """Bring the file of the attempt that counts to where the task wants it, unless it is there already."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(WorkDirectory(Path(task.work)).partial / done["attempt"], task.path)


def _build(task: BuildIndexTask, attempt: Attempt, notify: Notify) -> BuiltIndexFile:
    builder = _builder(task)
    put, complete = 0, task.complete
    with _file(attempt.partial, builder) as file:
        for piece in pieces_of_blocks(task.placed.pieces):
            block = piece.block.read()
            columns = columns_of(piece.block.first, block)
            builder.put(columns, piece.skip, piece.count)
            if isinstance(builder, IndexFileBuilder):
                file.settle(builder.settled)
            # One that was cut before it came here cannot show what is left out, but says whether it does harm.
            complete = complete and bool(block.header.get("is_cut_off", True))
            complete = complete and is_cut_off(columns, piece.skip, piece.count)
            put += piece.count
            notify(put, put)
        if isinstance(builder, CompactFileBuilder):
            complete = complete and not any(hole.lies_within(*builder.span) for hole in task.holes)
            header = builder.finish(task.end_physical_offset, complete=complete, tags=task.tags)
        else:
            header = builder.finish()
        file.finish(builder.used, builder.size)
    return {
        "name": Path(task.path).name,
        "header": list(astuple(header)),
        "entries": put,
        "size": builder.size,
        "used": builder.used,
        "complete": complete,
        "checksum": file.checksum,
        "first": file.first,
    }


def _builder(task: BuildIndexTask) -> CompactFileBuilder | IndexFileBuilder:
    """A compacted file without entries is like any other: all it says is where the one before it ended."""
    if task.compact and task.placed.pieces:
        return CompactFileBuilder(task.slots, task.capacity)
    return IndexFileBuilder(task.slots, task.capacity, _seed(task))


def _file(path: Path, builder: CompactFileBuilder | IndexFileBuilder) -> GrowingFile:
    """A compact file is filled all over up to the end, any other from the front: what is written can be forgotten."""
    if isinstance(builder, CompactFileBuilder):
        return GrowingFile(path, builder.memory)
    return GrowingFile(path, builder.memory, builder.entries_start, forget=True)


def columns_of(first: int, block: Block) -> EntryColumns:
    """The columns of a block, whose offsets count from the physical offset `first`."""
    columns = block.columns
    return EntryColumns(first, columns["offsets"], columns["timestamps"], columns["counts"], columns["hashes"])


def is_cut_off(columns: EntryColumns, skip: int, count: int) -> bool:
    """Whether entries [skip, skip + count) are all that a block has between the records of the first and the last."""
    if not skip and count == len(columns.hashes):
        return True
    offsets = np.repeat(columns.record_offsets, columns.record_entries)
    inside = offsets[skip : skip + count]
    before, behind = offsets[:skip], offsets[skip + count :]
    return not (before.size and before.max() > inside.min()) and not (behind.size and behind.min() < inside.max())


def _seed(task: BuildIndexTask) -> IndexHeader | None:
    """Return the header from which the builder learns when and where the file before ended; None without one."""
    if task.placed.before is None:
        return task.seed
    return seed_behind(entry_place(task.placed.before))


def seed_behind(place: tuple[int, int]) -> IndexHeader:
    """The header that says of the file before one no more than where and when (ms) its last entry's record was."""
    physical_offset, timestamp = place
    return IndexHeader(timestamp, timestamp, physical_offset, physical_offset, 0, 0)


def _is_whole(task: BuildIndexTask, work: WorkDirectory, done: BuiltIndexFile) -> bool:
    """Whether the file of a finished task is still what it was, where the attempt left it or where it was brought."""
    made = work.partial / done["attempt"]
    try:
        with open(made if made.exists() else task.path, "rb") as file:
            used, first = done["used"], min(done["first"], done["used"])
            checksum = _add_to_checksum(_add_to_checksum(0, file, first, used), file, 0, first)
            return bool(os.fstat(file.fileno()).st_size == done["size"] and checksum == done["checksum"])
    except OSError:
        return False


def _add_to_checksum(checksum: int, file: BinaryIO, start: int, stop: int) -> int:
    file.seek(start)
    while start < stop and (piece := file.read(min(stop - start, READ_BYTES))):
        checksum = crc32(piece, checksum)
        start += len(piece)
    return checksum
