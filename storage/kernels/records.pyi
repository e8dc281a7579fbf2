"""Segments of the CommitLog: single records checked, walks from record to record, what records are found under.

Positions are counted in bytes from the start of a region; `stop` and `readable` are positions at which reading ends.
`physical_offset` is the one that a record must state (−1: any), `base` the physical offset of a region's first byte,
`boundary` the physical offset at which the next segment starts or will start. Every function raises ValueError if its
arguments would make it read outside the region.

A broker may write to the bytes while they are read: where one call found a record, the next call may find none, and
returns that as any other result.

A function that returns a size returns a negative `BAD_` code, the reason, where there is no record.
"""

from typing import Final, final

from _typeshed import ReadableBuffer, WriteableBuffer

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
ENTRY_SIZE: Final = 4
ENTRY_POSITION: Final = 24
ENTRY_BODY_SIZE: Final = 44
ENTRY_HEAD: Final = 48
"""Bytes of the head of a DLedger entry, which stands in front of its record."""
ENTRY_OF_RECORD: Final = 1
LAST_ENTRY_KIND: Final = 3
ENTRY_BLANK: Final = -1
MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124
MAGIC_FIRST_BYTE: Final = 0xDA
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
COMPRESSED: Final = 0x1
IS_BATCH: Final = 0xC0
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
"""A property that must be a number is none that Java can parse; a broker takes no such record as valid."""
BAD_BLANK: Final = -10
"""The magic number is that of a BLANK, but its size does not lead to the end of the segment."""

AT_LIMIT: Final = 0
"""The first of the reasons for which a walk ends: it came to the end of what it was to read."""
AT_BLANK: Final = 1
AT_DAMAGE: Final = 2
OUTPUT_FULL: Final = 3
QUEUES_FULL: Final = 4
AT_NOTHING: Final = 5
"""Nothing was written there yet, or only a part of the first eight bytes."""
AT_RECORD: Final = 6
AT_PACKED: Final = 7
"""A batch that is compressed as a whole: its messages cannot be read in place."""
MAXIMUM_QUEUES: Final = 2048
"""How many different queues one walk notes at most."""

INNER_FLAG: Final = 12
"""Position in a message of a batch."""
INNER_HEAD: Final = 20
"""Bytes of such a message before its body."""
MOST_INNER: Final = 32_767

RECENT_PIECES: Final = 64
SUM_STEP: Final = 1024
SUM_PATIENCE: Final = 16_777_216
MAXIMUM_PIECES: Final = 32768
"""More keys than one property block can hold."""

ANY_TIME: Final[int]
"""A time, in ms, before which no record was stored: it excludes none."""

CRC32_PATHS: Final[tuple[str, ...]]
"""The ways to compute checksums on this processor, the fastest first: see checksum.h."""
CRC32_PATH: Final[str]
"""The way that is used: the first one of `CRC32_PATHS`."""

def crc32(buffer: ReadableBuffer | Region) -> int:
    """CRC-32 of some bytes, unsigned; a record keeps its low 31 bits."""

def crc32_by(path: str, buffer: ReadableBuffer | Region) -> int:
    """CRC-32 of some bytes, computed in one way of `CRC32_PATHS`; raises ValueError for any other way."""

def check_shape(region: Region, position: int, stop: int, physical_offset: int) -> int:
    """Size of the record at a position if the lengths of its parts add up; does not read the body.

    As in a broker, a negative length of body or properties counts as 0, and a negative one of the topic is an error.
    """

def check_intact(region: Region, position: int, stop: int, physical_offset: int, sums: Sums | None = None) -> int:
    """Size of the record at a position if `check_shape` accepts it and its checksums match.

    These are the checksum of the body and, if the record has one, that of the whole record. A caller that checks many
    positions of one region passes the same `sums` to every call, so that bytes are not read again for each position.
    """

def check_step(region: Region, position: int, stop: int, physical_offset: int, boundary: int) -> int:
    """As :func:`check_shape`, but 0 for the BLANK that closes the segment. At least eight bytes must be readable.

    The head of a DLedger entry in front of the record counts among its bytes; so does an entry without a record.
    """

def record_start(region: Region, position: int, stop: int, physical_offset: int) -> int:
    """Position behind the heads of DLedger entries that stand at a position: itself where none does."""

def closes_segment(region: Region, position: int, left: int) -> bool:
    """Whether the eight bytes at a position are the BLANK that closes their segment, `left` bytes before its end.

    A broker writes a BLANK with exactly this size. A BLANK with another size is damage, and records may follow it.
    """

def store_timestamp(region: Region, position: int) -> int:
    """When the broker stored the record at a position, in ms; its first `MINIMUM_SIZE` bytes must be there."""

def has_sane_texts(region: Region, position: int, stop: int) -> bool:
    """Whether topic and properties of a record, which no checksum covers, have no zero byte; False without a record."""

def tag_entry_hash(region: Region, position: int, stop: int) -> int | None:
    """Hash of ``topic#T#tag``, under which the tag of a record is indexed since 5.4; None without tag or record."""

def entry_hashes(region: Region, position: int, stop: int) -> list[int] | None:
    """The hashes that one record is indexed under: those of its unique key, of each piece of KEYS, and of its tag.

    None where there is no record of sound shape: the bytes may have changed since an earlier check.
    """

@final
class Sums:
    """Checksums that one pass over a segment has computed and keeps, so that it does not read the same bytes again.

    Damaged or hostile bytes can look like records that lie in one another's bodies, up to a million of them. Checking
    each by itself would read all these bodies, which takes quadratic time. Once more than `patience` bytes were read
    for records whose checksum did not match, checksums are kept at regular distances; that of any range follows from
    them.

    A pass that goes on after damage passes the same object to every call; without one, each call makes its own. The
    object must not be used after the pass: bytes that are written after their checksum was kept are not read again.
    """

    def __new__(cls, patience: int = SUM_PATIENCE) -> Sums:
        """No checksums yet; `patience` bytes may be read in vain before any are kept, none if it is negative."""
    @property
    def summed(self) -> int:
        """How many bytes were read to compute checksums."""

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
        """The `BAD_` code that says why no record is there, if the walk ended at damage; else 0."""

def walk_records(
    region: Region, position: int, stop: int, base: int, boundary: int, checksums: bool, sums: Sums | None = None
) -> Walk:
    """Step over the records of a segment from a position on; `checksums` says whether theirs are checked.

    Entries of DLedger's that have no record are stepped over as well.
    """

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
    def inner(self) -> int:
        """How many messages of the batch at the position were taken in, where the output was full among them."""
    @property
    def first_batch(self) -> int:
        """Position of the first batch, −1 without one."""
    @property
    def last_batch(self) -> int:
        """Position of the last batch, −1 without one."""
    @property
    def reason(self) -> int:
        """AT_LIMIT, AT_BLANK, AT_DAMAGE, OUTPUT_FULL or AT_PACKED."""

def scan_keys(
    region: Region,
    position: int,
    stop: int,
    readable: int,
    base: int,
    boundary: int,
    hashes: WriteableBuffer,
    offsets: WriteableBuffer,
    inner: int = 0,
) -> Scan:
    """Write the index entries of the records that start in [position, stop), until damage or until the output is full.

    Those of each message of a batch lead to the batch's record, whose own come first; `inner` of them, of the first
    record, are there already. A batch that is compressed as a whole ends the scan after its own: AT_PACKED.
    Rolled-back records are in no index. `hashes` (int32) and `offsets` (int64) must each have room for at least
    `MAXIMUM_PIECES`, and count as full when less room is left. Raises ValueError for arrays of other integers.
    """

@final
class OffsetSpan:
    """The lowest and the highest physical offset of some entries."""

    @property
    def first(self) -> int:
        """The lowest."""
    @property
    def last(self) -> int:
        """The highest."""

def sort_entries(hashes: WriteableBuffer, offsets: WriteableBuffer) -> OffsetSpan:
    """Sort entries by hash, then by physical offset, where they lie: `hashes` (int32) and `offsets` (int64), none < 0.

    Those in the order of the log take a pass for each byte of a hash, others more. Raises ValueError for arrays of
    other integers, of different lengths, or without items.
    """

def find_candidate(region: Region, position: int, stop: int, base: int) -> int:
    """First position that has a record's magic and the right physical offset, both before `stop`; −1 for none."""

def find_recent(
    region: Region, position: int, stop: int, readable: int, base: int, earliest: int, sums: Sums | None = None
) -> int:
    """Position of the first intact record that starts in [position, stop) and was stored at `earliest` (ms) or later.

    Intact means that shape, physical offset and checksums are right. Returns `stop` if there is none. The body of a
    record that is too old is stepped over, so that no byte is read twice for a checksum.
    """

def find_record(region: Region, position: int, stop: int, base: int, sums: Sums | None = None) -> int:
    """Position of the first record at or after a position with right shape, offset and checksums; `stop` for none."""

def find_intact_backwards(region: Region, lowest: int, position: int, readable: int, base: int) -> int:
    """Position of the last intact record that starts in [lowest, position) and ends by `readable`; −1 for none."""

def find_record_backwards(region: Region, lowest: int, position: int, base: int) -> int:
    """Position of the last record in [lowest, position), going by magic and physical offset alone; −1 for none."""

@final
class Comparison:
    """Where a comparison of log and index entries ended, and why."""

    @property
    def position(self) -> int:
        """Where it ended."""
    @property
    def number(self) -> int:
        """Number of an entry; all entries before it have offsets before that position."""
    @property
    def reason(self) -> int:
        """AT_LIMIT, AT_BLANK, AT_DAMAGE, or AT_RECORD if a record was found."""

def find_record_by_entries(
    region: Region,
    position: int,
    stop: int,
    readable: int,
    base: int,
    boundary: int,
    entries: ReadableBuffer,
    number: int,
    has_tags: bool,
    complete: bool,
) -> Comparison:
    """Find the first record in [position, stop) of a segment that lacks an entry, or, if `complete`, that lacks none.

    An index may be sound in itself and yet lack records: those written again after a crash had cut the log to before
    the last entry (a broker indexes nothing below that), those written while the index was off, and those after a
    damaged record. The physical offsets of entries never decrease, so one pass over both finds every record that lacks
    an entry.

    `entries` are those of an index file from entry 0 on; all entries before entry `number` have offsets before
    `position`. An entry for the tag is required only if `has_tags`.
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
    def last_step(self) -> int:
        """Where the walk stood before that record: its position, or that of the DLedger head in front; −1 for none."""
    @property
    def before_last(self) -> int:
        """Position of the record before the last one; −1 for none."""
    @property
    def reason(self) -> int:
        """AT_LIMIT, AT_BLANK, AT_NOTHING, AT_DAMAGE or QUEUES_FULL."""
    @property
    def code(self) -> int:
        """The `BAD_` code that says why the bytes there are no intact record, or none yet; else 0."""
    @property
    def queues(self) -> list[int]:
        """Position of the first record of each queue, in ascending order."""
    @property
    def collisions(self) -> int:
        """How often the table of queues held another queue at the place where one was looked up."""

def walk_appended(region: Region, position: int, limit: int, readable: int, base: int, boundary: int) -> Appended:
    """Step over the intact records that start in [position, limit) of a segment that may just be written to."""
