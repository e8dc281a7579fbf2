"""What the code is compared with: the same answers by loops and dictionaries, from the reference documents alone.

Nothing here imports the project. Speed does not matter; being obvious does. Section numbers are those of the
store-format reference.
"""

import itertools
import struct
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

V1_MAGIC, V2_MAGIC, BLANK_MAGIC = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
MAGICS = {magic.to_bytes(4, "big"): magic for magic in (V1_MAGIC, V2_MAGIC)}
ROLLBACK = 0xC
END_OF_TIME = 2**63 - 1


def signed(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "big", signed=True)


def packed(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


# --- Java strings (store-format §2.5, §3.3) -------------------------------------------------------------------------


def java_hash(text: str) -> int:
    """`String.hashCode`: one step a UTF-16 code unit, wrapped at every step."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[position : position + 2], "big")) % 2**32
    return value - 2**32 if value >= 2**31 else value


def index_hash(text: str) -> int:
    """What an index entry holds for the string `text`."""
    value = java_hash(text)
    return 0 if value == -(2**31) else abs(value)


def decode_java(data: bytes) -> str:
    """`new String(data, UTF_8)`: a sequence is its character, or as far as it may be the start of one a single U+FFFD.

    In Java the start of a three-byte sequence does not yet rule out surrogates; that is where Python differs.
    """
    if data.isascii():
        return data.decode("ascii")
    text, position = "", 0
    while position < len(data):
        taken, character = _java_step(data, position)
        text += character
        position += taken
    return text


def _java_step(data: bytes, position: int) -> tuple[int, str]:
    """How many bytes the next character takes, and which it is."""
    first = data[position]
    if first < 0x80:
        return 1, chr(first)
    if 0xC2 <= first <= 0xDF:
        size = 2
    elif 0xE0 <= first <= 0xEF:
        size = 3
    elif 0xF0 <= first <= 0xF4:
        size = 4
    else:
        return 1, "\ufffd"
    taken = 1
    while taken < size:
        if position + taken >= len(data) or not 0x80 <= (byte := data[position + taken]) <= 0xBF:
            return taken, "\ufffd"
        if taken == 1 and (
            (first == 0xE0 and byte < 0xA0) or (first == 0xF0 and byte < 0x90) or (first == 0xF4 and byte > 0x8F)
        ):
            return 1, "\ufffd"
        taken += 1
    code = first & (0xFF >> (size + 1))
    for byte in data[position + 1 : position + size]:
        code = code << 6 | byte & 0x3F
    return size, "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)


# --- properties (store-format §2.5) ---------------------------------------------------------------------------------


def parse_properties(text: str) -> dict[str, str]:
    """The broker's parser, line by line, on the decoded string."""
    properties: dict[str, str] = {}
    index = 0
    while index < len(text):
        end = text.find("\x02", index)
        if end < 0:
            end = len(text)
        if end - index >= 3:
            separator = text.find("\x01", index)
            if index < separator < end - 1:
                properties[text[index:separator]] = text[separator + 1 : end]
        index = end + 1
    return properties


def split_keys(keys: str) -> list[str]:
    """KEYS by single spaces, without empty pieces."""
    return [piece for piece in keys.split(" ") if piece]


# --- records (store-format §2.2, §2.8) ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """One record of the log, all 17 fields; hosts as (raw address, port), topic and properties undecoded too.

    What is decoded is kept: `query` asks every record for it, for every key.
    """

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[bytes, int]
    store_timestamp: int
    store_host: tuple[bytes, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic_bytes: bytes
    properties_bytes: bytes

    @cached_property
    def topic(self) -> str:
        return decode_java(self.topic_bytes)

    @cached_property
    def properties(self) -> dict[str, str]:
        return parse_properties(decode_java(self.properties_bytes))

    @cached_property
    def keys(self) -> list[str]:
        return split_keys(self.properties.get("KEYS", ""))


def messages_of(record: Record) -> list[Record]:
    """The messages of a batch in one record, as a consumer has them (store-format §2.9); else the record itself."""
    if record.sys_flag & 0xC0 != 0xC0:
        return [record]
    found: list[Record] = []
    try:
        body = zlib.decompress(record.body) if record.sys_flag & 1 and record.body else record.body
        cursor = _Cursor(body)
        while cursor.position < len(cursor.data):
            start = cursor.position
            *_, flag, length = cursor.integers(INNER)
            body = cursor.raw(length)
            (length,) = cursor.integers(SHORT)
            properties = cursor.raw(length)
            found.append(
                replace(
                    record,
                    total_size=cursor.position - start,
                    body_crc=zlib.crc32(body) & 0x7FFFFFFF,
                    flag=flag,
                    queue_offset=record.queue_offset + len(found),
                    sys_flag=record.sys_flag & ~0x7C1,
                    body=body,
                    properties_bytes=properties,
                )
            )
    except (_TooShort, zlib.error):
        return [record]
    return found or [record]


def read_record(data, position, physical_offset=None, *, check_crc=True):
    """The record at `position` of `data` if there is a valid one: magic, own offset, all lengths, body CRC."""
    magic = MAGICS.get(bytes(data[position + 4 : position + 8]))
    if magic is None or len(data) - position < 91:
        return None
    size = signed(data, position, 4)
    if not 91 <= size <= len(data) - position:
        return None
    try:
        record = _read_fields(data[position : position + size], magic)
    except _TooShort:
        return None
    if physical_offset is not None and record.physical_offset != physical_offset:
        return None
    if check_crc and record.body and zlib.crc32(record.body) & 0x7FFFFFFF != record.body_crc:
        return None
    return record


BYTE, SHORT, INT, LONG = (struct.Struct(">" + letter) for letter in "bhiq")
HEAD, BEFORE_BODY = struct.Struct(">iiiiiqqiq"), struct.Struct(">iqi")
INNER = struct.Struct(">iiiii")
"""Signed integers of 1 (b), 2 (h), 4 (i) and 8 bytes (q): fields of a record between those of any length."""


class _TooShort(Exception):
    """A length leads out of the record, or is negative where Java fails on it."""


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def raw(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            raise _TooShort
        self.position += size
        return self.data[self.position - size : self.position]

    def integers(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.raw(form.size))


def _read_fields(data: bytes, magic: int) -> Record:
    cursor = _Cursor(data)
    total_size, _, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp = cursor.integers(HEAD)
    born_host = cursor.raw(16 if sys_flag & 0x10 else 4), *cursor.integers(INT)
    (store_timestamp,) = cursor.integers(LONG)
    store_host = cursor.raw(16 if sys_flag & 0x20 else 4), *cursor.integers(INT)
    reconsume_times, prepared_transaction_offset, body_size = cursor.integers(BEFORE_BODY)
    body = cursor.raw(max(0, body_size))
    topic = cursor.raw(*cursor.integers(BYTE if magic == V1_MAGIC else SHORT))
    (properties_size,) = cursor.integers(SHORT)
    properties = cursor.raw(max(0, properties_size))
    if cursor.position != total_size:
        raise _TooShort
    return Record(
        total_size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host,
        store_timestamp, store_host, reconsume_times, prepared_transaction_offset, body, topic, properties,
    )  # fmt: skip


def property_crc_holds(record: bytes) -> bool:
    """Whether the checksum that may close a record, ten digits backwards, is that of everything before it."""
    last, value = record[-20:], record[-11:-1]
    if not (last.startswith(b"__CRC32#\x01") and last.endswith(b"\x02") and value.isdigit()):
        return True
    return int(value[::-1]) == zlib.crc32(record[:-20]) & 0x7FFFFFFF


def scan_segment(data, base_offset):
    position = behind_heads(data, 0, base_offset)
    while record := read_record(data, position, base_offset + position):
        yield record
        position = behind_heads(data, position + record.total_size, base_offset)


def behind_heads(data: bytes, position: int, base_offset: int) -> int:
    """Where a record may start behind the heads of DLedger entries at a position (other-formats §1)."""
    while len(data) - position >= 48:
        kind, size, place = signed(data, position, 4), signed(data, position + 4, 4), signed(data, position + 24, 8)
        body = signed(data, position + 44, 4)
        if kind not in (1, 2, 3) or size < 48 or place != base_offset + position or body != size - 48:
            break
        if kind == 1:
            return position + 48
        if size > len(data) - position:
            break
        position += size
    return position


def is_closing_blank(data: bytes, position: int, length: int) -> bool:
    """Whether a segment of `length` bytes, of which `data` are there, is closed by a BLANK at `position`.

    A writer gives it all that is left of the segment; one that says anything else is no writer's (store-format §2.4).
    DLedger's has another number, and its size behind it (other-formats §1).
    """
    head, left = data[position : position + 8], packed(length - position, 4)
    return position < length and head in (left + BLANK_MAGIC.to_bytes(4, "big"), packed(-1, 4) + left)


def read_log(directories):
    found = [directories] if isinstance(directories, Path) else list(directories)
    segments = {int(path.name): path for directory in found for path in directory.iterdir() if path.name.isdigit()}
    return [record for base, path in sorted(segments.items()) for record in scan_segment(path.read_bytes(), base)]


# --- index build (store-format §3.2 to §3.9, §10) -------------------------------------------------------------------


def index_keys(record: Record, profile: str = "5.5") -> list[str]:
    if record.sys_flag & ROLLBACK == ROLLBACK:
        return []
    properties, topic = record.properties, record.topic
    keys = [f"{topic}#{properties['UNIQ_KEY']}"] if "UNIQ_KEY" in properties else []
    keys += [f"{topic}#{key}" for key in split_keys(properties.get("KEYS", ""))]
    if profile == "5.5" and properties.get("TAGS"):
        keys.append(f"{topic}#T#{properties['TAGS']}")
    return keys


ENTRY = struct.Struct(">iqii")

SLOT = struct.Struct(">i")


@dataclass
class IndexImage:
    """One index file while it is built: slot → entry number, and the entries from number 1 on."""

    slot_count: int
    entry_count: int
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0

    def __post_init__(self) -> None:
        self.slots: dict[int, int] = {}
        self.entries: list[tuple[int, int, int, int]] = []

    @property
    def index_count(self) -> int:
        return len(self.entries) + 1

    @property
    def is_full(self) -> bool:
        return self.index_count >= self.entry_count

    @property
    def size(self) -> int:
        return 40 + 4 * self.slot_count + 20 * self.entry_count

    def successor(self) -> "IndexImage":
        time, offset = self.end_timestamp, self.end_physical_offset
        return IndexImage(self.slot_count, self.entry_count, time, time, offset, offset)

    def put(self, text: str, physical_offset: int, store_timestamp: int) -> None:
        hash_value = index_hash(text)
        slot = hash_value % self.slot_count
        previous = self.slots.get(slot, 0)
        seconds = 0
        if self.begin_timestamp > 0:
            difference = store_timestamp - self.begin_timestamp
            seconds = min(max(difference // 1000 if difference >= 0 else 0, 0), 2**31 - 1)
        number = self.index_count
        self.entries.append((hash_value, physical_offset, seconds, previous))
        self.slots[slot] = number
        if number == 1:
            self.begin_physical_offset, self.begin_timestamp = physical_offset, store_timestamp
        if previous == 0:
            self.hash_slot_count += 1
        self.end_physical_offset, self.end_timestamp = physical_offset, store_timestamp

    def header(self) -> bytes:
        numbers = (self.begin_timestamp, self.end_timestamp, self.begin_physical_offset, self.end_physical_offset)
        counts = packed(self.hash_slot_count, 4) + packed(self.index_count, 4)
        return b"".join(packed(number, 8) for number in numbers) + counts

    def entry_bytes(self) -> bytes:
        return b"".join(itertools.starmap(ENTRY.pack, self.entries))

    def slot_bytes(self) -> bytes:
        data = bytearray(4 * self.slot_count)
        for slot, number in self.slots.items():
            SLOT.pack_into(data, 4 * slot, number)
        return bytes(data)

    def to_bytes(self) -> bytes:
        return (self.header() + self.slot_bytes() + bytes(20) + self.entry_bytes()).ljust(self.size, b"\0")


def index_image(keys, slots=7, entries=30):
    """An index file of a topic T, whose entries are 100 bytes of log and a second apart."""
    image = IndexImage(slots, entries)
    for number, key in enumerate(keys):
        image.put(f"T#{key}", 100 * (number + 1), 1_700_000_000_000 + 1000 * number)
    return image


class IndexBuilder:
    """The chain of index files that a broker makes of the records it dispatches, one after the other."""

    def __init__(self, slot_count: int, entry_count: int, profile: str = "5.5") -> None:
        self.slot_count, self.entry_count, self.profile = slot_count, entry_count, profile
        self.files: list[IndexImage] = []

    def dispatch(self, record: Record) -> None:
        """One record: even one without keys makes the broker open the next file when the last one is full."""
        current = self._open_file()
        if record.physical_offset < current.end_physical_offset:
            return
        for text in index_keys(record, self.profile):
            self._open_file().put(text, record.physical_offset, record.store_timestamp)

    def _open_file(self) -> IndexImage:
        if not self.files or self.files[-1].is_full:
            seed = self.files[-1].successor() if self.files else IndexImage(self.slot_count, self.entry_count)
            self.files.append(seed)
        return self.files[-1]


def build_index(records, slot_count, entry_count, profile="5.5"):
    """The bytes of every index file, in order, for a log that a broker indexed from its first record on."""
    builder = IndexBuilder(slot_count, entry_count, profile)
    for record in records:
        builder.dispatch(record)
    return [image.to_bytes() for image in builder.files]


def walk_chain(index_file: bytes, slot_count: int, hash_value: int) -> list[int]:
    """The physical offsets of the entries with `hash_value`, newest first; the chain must strictly descend."""
    count = min(signed(index_file, 36, 4), (len(index_file) - 40 - 4 * slot_count) // 20)
    number = signed(index_file, 40 + 4 * (hash_value % slot_count), 4)
    offsets, bound = [], max(count, 1)
    while 0 < number < bound:
        entry = 40 + 4 * slot_count + 20 * number
        if signed(index_file, entry, 4) == hash_value:
            offsets.append(signed(index_file, entry + 4, 8))
        bound, number = number, signed(index_file, entry + 16, 4)
    return offsets


def first_bad_entry(index_file: bytes, slot_count: int, entry_count: int) -> int:
    """0 if every pointer and slot follows from the hashes, else the first wrong entry's number.

    A wrong slot counts as entry `entry_count + 1 + slot`; slots are looked at last.
    """
    newest = dict.fromkeys(range(slot_count), 0)
    first = 40 + 4 * slot_count
    for number in range(1, entry_count + 1):
        entry = first + 20 * number
        hash_value = signed(index_file, entry, 4)
        if hash_value < 0 or signed(index_file, entry + 16, 4) != newest[hash_value % slot_count]:
            return number
        newest[hash_value % slot_count] = number
    wrong = [slot for slot in newest if signed(index_file, 40 + 4 * slot, 4) != newest[slot]]
    return entry_count + 1 + wrong[0] if wrong else 0


def lacks_entry(record, entries, has_tags):
    """Whether one of the strings a record is indexed under has no entry (hash, physical offset) among those given."""
    texts = index_keys(record, "5.5" if has_tags else "5.3")
    return not {(index_hash(text), record.physical_offset) for text in texts} <= set(entries)


def has_key(record: Record, key: str, kind: str) -> bool:
    """Whether `key` names the record: kind K (a piece of KEYS), U (unique key), T (tag), or ANY (K or U)."""
    if kind == "T":
        return record.properties.get("TAGS") == key
    if kind != "K" and record.properties.get("UNIQ_KEY") == key:
        return True
    return kind != "U" and key in record.keys


def query(records, topic, key, *, kind="ANY", maximum=64, begin=0, end=END_OF_TIME, before_offset=END_OF_TIME):
    """The exact answer by scanning everything: physical offsets, ascending, of the newest `maximum` matches.

    A match has the topic and the key, starts below `before_offset` and, but for unique keys, was stored within
    [begin, end]. Rolled-back messages are not indexed and not found.
    """
    offsets = {
        record.physical_offset
        for record in records
        if record.topic == topic
        and record.sys_flag & ROLLBACK != ROLLBACK
        and has_key(record, key, kind)
        and (kind == "U" or begin <= record.store_timestamp <= end)
        and record.physical_offset < before_offset
    }
    return sorted(offsets)[-maximum:] if maximum > 0 else []


def lookup(index_files, scanned, records, topic, key, *, kind="ANY", **window):
    """The answer of an index that is only a hint: what it proposes of what `query` finds, oldest first, all of it.

    `index_files` are bytes and slot counts; `scanned` further entries as (hash, physical offset).
    """
    hash_value = index_hash(f"{topic}#T#{key}" if kind == "T" else f"{topic}#{key}")
    proposed = {offset for hashed, offset in scanned if hashed == hash_value}
    for index_file, slot_count in index_files:
        proposed.update(walk_chain(index_file, slot_count, hash_value))
    known = [record for record in records if record.physical_offset in proposed]
    return query(known, topic, key, kind=kind, maximum=len(known) + 1, **window)


# --- queues (store-format §2.13, §5.1) ------------------------------------------------------------------------------

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


def delay_milliseconds(level: int, levels: str = DEFAULT_DELAY_LEVELS) -> int:
    """How long a message of a delay level waits; an unknown level waits a second."""
    items = levels.split(" ")
    if not 1 <= level <= len(items):
        return 1000
    return int(items[level - 1][:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[items[level - 1][-1]] * 1000


def tags_code(record: Record, levels: str = DEFAULT_DELAY_LEVELS) -> int:
    """The 64-bit tag code of a queue unit: the tag's hash, or for a scheduled message when it is due."""
    properties = record.properties
    if record.topic == SCHEDULE_TOPIC and "DELAY" in properties:
        level = min(int(properties["DELAY"]), len(levels.split(" ")))
        if level > 0:
            return record.store_timestamp + delay_milliseconds(level, levels)
    return java_hash(properties["TAGS"]) if properties.get("TAGS") else 0


def is_queued(record: Record) -> bool:
    """Whether a record gets a queue unit: plain and committed messages do."""
    return record.sys_flag & 0xC in (0, 0x8)


def queue_unit(record: Record, levels: str = DEFAULT_DELAY_LEVELS) -> bytes:
    return packed(record.physical_offset, 8) + packed(record.total_size, 4) + packed(tags_code(record, levels), 8)
