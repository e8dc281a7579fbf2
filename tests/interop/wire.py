"""A small decoder and client of the remoting protocol for tests, apart from `protocol` so that it can judge it."""

import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

JSON_HEADER = 0
BINARY_HEADER = 1
FIXED_BINARY_HEADER = struct.Struct(">hBhiii")
"""code, language, version, opaque, flag, length of the remark that follows."""
RESPONSE_FLAG = 1


@dataclass(frozen=True)
class Frame:
    """One remoting command: ``header`` as its JSON object (a binary header is converted), ``body`` as it came."""

    header: dict[str, Any]
    body: bytes
    serialization: int = JSON_HEADER
    raw_header: bytes = field(default=b"", compare=False)

    @property
    def code(self) -> int:
        return int(self.header["code"])

    @property
    def is_response(self) -> bool:
        return bool(self.header.get("flag", 0) & RESPONSE_FLAG)


class FrameSplitter:
    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> list[Frame]:
        self._pending += chunk
        frames = []
        while len(self._pending) >= 4:
            (length,) = struct.unpack_from(">i", self._pending)
            if len(self._pending) < 4 + length:
                break
            frames.append(decode_frame(bytes(self._pending[4 : 4 + length])))
            del self._pending[: 4 + length]
        return frames


def decode_frame(payload: bytes) -> Frame:
    (mark,) = struct.unpack_from(">I", payload)
    serialization, header_length = mark >> 24, mark & 0xFFFFFF
    raw = payload[4 : 4 + header_length]
    header = json.loads(raw) if serialization == JSON_HEADER else _decode_binary_header(raw)
    return Frame(header, payload[4 + header_length :], serialization, raw)


def encode_request(code: int, opaque: int, ext_fields: dict[str, str], body: bytes = b"") -> bytes:
    """A request with a JSON header as a current Java client would send it."""
    header: dict[str, Any] = {"code": code, "extFields": ext_fields, "flag": 0, "language": "JAVA", "opaque": opaque}
    header |= {"serializeTypeCurrentRPC": "JSON", "version": 513}
    raw = json.dumps(header).encode()
    return struct.pack(">iI", 4 + len(raw) + len(body), len(raw)) + raw + body


def ask(address, code, ext_fields=None, *, body=b"", timeout_seconds=60.0) -> Frame:
    """Sends one request over a connection of its own and returns the answer; OSError when nobody answers."""
    with socket.create_connection(address, timeout=timeout_seconds) as connection:
        connection.sendall(encode_request(code, 1, ext_fields or {}, body))
        splitter = FrameSplitter()
        while True:
            chunk = connection.recv(1 << 16)
            if not chunk:
                raise ConnectionError(f"{address} closed the connection without an answer to code {code}")
            for frame in splitter.feed(chunk):
                return frame


def _decode_binary_header(raw: bytes) -> dict[str, Any]:
    code, language, version, opaque, flag, remark_length = FIXED_BINARY_HEADER.unpack_from(raw)
    position = FIXED_BINARY_HEADER.size
    header: dict[str, Any] = {"code": code, "flag": flag, "language": language, "opaque": opaque, "version": version}
    header["serializeTypeCurrentRPC"] = "ROCKETMQ"
    if remark_length:
        header["remark"] = raw[position : position + remark_length].decode()
    position += remark_length
    (ext_length,) = struct.unpack_from(">i", raw, position)
    ext_fields = _decode_binary_fields(raw[position + 4 : position + 4 + ext_length])
    return header | ({"extFields": ext_fields} if ext_fields else {})


def _decode_binary_fields(raw: bytes) -> dict[str, str]:
    fields, position = {}, 0
    while position < len(raw):
        (key_length,) = struct.unpack_from(">h", raw, position)
        key = raw[position + 2 : position + 2 + key_length].decode()
        position += 2 + key_length
        (value_length,) = struct.unpack_from(">i", raw, position)
        fields[key] = raw[position + 4 : position + 4 + value_length].decode()
        position += 4 + value_length
    return fields
