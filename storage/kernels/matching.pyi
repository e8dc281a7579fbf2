"""The entries of an index file beside those that its log leads to: which belong together, and at which times.

Everything here bears with damage. A file is compared entry by entry, whatever some of them say. Times are in ms.
"""

from typing import Final, final

import numpy as np
import numpy.typing as npt

from storage.kernels.region import Region

NO_KEY: Final[int]
"""In place of a rank: the record that starts there has no such key."""

REPEATED: Final[int]
"""Minus the rank of the record's first key, in place of a rank: it has the key, but other entries have taken it."""

NO_TIME: Final[int]
"""In place of a store time that is not known."""

@final
class LateEntry:
    """An entry whose time difference is wrong."""

    @property
    def number(self) -> int:
        """Its number."""
    @property
    def expected(self) -> int:
        """The difference that a broker writes, in whole seconds (store-format §3.5)."""

@final
class Matching:
    """One index file that is held against the blocks of its log, from the first to the last."""

    def __new__(
        cls,
        region: Region,
        slots: int,
        entries: int,
        order: npt.NDArray[np.int32],
        begin: int,
        ranks: npt.NDArray[np.int64],
        most_late: int,
    ) -> Matching:
        """Nothing is matched.

        ``order`` has the numbers of the entries by physical offset, none where they lie in that order. ``ranks``, with
        an item for each entry and one for entry 0, become those of the matches, or one of the codes above. Times are
        held against ``begin``, the file's begin timestamp; the first entry's is not. Raises ValueError for counts that
        do not fit the file, and for numbers of no entry.
        """
    def next_offset(self, bound: int) -> int | None:
        """Pass by the entries below a physical offset; that of the next one, None without one."""
    def match(
        self,
        first_offset: int,
        offsets: npt.NDArray[np.uint32],
        timestamps: npt.NDArray[np.int64],
        counts: npt.NDArray[np.uint16],
        hashes: npt.NDArray[np.int32],
        rank: int,
        seen: npt.NDArray[np.uint8],
    ) -> None:
        """Match the next entries with what one block of the log leads to, up to the first entry behind it.

        ``rank`` entries of the log lie before the block; ``offsets`` count from ``first_offset``, ``counts`` say how
        many of the ``hashes`` each record has, and ``seen`` marks those of them that were found. Raises ValueError for
        columns that do not fit each other.
        """
    @property
    def matches(self) -> int:
        """Entries that belong to a record."""
    @property
    def timed(self) -> int:
        """Entries whose record has the key, so that its store time is known; repeated ones too."""
    @property
    def lates(self) -> int:
        """Entries whose time difference is wrong."""
    @property
    def late(self) -> list[LateEntry]:
        """The first of them."""
    @property
    def descents(self) -> int:
        """How often a rank lies below the one before it in the same block."""
    @property
    def compared(self) -> int:
        """Hashes that entries were compared with, where they did not come in the order of their records' keys."""
    @property
    def lowest(self) -> int:
        """The lowest rank, −1 without a match."""
    @property
    def highest(self) -> int:
        """The highest rank, −1 without a match."""
    @property
    def first_time(self) -> int:
        """Store time of the first entry's record, or NO_TIME."""
    @property
    def last_time(self) -> int:
        """Store time of the last entry's record, or NO_TIME."""
    @property
    def smallest_time(self) -> int:
        """The store time with which a compacted file begins, or NO_TIME."""
    @property
    def largest_time(self) -> int:
        """The largest store time of all, or NO_TIME."""

def earlier_begin(left: int, right: int) -> int:
    """Of two store times the one with which a compacted file begins: the earlier, but rather one above 0."""
