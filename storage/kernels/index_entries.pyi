"""Index entries beside the log: dealt out by where their records lie, held against records, matched with keys.

A compaction checks and deals out the entries of one index file, a stretch at a time, into the cells of the log that
their offsets lie in. Then it goes over the records of a cell in the order of the log, through a window on the segment,
and notes which of them exist, when they were stored, and which are to be left out.
"""

from typing import Final, final

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer

from storage.kernels.region import Region

KEEP: Final = 0
"""What becomes of the entries of a record."""
NO_RECORD: Final = 1
LEFT_OUT: Final = 2

def check_entries(entries: ReadableBuffer | Region, number: int, heads: npt.NDArray[np.int32]) -> int:
    """0 if each of some entries, the first being ``number``, points at the one its slot held, else its number.

    ``heads`` are the newest entries of all slots so far, and are brought up to date; all are 0 before entry 1.
    """

def check_slots(slots: ReadableBuffer | Region, heads: npt.NDArray[np.int32], newest: int) -> int:
    """−1 if the slots of a file hold ``heads``, else the number of the first that does not.

    With ``newest`` ≥ 0 a slot may hold a higher number than that: the file is being written to.
    """

@final
class Dealt:
    """Entries by the cells of the log that they lie in."""

    @property
    def below(self) -> int:
        """How many lie below the log."""
    @property
    def beyond(self) -> int:
        """How many lie behind its end."""
    @property
    def nowhere(self) -> int:
        """How many lie in none of its segments."""
    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How many lie in each cell."""
    @property
    def hashes(self) -> npt.NDArray[np.int32]:
        """Their hashes cell by cell, in their order within each; behind these anything."""
    @property
    def positions(self) -> npt.NDArray[np.uint32]:
        """Their physical offsets, counted from the start of the cell, in the same order."""

def deal_entries(entries: ReadableBuffer | Region, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Dealt:
    """Group entries by the cells [start, end) of the log, which ascend; those of no cell are only counted."""

def read_heads(
    region: Region,
    start: int,
    filled: int,
    limit: int,
    base: int,
    positions: npt.NDArray[np.int64],
    number: int,
    fates: npt.NDArray[np.uint8],
    timestamps: npt.NDArray[np.int64],
) -> int:
    """Store times of the records at ``positions``, from ``number`` on, as far as a window shows their heads.

    The region's first ``filled`` bytes are those from ``start`` on of a segment that starts at the physical offset
    ``base`` and whose records end at ``limit``. What is no record has the fate NO_RECORD. Returns the number of the
    first position not looked at. Raises ValueError for more bytes than the region has, and arrays of other lengths.
    """

def read_records(
    region: Region,
    start: int,
    filled: int,
    limit: int,
    base: int,
    positions: npt.NDArray[np.int64],
    number: int,
    topics: tuple[bytes, ...],
    wants_tags: bool,
    fates: npt.NDArray[np.uint8],
    timestamps: npt.NDArray[np.int64],
    tags: npt.NDArray[np.int64],
) -> int:
    """As :func:`read_heads`, with whole records in the window: those of ``topics`` are LEFT_OUT.

    With ``wants_tags`` the hash of each one's tag entry goes to ``tags``, −1 for none.
    """
