"""What a broker's dispatch makes of the records of a segment: index entries and queue units (store-format §3.1, §3.2).

Nothing is looked up and nothing is left out here: entries come in the order in which a broker puts them, a repeated
key twice.
"""

from collections.abc import Iterable
from typing import Final, final

from storage.kernels.region import Region

NEED_MORE: Final = 0
"""The record at the position reaches beyond what is there, or fewer than eight bytes are."""
LIMIT: Final = 1
"""The position is the limit, or behind it."""
BLANK: Final = 2
"""The segment ends here."""
ZERO: Final = 3
"""Eight zero bytes: nothing was written here."""
DAMAGE: Final = 4
"""There is no valid record; the code says why."""
FULL: Final = 5
"""Take what has been gathered, then go on."""

PLAIN: Final = 0
BATCH: Final = 1
LIGHT: Final = 2
"""Kinds of queues; a light one has plain units, which never lead to an extension."""

PLAIN_BYTES: Final = 20
BATCH_BYTES: Final = 46
"""Bytes of a unit as it is in a queue's file."""

RUN_NUMBERS: Final = 5
"""Numbers of a run, each an int64: queue, kind, first queue offset, units, position in the units' bytes."""

@final
class Step:
    """Where a run ended, and why."""

    @property
    def position(self) -> int:
        """Where it ended."""
    @property
    def reason(self) -> int:
        """NEED_MORE, LIMIT, BLANK, ZERO, DAMAGE or FULL."""
    @property
    def code(self) -> int:
        """For damage, one of the ``BAD_`` codes of :mod:`storage.kernels.records`; else 0."""

@final
class Gathered:
    """What the records of the physical range [first_offset, end_offset) lead to.

    Numbers of one kind stand one behind the other in the machine's byte order, in memory of their own.
    """

    @property
    def first_offset(self) -> int:
        """Where the first run began, 0 without one."""
    @property
    def end_offset(self) -> int:
        """Where the last run ended, 0 without one."""
    @property
    def records(self) -> int:
        """All valid records, with entries and units or without."""
    @property
    def last_record(self) -> int:
        """Physical offset of the last of them, −1 without one."""
    @property
    def last_timestamp(self) -> int:
        """When that was stored, ms; 0 without one."""
    @property
    def record_offsets(self) -> bytearray:
        """Where each record that has entries starts, counted from the first offset; uint32."""
    @property
    def record_timestamps(self) -> bytearray:
        """When it was stored, ms; int64."""
    @property
    def record_entries(self) -> bytearray:
        """How many entries it has; uint16."""
    @property
    def record_tagged(self) -> bytearray:
        """1 where the last of them is that of its tag, else 0; uint8."""
    @property
    def hashes(self) -> bytearray:
        """Hashes of the entries; int32."""
    @property
    def queues(self) -> list[tuple[bytes, int]]:
        """Topic as stored and queue id of each queue that has units, in the order in which the log first has them.

        A queue stands there twice where messages are in it as in a light queue, too.
        """
    @property
    def runs(self) -> bytearray:
        """`RUN_NUMBERS` for each run, queue by queue. Plain units of a run have consecutive queue offsets; batches are
        one run a queue, whatever their offsets."""
    @property
    def units(self) -> bytearray:
        """Units as they are in the files of the queues: PLAIN_BYTES each, or BATCH_BYTES."""
    @property
    def unit_timestamps(self) -> bytearray:
        """When the message of each unit was stored, ms; int64. Empty unless asked for."""

@final
class DispatchMemory:
    """The memory of a scan: what it gathers, up to a number of records.

    For one thread at a time: `run` and `take` raise RuntimeError while another thread is in one of them.
    """

    def __new__(
        cls,
        *,
        tags: bool,
        checksums: bool,
        delays: Iterable[int],
        lmq: bool,
        batch_topics: Iterable[bytes],
        units: bool,
        entries: bool,
        timestamps: bool,
        records: int,
    ) -> DispatchMemory:
        """Make room for so many `records`; raises ValueError where that is no sensible number.

        `tags`: an entry for the tag is put, too. `delays`: ms of each delay level. `lmq`: units for light queues, too.
        `batch_topics`: topics whose units are of batches. `timestamps`: give the units' store times.
        """
    def run(self, region: Region, position: int, available: int, base: int, boundary: int, limit: int) -> Step:
        """Dispatch the records that start in [position, limit) of a region, as far as there are any and there is room.

        `available` bytes of the region may be read; `base` is the physical offset of its first byte; the next segment
        starts at `boundary`, or would start there. Raises ValueError where `available` lies outside the region, and
        where a run begins before the end of one whose outcome has not been taken yet.
        """
    def take(self) -> Gathered:
        """What has been gathered since this was last asked for; the scan goes on with nothing."""
    @property
    def collisions(self) -> int:
        """How often a queue was met in the table in the place of another one, since it was made."""
