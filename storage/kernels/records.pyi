"""Segments of the CommitLog: single records checked, walks from record to record, what records are found under.

Positions are bytes from the start of a region, `stop` and `readable` bound reading, `physical_offset` is what a record
says of itself (−1: any), `base` the physical offset of a region's first byte, `boundary` that at which the next segment
starts, or will start. Every function raises ValueError where it was to read outside its region.

What is looked at may change meanwhile, as a broker writes it: where an earlier call found a record the next one may
find none, and says so.

Where a size is returned, a negative one is a `BAD_` code: why no record is there.
"""

from typing import Final, final

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer

from storage.kernels.region import Region

TOTAL_SIZE: Final = 0
MAGIC: Final = 4
BODY_CRC: Final = 8
QUEUE_ID: Final = 12
QUEUE_OFFSET: Final = 20
PHYSICAL_OFFSET: Final = 28
SYS_FLAG: Final = 36
BORN_HOST: Final = 48
IPV4_HOST: Final = 8
IPV6_EXTRA: Final = 12
AFTER_HOSTS_TO_BODY_LENGTH: Final = 12
HEAD: Final = 8
MINIMUM_SIZE: Final = 91
CRC_PROPERTY: Final = 20
MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124
MAGIC_FIRST_BYTE: Final = 0xDA
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
TRANSACTION_MASK: Final = 0xC
COMMIT: Final = 0x8
ROLLBACK: Final = 0xC
CRC_MASK: Final = 0x7FFFFFFF
NAME_SEPARATOR: Final = 1
PROPERTY_SEPARATOR: Final = 2
SPACE: Final = 32

BAD_SIZE: Final = -1
BAD_MAGIC: Final = -2
BAD_OFFSET: Final = -3
BAD_LENGTHS: Final = -4
BAD_BODY_CRC: Final = -5
BAD_PROPERTY_CRC: Final = -6
NO_SEGMENT: Final = -7
COLD: Final = -8
BAD_NUMBER: Final = -9
"""A property that must be a number is none that Java can parse: to a broker, no valid record."""
BAD_BLANK: Final = -10
"""The magic number of a BLANK with a size that does not lead to the end of the segment."""

AT_LIMIT: Final = 0
"""Why a walk ended."""
AT_BLANK: Final = 1
AT_DAMAGE: Final = 2
OUTPUT_FULL: Final = 3
QUEUES_FULL: Final = 4
AT_NOTHING: Final = 5
"""Nothing was written there yet, or nothing but the beginning of the first eight bytes."""
AT_RECORD: Final = 6
MAXIMUM_QUEUES: Final = 2048
"""How many different queues one walk notes."""

RECENT_PIECES: Final = 64
SUM_STEP: Final = 1024
SUM_PATIENCE: Final = 16_777_216
MAXIMUM_PIECES: Final = 32768
"""More keys than one property block can hold."""

ANY_TIME: Final[int]
"""No record was stored before it."""

CRC32_PATHS: Final[tuple[str, ...]]
"""How checksums can be made on this processor, the best first: see checksum.h."""
CRC32_PATH: Final[str]
"""How they are made: the first of those."""

def crc32(buffer: ReadableBuffer | Region) -> int:
    """CRC-32 of some bytes, unsigned; a record keeps its low 31 bits."""

def crc32_by(path: str, buffer: ReadableBuffer | Region) -> int:
    """CRC-32 of some bytes, made in a way of `CRC32_PATHS`; raises ValueError for any other."""

def check_shape(region: Region, position: int, stop: int, physical_offset: int) -> int:
    """Size of the record at a position if its parts add up; reads no body.

    As the broker sees it, a negative length of body or properties counts as 0 and one of the topic is an error.
    """

def check_intact(region: Region, position: int, stop: int, physical_offset: int, sums: Sums | None = None) -> int:
    """Size of the record at a position if its parts add up and its checksums hold: the body's and, if any, its own.

    Who asks for many places of one region hands in the sums that are kept of it: then no byte is summed up for each.
    """

def check_step(region: Region, position: int, stop: int, physical_offset: int, boundary: int) -> int:
    """As :func:`check_shape`; 0 for the BLANK that closes the segment. At least eight bytes must be readable."""

def closes_segment(region: Region, position: int, left: int) -> bool:
    """Whether the eight bytes at a position are the BLANK that closes their segment, `left` bytes before its end.

    That is the size which a broker writes; a BLANK that says another one is damage, and records may follow it.
    """

def store_timestamp(region: Region, position: int) -> int:
    """When the broker stored the record at a position, in ms; its first `MINIMUM_SIZE` bytes must be there."""

def has_sane_texts(region: Region, position: int, stop: int) -> bool:
    """Whether topic and properties of a record hold no zero byte: no checksum covers them. False without a record."""

def tag_entry_hash(region: Region, position: int, stop: int) -> int | None:
    """Hash of ``topic#T#tag``, under which the tag of a record is indexed since 5.4; None without tag or record."""

def entry_hashes(region: Region, position: int, stop: int) -> list[int] | None:
    """What one record is found under: hashes of its unique key, each piece of KEYS, its tag.

    None where no record of sound shape is: what was looked at before may have changed.
    """

@final
class Sums:
    """What one pass over a segment knows of checksums, so that bytes are not summed up again and again.

    Records can be nested in one another, a million of them in one another's bodies. A pass that goes from damage to
    damage hands the same object to every call; each call by itself has one of its own. It must not outlive the pass:
    what is written meanwhile is not summed up again.
    """

    def __new__(cls, patience: int = SUM_PATIENCE) -> Sums:
        """Nothing is known; ``patience`` bytes may be summed up for nothing before what is known is kept."""
    @property
    def summed(self) -> int:
        """Bytes that were summed up."""

@final
class Walk:
    """Where a walk from record to record ended, and why."""

    @property
    def position(self) -> int:
        """Where it ended."""
    @property
    def records(self) -> int:
        """Records that it stepped over."""
    @property
    def last(self) -> int:
        """Position of the last one; −1 for none."""
    @property
    def reason(self) -> int:
        """AT_LIMIT, AT_BLANK or AT_DAMAGE."""
    @property
    def code(self) -> int:
        """Why no record is there, where that is damage; else 0."""

def walk_records(
    region: Region, position: int, stop: int, base: int, boundary: int, checksums: bool, sums: Sums | None = None
) -> Walk:
    """Step over the records of a segment from a position on, whose checksums are looked at or not."""

@final
class Scan:
    """Where a scan ended, and why."""

    @property
    def position(self) -> int:
        """Where it ended."""
    @property
    def entries(self) -> int:
        """Entries written."""
    @property
    def records(self) -> int:
        """Records read."""
    @property
    def reason(self) -> int:
        """AT_LIMIT, AT_BLANK, AT_DAMAGE or OUTPUT_FULL."""

def scan_keys(
    region: Region,
    position: int,
    stop: int,
    readable: int,
    base: int,
    boundary: int,
    hashes: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
) -> Scan:
    """Note what the records that start in [position, stop) are found under, until damage or a full output.

    Rolled-back records are in no index. `hashes` (int32) and `offsets` (int64), of `MAXIMUM_PIECES` at least, are full
    when no more than these are left. Raises ValueError for arrays of other integers.
    """

def find_candidate(region: Region, position: int, stop: int, base: int) -> int:
    """First position from which a record's magic and own offset end before `stop`, and are right; −1 for none."""

def find_recent(
    region: Region, position: int, stop: int, readable: int, base: int, earliest: int, sums: Sums | None = None
) -> int:
    """Position of the first intact record that starts in [position, stop) and was stored at `earliest` (ms) or later.

    Intact means shape, own offset and checksums. Returns `stop` where there is none. The body of a record that is too
    old is stepped over, so that no byte is summed up twice.
    """

def find_record(region: Region, position: int, stop: int, base: int, sums: Sums | None = None) -> int:
    """Position of the first intact record (shape, own offset, checksums) at or after a position, or `stop`."""

def find_intact_backwards(region: Region, lowest: int, position: int, readable: int, base: int) -> int:
    """Position of the last intact record that starts in [lowest, position) and ends at `readable` or before; −1."""

def find_record_backwards(region: Region, lowest: int, position: int, base: int) -> int:
    """Position of the last record that starts in [lowest, position), by magic and own offset; −1 for none."""

@final
class Comparison:
    """Where a comparison of log and index entries ended, and why."""

    @property
    def position(self) -> int:
        """Where it ended."""
    @property
    def number(self) -> int:
        """Number of an entry below which no offset reaches that position."""
    @property
    def reason(self) -> int:
        """AT_LIMIT, AT_BLANK, AT_DAMAGE, or AT_RECORD for what was looked for."""

def find_record_by_entries(
    region: Region,
    position: int,
    stop: int,
    readable: int,
    base: int,
    boundary: int,
    entries: npt.NDArray[np.void],
    number: int,
    has_tags: bool,
    complete: bool,
) -> Comparison:
    """First record that starts in [position, stop) of a segment and is `complete`: has all its entries, or lacks one.

    An index may be sound in itself and yet lack records: those written anew after a crash had cut the log under it (a
    broker indexes nothing below the last entry), those dispatched while the index was off, those behind a damaged
    record. Entries never fall in physical offset, so one pass over both finds every record with a missing entry.

    `entries` are those of an index file from entry 0 on, `number` is that of one below which no offset reaches
    `position`. Without `has_tags` an entry for the tag is not asked for.
    """

@final
class Appended:
    """Where a walk over what a running broker appends ended, and why."""

    @property
    def position(self) -> int:
        """Where it ended."""
    @property
    def records(self) -> int:
        """Records that it stepped over."""
    @property
    def last(self) -> int:
        """Position of the last one; −1 for none."""
    @property
    def before_last(self) -> int:
        """Position of the one before; −1 for none."""
    @property
    def reason(self) -> int:
        """AT_LIMIT, AT_BLANK, AT_NOTHING, AT_DAMAGE or QUEUES_FULL."""
    @property
    def code(self) -> int:
        """Why the bytes there are no intact record (yet), where they are none; else 0."""
    @property
    def queues(self) -> list[int]:
        """Positions of the first record of each queue, in their order."""
    @property
    def collisions(self) -> int:
        """How often a queue was met in the table in the place of another one."""

def walk_appended(region: Region, position: int, limit: int, readable: int, base: int, boundary: int) -> Appended:
    """Step over the intact records that start in [position, limit) of a segment that may just be written to."""
