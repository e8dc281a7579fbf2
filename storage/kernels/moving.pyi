"""Records of a log copied into a plain segment, each to its new place (store-format §2.2, other-formats §1).

What stands between records, the heads of DLedger entries above all, is left out, so that a record's place is that of
the one before it and its size. A record says its own place, a commit's also that of the half message; both are
rewritten, and the checksum of the whole record with them, where it has one.
"""

import mmap
from typing import final

from storage.kernels.dispatching import Step
from storage.kernels.region import Region

@final
class RecordMover:
    """The new segment, in memory, while it is filled. Only intact records are moved, with checksums that hold."""

    def __new__(cls, memory: bytearray | mmap.mmap, size: int, base: int, most: int) -> RecordMover:
        """Fill the first `size` bytes of memory, for the segment at the physical offset `base`.

        A run ends FULL once `most` bytes are there to be taken. Raises ValueError for more bytes than there are, and
        for a segment of 4 GiB or more.
        """
    def run(self, region: Region, position: int, available: int, start: int, boundary: int, limit: int) -> Step:
        """Move the records that start in [position, limit) of a region, as far as there are any.

        `available` bytes of the region may be read; `start` is the physical offset of its first byte; the next segment
        starts at `boundary`, or would start there. Raises ValueError where `available` lies outside the region.
        """
    def take_links(self) -> bytearray:
        """What points elsewhere, since this was last asked for: pairs of int64 in the machine's byte order.

        Each is the new position of a record in the segment and the old physical offset of a half message that was not
        moved before it in the same segment. Bytes up to `used` are what they will be but for these.
        """
    def moves_made(self) -> bytearray:
        """Of every record its position in the old and in the new segment: pairs of uint32, both ascending."""
    @property
    def used(self) -> int:
        """Position behind the last record."""
    @property
    def records(self) -> int:
        """Records that were moved."""
    @property
    def last_record(self) -> int:
        """New physical offset of the last of them, −1 without one."""
    @property
    def last_timestamp(self) -> int:
        """When it was stored, ms; 0 without one."""

def mend_record(memory: bytearray, position: int, size: int, half: int) -> None:
    """Let the record at a position say another offset of its half message, and state its checksum anew if it has one.

    Raises ValueError where no record of that size lies.
    """
