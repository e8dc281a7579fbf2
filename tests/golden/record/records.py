"""A plain walk over commit log segments, apart from `storage`: what recorder and interop tests compare with."""

import socket
import struct
from dataclasses import dataclass

MESSAGE_V1, MESSAGE_V2 = 0xDAA320A7, 0xDAA320AB
LEDGER_HEAD = 48
LEDGER_KINDS = (1, 2, 3)
"""What the heads of DLedger entries begin with: those that hold a record, nothing, a change of the group."""
BORN_HOST_IS_IPV6, STORE_HOST_IS_IPV6 = 0x10, 0x20


@dataclass(frozen=True)
class Record:
    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[bytes, int]
    store_timestamp: int
    store_host: tuple[bytes, int]
    reconsume_times: int
    body: bytes
    properties: dict[str, str]

    @property
    def offset_message_id(self) -> str:
        address, port = self.store_host
        return (address + struct.pack(">iq", port, self.physical_offset)).hex().upper()


class Cursor:
    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._data, self._position)
        self._position += struct.calcsize(form)
        return value

    def take(self, length: int) -> bytes:
        self._position += length
        return self._data[self._position - length : self._position]

    def host(self, *, wide: bool) -> tuple[bytes, int]:
        return self.take(16 if wide else 4), self.number("i")


def walk(directories):
    """All records of the segments in ``directories``, in the order of their physical offsets.

    Folders that are not there hold none. Before a record a head of DLedger's may stand.
    """
    folders = [folder for folder in directories if folder.is_dir()]
    segments = sorted((path for folder in folders for path in folder.iterdir()), key=lambda path: int(path.name))
    for segment in segments:
        data, position = segment.read_bytes(), 0
        while position + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, position)
            if size in LEDGER_KINDS and magic >= LEDGER_HEAD:
                position += LEDGER_HEAD if size == LEDGER_KINDS[0] else magic
                continue
            if magic not in (MESSAGE_V1, MESSAGE_V2):
                break
            yield _record(data[position : position + size], wide_topic=magic == MESSAGE_V2)
            position += size


def host_text(host: tuple[bytes, int]) -> str:
    address = host[0]
    return socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)


def _record(data: bytes, *, wide_topic: bool) -> Record:
    cursor = Cursor(data)
    cursor.take(12)
    queue_id, flag = cursor.number("i"), cursor.number("i")
    queue_offset, physical_offset, sys_flag = cursor.number("q"), cursor.number("q"), cursor.number("i")
    born_timestamp, born_host = cursor.number("q"), cursor.host(wide=bool(sys_flag & BORN_HOST_IS_IPV6))
    store_timestamp, store_host = cursor.number("q"), cursor.host(wide=bool(sys_flag & STORE_HOST_IS_IPV6))
    reconsume_times, _ = cursor.number("i"), cursor.number("q")
    body = cursor.take(cursor.number("i"))
    topic = cursor.take(cursor.number("h" if wide_topic else "b")).decode()
    properties = cursor.take(cursor.number("h")).decode()
    pairs = (pair.partition("\x01") for pair in properties.split("\x02") if "\x01" in pair)
    return Record(
        physical_offset, topic, queue_id, queue_offset, flag, sys_flag, born_timestamp, born_host, store_timestamp,
        store_host, reconsume_times, body, {name: value for name, _, value in pairs},
    )  # fmt: skip
