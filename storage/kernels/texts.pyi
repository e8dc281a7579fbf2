"""Texts that lie here and there in memory: gathered into columns, split, and numbered where they come again and again.

Two arrays of int64 say where texts are. A position counts from the start of a region, or where it is negative
from that of `others`: −1 is the first byte there. A length of −1 is a text that is not there. Every function raises
ValueError for a text outside its region, and for an array of too few items.

Each different text is a word and has a number, its code. The `multiplier` of the hash that leads to it is an odd number
of 63 bits that nobody knows who writes messages: texts made to share a hash would be compared each with all others.
"""

from typing import Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from storage.kernels.region import Region

_Numbers: TypeAlias = npt.NDArray[np.int64]
_Codes: TypeAlias = npt.NDArray[np.int32]
_Bytes: TypeAlias = npt.NDArray[np.uint8]

TOO_MANY: Final = -1
"""More words than there is room for."""

HOST_ROOM: Final = 32
"""Bytes for the text of an IPv4 address and a port."""

def bytes_at(region: Region, position: int, length: int) -> bytes:
    """Some bytes, copied; none for a negative length."""

def copy_texts(
    region: Region, others: Region, positions: _Numbers, lengths: _Numbers, offsets: _Codes, data: _Bytes
) -> None:
    """Copy each text to its offset in `data`."""

def find_holding(
    region: Region, others: Region, positions: _Numbers, lengths: _Numbers, needle: bytes | None, found: _Numbers
) -> int:
    """Note which texts hold some bytes, or, where these are None, one byte of 0x80 or above; how many do."""

def split_keys(
    region: Region,
    others: Region,
    positions: _Numbers,
    lengths: _Numbers,
    counts: _Numbers,
    key_positions: _Numbers,
    key_lengths: _Numbers,
) -> int:
    """Split each text at blanks, forgetting empty pieces: how many pieces each has, where they lie; how many in all."""

def write_hosts(region: Region, positions: _Numbers, texts: _Bytes, lengths: _Numbers) -> None:
    """Write IPv4 addresses and ports, eight bytes at each position, as texts: HOST_ROOM bytes for each."""

def hash_text(region: Region, multiplier: int) -> int:
    """The hash of a region's bytes: up to 24 bits."""

def code_texts(
    region: Region,
    others: Region,
    positions: _Numbers,
    lengths: _Numbers,
    multiplier: int,
    codes: _Codes,
    word_positions: _Numbers,
    word_lengths: _Numbers,
) -> int:
    """Write the code of each text, −1 for one of negative length; return the number of words, TOO_MANY if too many.

    A word's position and length are those of the first text that is equal to it.
    """

@final
class SplitProperties:
    """The names and values in some property blocks."""

    @property
    def pairs(self) -> int:
        """The number of all names and values; TOO_MANY where there were too many names."""
    @property
    def words(self) -> int:
        """The number of different names."""

def split_properties(
    region: Region,
    positions: _Numbers,
    lengths: _Numbers,
    multiplier: int,
    counts: _Numbers,
    codes: _Codes,
    value_positions: _Numbers,
    value_lengths: _Numbers,
    word_positions: _Numbers,
    word_lengths: _Numbers,
) -> SplitProperties:
    """Split property blocks into names, which become words, and values; `counts` gets how many each block has.

    By the broker's rules: a name ends at the first 0x01 and a value at 0x02, both have a byte at least; of several of
    one name the last one's value counts, in the place of the first. Records lie around the blocks: a block ends 64
    bytes behind the region's start or later.
    """

def places_of_name(
    counts: _Numbers,
    codes: _Codes,
    value_positions: _Numbers,
    value_lengths: _Numbers,
    code: int,
    positions: _Numbers,
    lengths: _Numbers,
) -> None:
    """Where each block has the value of one name, by the tables of :func:`split_properties`; length −1 for none."""
