"""What an index takes on the disk, and what a look-up of a key in it reads, by the headers and marks of its files.

A look-up reads the slot of its key in every file, and the entries of the slot, one after the other. In a broker's file
they lie apart, so that each costs a page; in a compacted one side by side. On average a slot that is in use holds
`entries / used slots`.
"""

import math
import os
from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import StoreError
from storage.files.mapped_file import MappedFile
from storage.index.index_file import HEADER, IndexHeader, determine_shape
from storage.index.index_header import is_index_name
from storage.kernels.indexes import ENTRY_BYTES

PAGE_BYTES: Final = 4096


class IndexCost(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """`bytes` on the disk of so many files, entries, and the pages (of 4 KiB) that a look-up reads on average."""

    files: int
    bytes: int
    entries: int
    pages: float


def index_cost(directory: Path) -> IndexCost:
    """Measure the index files of a directory; what is none, or cannot be read, counts for nothing."""
    files = size = entries = 0
    pages = 0.0
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if not is_index_name(path.name) or not path.is_file():
            continue
        try:
            file = MappedFile.open(path)
        except StoreError:  # reported where files are read
            continue
        if file.size < HEADER.size:
            continue
        header = IndexHeader(*HEADER.unpack_from(file.view, 0))
        count = max(header.index_count - 1, 0)
        files, entries = files + 1, entries + count
        size += min(os.stat(path).st_blocks * 512, file.size)
        pages += _pages(file, header, count)
    return IndexCost(files=files, bytes=size, entries=entries, pages=round(pages, 1))


def _pages(file: MappedFile, header: IndexHeader, entries: int) -> float:
    """Pages that a look-up reads of one file: one of slots, and those of the entries of a slot that is in use."""
    if not entries or header.slot_count < 1:
        return 1.0
    chain = entries / header.slot_count
    shape = determine_shape(file, [])
    if shape is not None and shape.compacted == shape.entries:
        chain = max(1.0, math.ceil(chain) * ENTRY_BYTES / PAGE_BYTES)
    return 1.0 + min(chain, file.size / PAGE_BYTES)
