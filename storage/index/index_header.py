"""The header of an index file, for modules that read nothing else of it; see :mod:`storage.index.index_file`."""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from storage.files.mapped_file import MappedFile

HEADER: Final = Struct(">qqqqii")
NAME_DIGITS: Final = 17
"""Digits in the name of an index file: the time at which it was made, to the millisecond."""


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The 40 bytes at the start of an index file; they may lag or lie and are never trusted alone."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    slot_count: int
    index_count: int


def read_header(file: MappedFile) -> IndexHeader:
    """The header of a file of at least 40 bytes."""
    return IndexHeader(*HEADER.unpack(file.slice(0, HEADER.size)))


def is_index_name(name: str) -> bool:
    """Whether a file is named as an index file is."""
    return len(name) == NAME_DIGITS and name.isdecimal()
