"""The messages of a log as entries that can be compared whatever their place: queue, offset, and digests of contents.

Entries are dealt out to buckets by what they are compared by, so that only one bucket of both logs is in memory at a
time. The *content* is what a producer sent and the message's place in its queue; *raw* is the whole record.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.checksum import PROPERTY_CRC_SIZE, property_crc
from protocol.java_hash import decode_java
from protocol.message_layout import INT, V4_V4_FIXED, fixed_struct, locate
from storage.columns.rows import PIECE_BYTES, MessageRows, RowReader
from storage.columns.wanted import Wanted
from storage.diff._log_pieces import Notify
from storage.kernels.texts import bytes_at
from storage.log.commit_log import Segment
from storage.log.damaged_ranges import DamagedRange
from storage.log.log_window import LocalFile, LogWindow

ENTRY: Final = np.dtype(
    [("queue", "<i8"), ("offset", "<i8"), ("content", "<u8"), ("raw", "<u8"), ("physical_offset", "<i8")]
)
BYTES_A_BUCKET: Final = 256 * 1024 * 1024
"""Of log; its entries are a tenth of that, if messages are small."""

MOST_BUCKETS: Final = 400
RUN_BITS: Final = 16
"""Neighbours in a queue are in one bucket, so that ranges are found in it."""

_QUEUED: Final = (0, 8)
"""Transaction bits of messages that are in a queue: of no transaction, or committed."""

_DIGEST_BYTES: Final = 8

Entries = npt.NDArray[np.void]


@dataclass
class QueueNames:
    """Numbers of queues, the same for both logs. What is in no queue is numbered apart, by the topic it names."""

    names: list[tuple[str, int, bool]] = field(default_factory=list)
    """Topic, queue id, and whether the messages are queued."""
    _numbers: dict[tuple[bytes, int, bool], int] = field(default_factory=dict)

    def number(self, topic: bytes, queue_id: int, *, is_queued: bool) -> int:
        """The number of a queue."""
        key = topic, queue_id, is_queued
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.names)
            self.names.append((decode_java(topic), queue_id, is_queued))
        return number


class Buckets:
    """Entries of one log, in files of a directory."""

    def __init__(self, directory: Path, name: str, count: int) -> None:
        """`count` of them."""
        self._paths = [directory / f"{name}-{number}" for number in range(count)]

    def add(self, entries: Entries) -> None:
        """Deal some out."""
        count = len(self._paths)
        runs = (entries["offset"] >> RUN_BITS) * 1_000_003 + entries["queue"]
        numbers = runs % count
        for number in np.unique(numbers).tolist():
            with self._paths[number].open("ab") as file:
                entries[numbers == number].tofile(file)

    def read(self, number: int) -> Entries:
        """One of them."""
        path = self._paths[number]
        return np.fromfile(path, ENTRY) if path.exists() else np.empty(0, ENTRY)


def bucket_count(size: int) -> int:
    """How many buckets so many bytes of log need."""
    return min(max(-(-size // BYTES_A_BUCKET), 1), MOST_BUCKETS)


def collect(segment: Segment, names: QueueNames, buckets: Buckets, notify: Notify) -> list[DamagedRange]:
    """Put the entries of a segment into buckets; return its damaged ranges."""
    with LogWindow(LocalFile(segment.file.path), segment.base_offset, PIECE_BYTES) as window:
        reader = RowReader(window, Wanted(), boundary=segment.boundary)
        before = 0
        for rows in reader.read(0, segment.valid_length):
            buckets.add(entries_of(rows, names))
            notify(reader.position - before)
            before = reader.position
        return reader.damage


def entries_of(rows: MessageRows, names: QueueNames) -> Entries:
    """The entries of some messages."""
    entries = np.empty(len(rows), ENTRY)
    starts, sizes = rows.table["position"].tolist(), rows.table["size"].tolist()
    for number, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        entries[number] = entry_of(bytes_at(rows.region, start, size), names)
    return entries


def entry_of(record: bytes, names: QueueNames) -> tuple[int, int, int, int, int]:
    """The entry of one record of sound shape."""
    places = locate(record)
    fields = V4_V4_FIXED.unpack_from(record) if places.fixed is V4_V4_FIXED else places.fixed.unpack_from(record)
    queue_id, queue_offset, physical_offset, sys_flag = fields[3], fields[5], fields[6], fields[7]
    content = _digest(content_of(record))
    is_queued = sys_flag & 0xC in _QUEUED
    topic = record[places.topic : places.topic + places.topic_length]
    queue = names.number(topic, queue_id, is_queued=is_queued)
    # Messages that are in no queue all have the same offset: there the content distinguishes them.
    offset = queue_offset if is_queued else content >> 1
    return queue, offset, content, _digest(record), physical_offset


def content_of(record: bytes) -> bytes:
    """Return the parts of a record that are equal wherever it is stored: no places, no broker's clock or address."""
    places = locate(record)
    (sys_flag,) = INT.unpack_from(record, 36)
    after_hosts = fixed_struct(sys_flag).size - 16
    born_end = 56 if not sys_flag & 0x10 else 68
    end = len(record) - (PROPERTY_CRC_SIZE if property_crc(record) is not None else 0)
    topic_and_more = record[places.fixed.size : end]
    return b"".join((record[12:20], record[36:born_end], record[after_hosts : after_hosts + 4], topic_and_more))


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest(), "little")
