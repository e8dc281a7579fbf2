"""A plain walk over commit log segments, apart from `storage`: what the recorder has to ask about."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MESSAGE_V1, MESSAGE_V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
BORN_HOST_IS_IPV6, STORE_HOST_IS_IPV6 = 0x10, 0x20


@dataclass(frozen=True)
class Record:
    """What identifies one stored message."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    properties: dict[str, str]


def walk(directories: Iterable[Path]) -> Iterator[Record]:
    """All records of the segments in ``directories``, in the order of their physical offsets."""
    segments = sorted((path for folder in directories for path in folder.iterdir()), key=lambda path: int(path.name))
    for segment in segments:
        data, position = segment.read_bytes(), 0
        while position + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, position)
            if magic not in (MESSAGE_V1, MESSAGE_V2):
                break
            yield _record(data[position : position + size], wide_topic=magic == MESSAGE_V2)
            position += size


def _record(data: bytes, *, wide_topic: bool) -> Record:
    queue_id, _, queue_offset, physical_offset, sys_flag = struct.unpack_from(">iiqqi", data, 12)
    position = 48 + (20 if sys_flag & BORN_HOST_IS_IPV6 else 8)
    (store_timestamp,) = struct.unpack_from(">q", data, position)
    position += 8 + (20 if sys_flag & STORE_HOST_IS_IPV6 else 8) + 4 + 8
    position += 4 + struct.unpack_from(">i", data, position)[0]
    (topic_length,) = struct.unpack_from(">h" if wide_topic else ">b", data, position)
    position += 2 if wide_topic else 1
    topic = data[position : position + topic_length].decode()
    properties = data[position + topic_length + 2 :].decode()
    pairs = (pair.split("\x01", 1) for pair in properties.split("\x02") if "\x01" in pair)
    return Record(physical_offset, topic, queue_id, queue_offset, store_timestamp, {pair[0]: pair[1] for pair in pairs})
