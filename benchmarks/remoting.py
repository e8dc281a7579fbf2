"""Just enough of the remoting protocol to ask both servers the same questions.

It shares no code with RocketLens's own: what a benchmark compares with must not come from what it measures. A frame is
length i32, serialize type u8 and header length u24, JSON header, body (remoting-protocol §1).
"""

import json
import socket
from collections.abc import Iterator, Sequence
from struct import Struct
from types import TracebackType
from typing import Any

from benchmarks.store_plan import TOPIC

FRAME_PREFIX = Struct(">II")
_LENGTH_FIELD = 4
_HEADER_LENGTH_MASK = 0xFFFFFF
_VIEW_MESSAGE_BY_ID = 33
# What a Java client 5.5.0 sends behind the ext fields.
_TAIL = '"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":513}'


class UnexpectedAnswer(Exception):
    """A server answered with an error, or closed the connection."""


def encode_request(code: int, ext_fields: str, opaque: int) -> bytes:
    """A whole frame; ``ext_fields`` is JSON text, as millions of them are made."""
    header = f'{{"code":{code},"extFields":{ext_fields},{_TAIL % opaque}'.encode()
    return FRAME_PREFIX.pack(_LENGTH_FIELD + len(header), len(header)) + header


class Peer:
    """One blocking connection to a server on this machine."""

    def __init__(self, port: int, timeout_seconds: float = 60) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_seconds)
        self._reader = self._socket.makefile("rb", buffering=1 << 20)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()
        self._socket.close()

    def call(self, code: int, ext_fields: str = "{}") -> tuple[dict[str, Any], bytes]:
        """Header and body of the answer."""
        self._socket.sendall(encode_request(code, ext_fields, 0))
        return self._read_answer()

    def view(self, physical_offset: int, topic: str = TOPIC) -> bytes:
        """The record at a physical offset; a Java broker answers only for its own topic."""
        header, body = self.call(_VIEW_MESSAGE_BY_ID, view_fields(physical_offset, topic))
        if header["code"] != 0 or not body:
            raise UnexpectedAnswer(str(header))
        return body

    def call_many(self, frames: Sequence[bytes], in_flight: int = 64) -> Iterator[tuple[int, int, bytes]]:
        """(opaque, code, body) of the answer to each frame, in the order they come."""
        self._socket.sendall(b"".join(frames[:in_flight]))
        for number in range(len(frames)):
            header, body = self._read_answer()
            self._socket.sendall(b"".join(frames[number + in_flight : number + in_flight + 1]))
            yield header["opaque"], header["code"], body

    def _read_answer(self) -> tuple[dict[str, Any], bytes]:
        prefix = self._reader.read(FRAME_PREFIX.size)
        if len(prefix) < FRAME_PREFIX.size:
            raise UnexpectedAnswer("the server closed the connection")
        length, header_length = FRAME_PREFIX.unpack(prefix)
        header_length &= _HEADER_LENGTH_MASK
        payload = self._reader.read(length - _LENGTH_FIELD)
        return json.loads(payload[:header_length]), payload[header_length:]


def view_fields(physical_offset: int, topic: str = TOPIC) -> str:
    """Ext fields of VIEW_MESSAGE_BY_ID, as mqadmin sends them."""
    return f'{{"offset":"{physical_offset}","topic":"{topic}"}}'


def query_fields(key: str, index_type: str, maximum: int, begin_timestamp: int, end_timestamp: int) -> str:
    """Ext fields of QUERY_MESSAGE, as a Java client 5.5.0 sends them; ``index_type`` is K or U."""
    unique = "true" if index_type == "U" else "false"
    return (
        f'{{"maxNum":"{maximum}","beginTimestamp":"{begin_timestamp}","key":"{key}","_UNIQUE_KEY_QUERY":"{unique}",'
        f'"topic":"{TOPIC}","endTimestamp":"{end_timestamp}","indexType":"{index_type}"}}'
    )
