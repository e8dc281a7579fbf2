"""Index files as a whole: checks of their structure, the range that they cover, and writing (store-format §3.4, §3.5).

A `region` is a whole file, or as much of it as its slots and entries take. Entries are numbered from 1. Every function
raises ValueError where the region is too short for the given numbers of slots and entries.

Slots and pointers follow from the hashes of the entries and the slot count. Neither count is written in the file, so a
candidate is tested by recomputing: in the order of entries, each must point to the entry that its slot had before, and
in the end the slots must be those of the file. The broker's own files satisfy this, and compacted ones too; a wrong
candidate fails within a few entries.

A broker may add further entries meanwhile: first the entry, then its slot, then the header's count. So slots may point
to entries after those that are checked; their pointers lead down to the checked ones.
"""

from typing import Final, final

import numpy as np
import numpy.typing as npt
from _typeshed import WriteableBuffer

from storage.kernels.region import Region

INDEX_HEADER: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20

GAP_BYTES: Final = 8388608
"""A distance between neighbouring entries above which the index may have been switched off in between."""

STRETCH_BYTES: Final = 4194304
"""The lowest and the highest entry of each stretch of so many bytes show every gap: it contains a whole stretch."""

NO_ENTRY: Final = -1

QUICK_ENTRIES: Final = 48
"""How many first entries show whether a slot count may be that of a file."""
QUICK_FAILURES: Final = 12
"""How many of them may be wrong."""

BAD_POINTER: Final = 0
"""What is wrong: the pointer of an entry, or a slot."""
BAD_SLOT: Final = 1

def check_structure(region: Region, slots: int, entries: int) -> int:
    """0 if slots and pointers of the file are what its hashes make of them, else the number of the first bad entry.

    A bad slot counts as entry ``entries + 1 + slot``.
    """

def check_growing_structure(region: Region, slots: int, entries: int, capacity: int) -> int:
    """As :func:`check_structure` for the first ``entries`` of a file that grows; up to ``capacity`` fit it."""

def check_growth(region: Region, slots: int, known: int, entries: int, capacity: int) -> int:
    """0 if entries ``known`` + 1 to ``entries`` hold together with those before, else the number of a bad one.

    Physical offsets must not fall. Each entry must be the newest of its slot or be pointed at by a later one, and the
    last pointer of each chain lead to a known entry of its slot, or nowhere. Up to ``capacity`` entries fit the file.
    """

@final
class EntrySpan:
    """What entries cover of the log; all 0 without any."""

    @property
    def minimum(self) -> int:
        """The smallest physical offset."""
    @property
    def maximum(self) -> int:
        """The largest."""
    @property
    def ascending(self) -> bool:
        """Whether they never fall."""
    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Physical offsets of neighbours more than GAP_BYTES apart, as far as they were asked for."""
    @property
    def gap_count(self) -> int:
        """How many of those there are."""

def measure_entries(region: Region, slots: int, before: int, entries: int, most_gaps: int) -> EntrySpan:
    """What the entries from ``before`` + 1 to ``entries`` cover; up to ``most_gaps`` gaps are listed."""

@final
class CompactedSpan:
    """What the entries of a compacted file cover."""

    @property
    def bad(self) -> int:
        """The number of the first entry that does not lie slot by slot, 0 for none; with any the rest is undefined."""
    @property
    def minimum(self) -> int:
        """The smallest physical offset."""
    @property
    def maximum(self) -> int:
        """The largest."""
    @property
    def ascending(self) -> bool:
        """Whether they never fall along a chain."""

def measure_compacted(
    region: Region, slots: int, entries: int, start: int, lowest: npt.NDArray[np.int64], highest: npt.NDArray[np.int64]
) -> CompactedSpan:
    """Measure entries that should lie slot by slot: each points to none, or to the one right before it.

    ``lowest`` and ``highest`` get at i the lowest and the highest physical offset from ``start`` + i · STRETCH_BYTES
    on, NO_ENTRY without any; entries before and behind all of these stretches have none.
    """

def share_explained(region: Region, slots: int, entries: int) -> float:
    """The share of a file's pointers and used slots that a slot count explains."""

def next_slot_count(region: Region, slots: int, last_data: int) -> int:
    """The smallest slot count from ``slots`` on that explains the pointers of most of the first entries; 0 for none.

    ``last_data`` is the position of the file's last byte that is not zero; it must lie in the last entry, which the
    region must hold.
    """

@final
class WrongPointer:
    """A slot or pointer that does not follow from the hashes."""

    @property
    def kind(self) -> int:
        """BAD_POINTER or BAD_SLOT."""
    @property
    def number(self) -> int:
        """The number of the entry, or of the slot."""
    @property
    def expected(self) -> int:
        """The entry it should point to."""
    @property
    def found(self) -> int:
        """The entry it points to."""

@final
class PointerCheck:
    """What came of recomputing slots and pointers."""

    @property
    def wrong(self) -> int:
        """How many are wrong."""
    @property
    def used(self) -> int:
        """How many slots are in use."""
    @property
    def noted(self) -> list[WrongPointer]:
        """The first of the wrong ones, as many as were asked for."""

def check_pointers(
    region: Region,
    slots: int,
    entries: int,
    written: int,
    numbers: npt.NDArray[np.int64],
    true_hashes: npt.NDArray[np.int32],
    most: int,
) -> PointerCheck:
    """Recompute slots and pointers, and note up to ``most`` wrong ones.

    ``numbers`` (ascending) are entries whose hash in the file is wrong, ``true_hashes`` theirs. ``written`` is
    ``entries``, or above it for a file that grows: slots may then point to newer entries up to there.
    """

def slot_number(key_hash: int, slots: int) -> int:
    """The slot of a hash, 0 at least: its remainder by the number of slots."""

def seconds_between(begin: int, timestamp: int) -> int:
    """Whole seconds between two store times (ms) as an entry holds them: never below 0, and 0 where there is no begin.

    This is the time difference that a broker writes (store-format §3.5).
    """

@final
class IndexWriter:
    """Puts entries into an index file in memory as a broker does, and keeps the numbers of its header.

    For one thread at a time: `put` raises RuntimeError while another thread is in it.
    """

    def __new__(
        cls, memory: WriteableBuffer, slots: int, entries: int, timestamp: int, physical_offset: int
    ) -> IndexWriter:
        """Write to zeroed memory; one of the ``entries`` is never used.

        ``timestamp`` (ms) and ``physical_offset`` are those with which the file before it ends.
        """
    @property
    def begin_timestamp(self) -> int:
        """Store time of the first entry's record, ms."""
    @property
    def end_timestamp(self) -> int:
        """Store time of the last entry's record, ms."""
    @property
    def begin_physical_offset(self) -> int:
        """Where the first entry's record lies."""
    @property
    def end_physical_offset(self) -> int:
        """Where the last entry's record lies."""
    @property
    def slot_count(self) -> int:
        """Slots that are not empty."""
    @property
    def index_count(self) -> int:
        """Entries, and one."""
    def put(
        self,
        offsets: npt.NDArray[np.int64],
        timestamps: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        hashes: npt.NDArray[np.int32],
        first_entry: int,
        count: int,
    ) -> None:
        """Put ``count`` entries of some records, from one on.

        Of each record there are its physical offset, its store time (ms) and the number before which its entries end.
        Raises ValueError for columns that do not fit together, or more entries than there are or there is room for.
        """

def place_entries(
    memory: WriteableBuffer,
    slots: int,
    hashes: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
    timestamps: npt.NDArray[np.int64],
    count: int,
    begin_timestamp: int,
) -> int:
    """Write the first ``count`` entries slot by slot into a file in zeroed memory; how many slots are in use.

    Their seconds count from ``begin_timestamp`` as a broker counts them: those of entries stored before it are 0.
    Within a slot they keep their order, and each but the first points to the one right before it.
    """
