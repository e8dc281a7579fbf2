"""The files of a store as its writer needs them: records packed; log, queues and index grown piece by piece."""

import functools
import os
import zlib
from ipaddress import ip_address

from oracles import BLANK_MAGIC, V1_MAGIC, V2_MAGIC, packed

PRE_BLANK = packed(0, 8) + packed(0x7FFFFFFF, 4) + packed(0, 8)


# --- records (store-format §2.2, §2.6, §2.9) ------------------------------------------------------------------------


@functools.cache
def host_bytes(host):
    return ip_address(host[0]).packed + packed(host[1], 4)


def with_host_bits(sys_flag, born_host, store_host):
    """`sys_flag` with bits 4 and 5 as the two hosts need them."""
    sys_flag &= ~0x30
    return sys_flag | (0x10 if ":" in born_host[0] else 0) | (0x20 if ":" in store_host[0] else 0)


def property_bytes(properties):
    return b"".join(
        name.encode("utf-8", "replace") + b"\x01" + value.encode("utf-8", "replace") + b"\x02"
        for name, value in properties.items()
    )


def body_crc(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


def pack_record(
    *,
    topic_bytes,
    body,
    properties_bytes,
    queue_id,
    flag,
    queue_offset,
    physical_offset,
    sys_flag,
    born_timestamp,
    born_host,
    store_timestamp,
    store_host,
    reconsume_times,
    prepared_transaction_offset,
    magic=None,
    crc=None,
    property_crc=False,
):
    """One record, 17 fields. Without `magic`, a topic of more than 127 bytes makes it V2."""
    if magic is None:
        magic = V2_MAGIC if len(topic_bytes) > 127 else V1_MAGIC
    properties_length = len(properties_bytes) + (20 if property_crc else 0)
    rest = b"".join(
        (
            packed(body_crc(body) if crc is None else crc, 4),
            packed(queue_id, 4),
            packed(flag, 4),
            packed(queue_offset, 8),
            packed(physical_offset, 8),
            packed(sys_flag, 4),
            packed(born_timestamp, 8),
            host_bytes(born_host),
            packed(store_timestamp, 8),
            host_bytes(store_host),
            packed(reconsume_times, 4),
            packed(prepared_transaction_offset, 8),
            packed(len(body), 4) + body,
            packed(len(topic_bytes), 1 if magic == V1_MAGIC else 2) + topic_bytes,
            packed(properties_length, 2) + properties_bytes,
        )
    )
    size = 8 + len(rest) + (20 if property_crc else 0)
    record = packed(size, 4) + magic.to_bytes(4, "big") + rest
    if not property_crc:
        return record
    digits = str(body_crc(record)).zfill(10)[::-1]
    return record + b"__CRC32#\x01" + digits.encode() + b"\x02"


def pack_batch(messages, flag=0):
    parts = []
    for body, properties in messages:
        block = property_bytes(properties)
        size = 22 + len(body) + len(block)
        parts.append(packed(size, 4) + bytes(8) + packed(flag, 4) + packed(len(body), 4) + body)
        parts.append(packed(len(block), 2) + block)
    return b"".join(parts)


def write_file(path, size, pieces) -> None:
    """A sparse file of `size` bytes that holds each piece at its position; an existing one is changed in place."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.ftruncate(descriptor, size)
        for position, piece in pieces.items():
            os.pwrite(descriptor, piece, position)
    finally:
        os.close(descriptor)


LEDGER_HEAD = 48


def pack_entry(body: bytes, position: int, *, index: int, kind: int = 1) -> bytes:
    """One entry of DLedger's: a head and its record (other-formats §1)."""
    size = packed(len(body), 4)
    head = packed(kind, 4) + packed(LEDGER_HEAD + len(body), 4) + packed(index, 8) + packed(0, 8) + packed(position, 8)
    return head + bytes(12) + size + body


class LogFiles:
    """The commit log: equal segments, each in the directory whose turn it is, closed by a BLANK (store-format §2.4).

    In a log that `is_ledger` a head stands in front of every record, and BLANKs are DLedger's (other-formats §1).
    """

    def __init__(self, directories, segment_size, start, padding, *, is_ledger=False) -> None:
        if start % segment_size:
            raise ValueError(f"a log starts at a multiple of its segment size {segment_size}, not at {start}")
        self.directories, self.segment_size, self.padding = list(directories), segment_size, padding
        self.end = start
        self.is_ledger, self.entries = is_ledger, 0
        self.segments = {}
        for directory in self.directories:
            directory.mkdir(parents=True, exist_ok=True)

    def make_room(self, size: int) -> int:
        """The physical offset at which `size` bytes may start: here, or behind a BLANK in the next segment.

        In a ledger that is behind a head, which :meth:`write_record` puts there.
        """
        if self.is_ledger:
            return self._make_room(size + LEDGER_HEAD) + LEDGER_HEAD
        return self._make_room(size)

    def write_record(self, data: bytes) -> None:
        if self.is_ledger:
            data = pack_entry(data, self.end, index=self.entries)
            self.entries += 1
        self.write(data)

    def write_empty_entry(self, kind: int = 2, body: bytes = b"") -> None:
        """Put an entry without a record, as a member group does when it elects, or changes."""
        self._make_room(LEDGER_HEAD + len(body))
        self.write(pack_entry(body, self.end, index=self.entries, kind=kind))
        self.entries += 1

    def _make_room(self, size: int) -> int:
        if size + 8 > self.segment_size:
            raise ValueError(f"a record of {size} bytes never fits a segment of {self.segment_size}")
        if size + 8 > self.segment_size - self.end % self.segment_size:
            self.roll()
        return self.end

    def roll(self) -> None:
        """Close the segment with a BLANK; at the start of a segment, that is all it holds."""
        room = self.segment_size - self.end % self.segment_size
        stale = (self.padding * room)[: room - 8]
        left = packed(room, 4)
        self.write((packed(-1, 4) + left if self.is_ledger else left + BLANK_MAGIC.to_bytes(4, "big")) + stale)
        self.end += room - 8 - len(stale)

    def skip_segments(self, count: int = 1) -> None:
        if self.end % self.segment_size:
            self.roll()
        self.end += count * self.segment_size

    def write(self, data: bytes) -> int:
        """Put `data` at the end, whatever it is; returns where it starts."""
        start = self.end
        self.overwrite(start, data)
        self.end += len(data)
        return start

    def overwrite(self, physical_offset: int, data: bytes) -> None:
        """Change bytes of one segment, which comes into being if there is none yet."""
        base = physical_offset - physical_offset % self.segment_size
        path = self.segments.setdefault(base, self._path(base))
        write_file(path, self.segment_size, {physical_offset - base: data})

    def add_empty_segment(self) -> None:
        base = self.end - self.end % self.segment_size + self.segment_size
        self.segments[base] = self._path(base)
        write_file(self.segments[base], self.segment_size, {})

    def _path(self, base):
        turn = base // self.segment_size % len(self.directories)
        return self.directories[turn] / f"{base:020d}"


# --- queues (store-format §5.1, §5.2, §5.7, §5.8) -------------------------------------------------------------------


class UnitFiles:
    """One logical stream cut into files named by byte offset; what is written lies in memory until `flush`."""

    def __init__(self, directory, file_size) -> None:
        self.directory, self.file_size = directory, file_size
        self.files: dict[int, bytearray] = {}

    def last(self, start_of_first: int = 0) -> tuple[int, bytearray]:
        """Start and content of the file to write to: the last one, or a new one when there is none or it is full."""
        start = max(self.files, default=-1)
        if start < 0:
            start = start_of_first
        elif len(self.files[start]) >= self.file_size:
            start += self.file_size
        return start, self.files.setdefault(start, bytearray())

    def flush(self) -> None:
        for start, content in self.files.items():
            write_file(self.directory / f"{start:020d}", self.file_size, {0: bytes(content)})


class ConsumeQueueFiles(UnitFiles):
    """20-byte units, by the broker's append rules."""

    max_physical_offset = -1

    def put(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        if physical_offset + size <= self.max_physical_offset:
            return
        expected = queue_offset * 20
        is_first = not self.files
        start, content = self.last(expected - expected % self.file_size)
        if is_first and queue_offset:
            content += PRE_BLANK * ((expected - start) // 20)
        if queue_offset and expected < start + len(content):
            return
        self.max_physical_offset = physical_offset + size
        content += packed(physical_offset, 8) + packed(size, 4) + packed(tags_code, 8)


class ConsumeQueueExtFiles(UnitFiles):
    def put(self, tags_code: int, store_timestamp: int, bit_map: bytes) -> int:
        """Write a unit; the value for the queue unit's tag code."""
        size = 20 + len(bit_map)
        start, content = self.last()
        if size > self.file_size - len(content) - 4:
            content += packed(-1, 2).ljust(self.file_size - len(content), b"\0")
            start, content = self.last()
        position = start + len(content)
        content += packed(size, 2) + packed(tags_code, 8) + packed(store_timestamp, 8)
        content += packed(len(bit_map), 2) + bit_map
        return -(2**63) + position


class BatchConsumeQueueFiles(UnitFiles):
    """46-byte units, whose place has nothing to do with the queue offset."""

    max_physical_offset = -1

    def put(self, physical_offset, size, tags_code, store_timestamp, base_offset, batch_size) -> None:
        if physical_offset <= self.max_physical_offset or base_offset < 0:
            return
        self.max_physical_offset = physical_offset
        _, content = self.last()
        content += packed(physical_offset, 8) + packed(size, 4) + packed(tags_code, 8) + packed(store_timestamp, 8)
        content += packed(base_offset, 8) + packed(batch_size, 2) + packed(-1, 4) + packed(0, 4)


def write_index_file(path, image) -> None:
    """An index file: header, the slots in use, the entries; the rest is a hole."""
    first_entry = 40 + 4 * image.slot_count + 20
    if image.slot_count <= 1000:  # they lie in the page of the header: nothing of them is a hole
        write_file(path, image.size, {0: image.header() + image.slot_bytes(), first_entry: image.entry_bytes()})
        return
    pieces = {40 + 4 * slot: packed(number, 4) for slot, number in image.slots.items()}
    write_file(path, image.size, {0: image.header(), **pieces, first_entry: image.entry_bytes()})
