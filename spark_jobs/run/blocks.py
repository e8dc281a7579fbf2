"""Packed blocks of columns: how the tasks of a job hand on what they found, some megabytes at a time.

A block file is a run of blocks, each a fixed head, a msgpack header and the bytes of its columns one behind the other.

BLOCK_HEAD
offset  size  type  field        meaning
0       4     u32   magic        "RLB1"
4       4     u32   header_size  bytes of the msgpack header that follows

The header says where the block comes from (`source`, `range` as physical offsets [from, to)), which columns follow
(`columns`, as name, NumPy type and count), and the CRC-32 of their bytes (`checksum`); whatever else its writer adds is
in there too. Entries and queue units never travel singly.

Behind its blocks a task leaves one more, their table (:meth:`BlockWriter.write_table`, or
:meth:`BlockWriter.write_list`, a row of numbers for each block, of which the first is its position): the driver learns
where that is and no more, and the tasks that read the blocks find them by it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any, Self, TypeAlias

import msgpack
import numpy as np

from protocol.checksum import crc32
from protocol.errors import StoreError

BLOCK_HEAD = Struct(">II")
MAGIC = 0x524C4231
LONGEST_HEADER = 1 << 28
_ROWS = "blocks"

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Block:
    """One block as read: `header` without its columns, `columns` as arrays over one buffer of their own."""

    header: dict[str, Any]
    columns: dict[str, np.ndarray]


class BlockWriter:
    """Appends blocks to a new file; it counts once the attempt of a task that writes it does."""

    def __init__(self, path: Path, source: str) -> None:
        """Start a file; `source` names what its blocks are made from."""
        self.path = path
        self.size = 0
        self._source = source
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, first: int, end: int, columns: Mapping[str, np.ndarray], **facts: object) -> int:
        """Append a block of one-dimensional columns made from the range [first, end); its position in the file."""
        position = self.size
        for piece in pack_block({**facts, "source": self._source, "range": [first, end]}, columns):
            self._write_all(memoryview(piece))
        return position

    def add(self, block: memoryview) -> int:
        """Append a block that is packed already; its position in the file."""
        position = self.size
        self._write_all(block)
        return position

    def reserve(self, size: int) -> int:
        """Leave room for a packed block, whose pieces are going to be :meth:`put` there; its position in the file."""
        position = self.size
        self.size += size
        return position

    def put(self, position: int, piece: bytes | memoryview) -> None:
        """Write a piece of a packed block to its place."""
        view = memoryview(piece)
        while len(view):
            written = os.pwrite(self._file.fileno(), view, position)
            position, view = position + written, view[written:]

    def write_table(self, columns: Mapping[str, np.ndarray]) -> int:
        """Append the table of the blocks before it; its position, for :func:`read_block_at`."""
        return self.write(0, 0, columns)

    def write_list(self, rows: Sequence[Sequence[int]]) -> int:
        """Append a table with a row of as many numbers for each block; its position, for :func:`read_list`."""
        return self.write(0, 0, {_ROWS: np.array(rows, np.int64).reshape(-1)}, width=len(rows[0]))

    def _write_all(self, piece: memoryview) -> None:
        self.put(self.reserve(len(piece)), piece)


def pack_block(facts: Mapping[str, object], columns: Mapping[str, np.ndarray]) -> list[Buffer]:
    """The pieces of a block, one behind the other: `facts` become its header, with what describes the columns."""
    arrays = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    views = [array.data.cast("B") for array in arrays.values() if array.size]
    checksum = 0
    for view in views:
        checksum = crc32(view, checksum)
    described = [[name, array.dtype.str, array.size] for name, array in arrays.items()]
    header = msgpack.packb({**facts, "columns": described, "checksum": checksum})
    return [BLOCK_HEAD.pack(MAGIC, len(header)), header, *views]


def unpack_block(source: Path, packed: memoryview) -> Block:
    """A block that is in memory; raises StoreError, naming its source, when it is not what a BlockWriter wrote."""

    def read(position: int, size: int) -> memoryview:
        if position + size > len(packed):
            raise StoreError(source, expected=f"{size} bytes at {position}", found=len(packed), what="block")
        return packed[position : position + size]

    return _read_block(source, read, 0)[0]


def read_block(path: Path, descriptor: int, position: int) -> tuple[Block, int]:
    """The block at a position of an open block file, and the position behind it; checked by its checksum.

    Raises StoreError, naming file and position, when it is not what a BlockWriter wrote.
    """
    return _read_block(path, partial(_read, path, descriptor), position)


def read_block_at(path: Path, position: int) -> Block:
    """The one block at a position of a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_block(path, descriptor, position)[0]
    finally:
        os.close(descriptor)


def read_list(path: Path, position: int) -> np.ndarray:
    """The rows of the table of blocks at a position of a file, as a matrix of 64-bit numbers."""
    return list_of(read_block_at(path, position))


def list_of(block: Block) -> np.ndarray:
    """The rows of a block that :meth:`BlockWriter.write_list` wrote."""
    return block.columns[_ROWS].reshape(-1, block.header["width"])


def _read_block(path: Path, read: Callable[[int, int], Buffer], position: int) -> tuple[Block, int]:
    magic, header_size = BLOCK_HEAD.unpack(read(position, BLOCK_HEAD.size))
    if magic != MAGIC or header_size > LONGEST_HEADER:
        raise StoreError(path, expected="a block", found=f"other bytes at {position}", what="work file")
    header = msgpack.unpackb(read(position + BLOCK_HEAD.size, header_size), strict_map_key=False)
    position += BLOCK_HEAD.size + header_size
    described = [(name, np.dtype(kind), count) for name, kind, count in header.pop("columns")]
    size = sum(kind.itemsize * count for _, kind, count in described)
    data = read(position, size)
    if crc32(data) != header["checksum"]:
        raise StoreError(path, expected=header["checksum"], found=crc32(data), what=f"CRC of the block at {position}")
    columns, at = {}, 0
    for name, kind, count in described:
        columns[name] = np.frombuffer(data, dtype=kind, count=count, offset=at)
        at += kind.itemsize * count
    return Block(header, columns), position + size


def _read(path: Path, descriptor: int, position: int, size: int) -> bytearray:
    data = bytearray(size)
    read_into(path, descriptor, position, memoryview(data))
    return data


def read_into(path: Path, descriptor: int, position: int, view: memoryview) -> None:
    """Fill memory with the bytes at a position of an open file; raises StoreError where it ends before."""
    size, done = len(view), 0
    while done < size:
        count = os.preadv(descriptor, [view[done:]], position + done)
        if not count:
            raise StoreError(path, expected=f"{size} bytes at {position}", found=f"{done}", what="work file")
        done += count
