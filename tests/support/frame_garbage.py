"""Frames that are none, nearly none or odd: what a fuzzer sends to a port; and recorded headers with bytes changed."""

import json
import random
import struct

from golden_frames import recorded_frames
from protocol.codes import RequestCode
from protocol.command import encode_request

NAMES = """
topic key consumerGroup group queueId offset maxNum queueOffset sysFlag subVersion beginTimestamp endTimestamp
maxMsgNums commitOffset suspendTimeoutMillis clientID timestamp"""
TEXTS = ("TopicTest", "hotkey", "SharedGroup", "0", "1", "6581", "-1", "9" * 40, "", "true", "null", "1e3", "%RETRY%g")
TEXTS += ("é🔑",)
NUMBERS = (0, -1, 1, 2**31 - 1, -(2**31), 2**63 - 1, 2**64, 1e308, 0.5)
CODES = (*sorted(RequestCode), -1, 0, 9, 999, 32768, 2**31 - 1, 2**31, -(2**31))
VALUES: tuple[object, ...] = (None, True, [], {}, [[]], {"a": {"b": []}}, *NUMBERS, *TEXTS)


class Garbage:
    """Makes frames from a seed; `frame` leaves the stream whole, `end` breaks it or leaves it unfinished."""

    def __init__(self, seed: int) -> None:
        self._chooser = random.Random(seed)
        twice = (self._request, self._mutated) * 2
        self._kinds = (*twice, self._odd_fields, self._odd_members, self._nested, self._binary, self._noise)

    def frame(self) -> bytes:
        return self._chooser.choice(self._kinds)()

    def end(self) -> bytes:
        chooser = self._chooser
        lengths = (-1, 0, 3, 4, 2**31 - 1, -(2**31), 2**24, 2**24 - 4, 2**24 - 3, chooser.getrandbits(31))
        word = chooser.choice((0, 0xFFFFFF, 0x01FFFFFF, 0xFF000000, chooser.getrandbits(32)))
        kinds = (
            lambda: struct.pack(">iI", chooser.choice(lengths), word) + chooser.randbytes(chooser.randrange(300)),
            lambda: chooser.randbytes(chooser.randrange(1, 200)),
            lambda: self.frame()[: chooser.randrange(1, 60)],
            lambda: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chooser.randbytes(100),
            lambda: b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n",
        )
        return chooser.choice(kinds)()

    def _fields(self) -> dict[str, str]:
        return {name: self._chooser.choice(TEXTS) for name in self._some_names(self._chooser.randrange(12))}

    def _some_names(self, count: int) -> list[str]:
        return self._chooser.sample(NAMES.split(), count)

    def _request(self) -> bytes:
        chooser = self._chooser
        code = chooser.choice(CODES)
        body = chooser.choice((b"", b"", b"{}", b"[" * 50, b'{"clientID":5}', chooser.randbytes(40)))
        form = chooser.randrange(2) if -(2**15) <= code < 2**15 else 0
        return encode_request(code, self._fields(), opaque=chooser.randrange(2**31), body=body, serialize_type=form)

    def _odd_fields(self) -> bytes:
        fields = {name: self._chooser.choice(VALUES) for name in self._some_names(8)}
        return self._json({"code": self._chooser.choice(CODES), "opaque": 1, "extFields": fields})

    def _odd_members(self) -> bytes:
        names = ("code", "opaque", "flag", "version", "language", "remark", "extFields", "other")
        return self._json({name: self._chooser.choice(VALUES) for name in names if self._chooser.random() < 0.8})

    def _json(self, members: object) -> bytes:
        return framed(json.dumps(members, ensure_ascii=self._chooser.random() < 0.5).encode("utf-8", "replace"))

    def _mutated(self) -> bytes:
        chooser = self._chooser
        data = bytearray(self._request()[8:])
        for _ in range(chooser.randrange(1, 6)):
            position = chooser.randrange(len(data) + 1)
            data[position : position + chooser.randrange(3)] = chooser.randbytes(chooser.randrange(3))
        return framed(bytes(data), header_length=chooser.randrange(len(data) + 1))

    def _nested(self) -> bytes:
        depth = self._chooser.choice((10, 500, 5000))
        opening, closing = self._chooser.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"extFields":', b"}")))
        return framed(opening * depth + b"1" + closing * self._chooser.choice((0, depth)))

    def _binary(self) -> bytes:
        chooser = self._chooser
        header = struct.pack(">hBhii", chooser.randrange(-(2**15), 2**15), 0, 479, 1, chooser.choice((0, 1, 2, -1)))
        for length in chooser.choices((0, 1, -1, 2**31 - 1, 30), k=2):
            header += struct.pack(">i", length) + chooser.randbytes(chooser.choice((0, 1, 30)))
        return framed(header, serialize_type=chooser.choice((1, 1, 1, 2, 255)))

    def _noise(self) -> bytes:
        data = self._chooser.randbytes(self._chooser.randrange(400))
        return framed(data, header_length=self._chooser.randrange(len(data) + 1))


def framed(data: bytes, header_length: int | None = None, serialize_type: int = 0) -> bytes:
    length = len(data) if header_length is None else header_length
    return struct.pack(">iI", 4 + len(data), serialize_type << 24 | length) + data


def encode_frame_prefix(serialize_type: int, header_length: int, body_length: int) -> bytes:
    return struct.pack(">iI", 4 + header_length + body_length, serialize_type << 24 | header_length)


EDGES = b'\0\x01\x7f\x80\xff"\\{}[]:,0-9eE.utfn \n'
PIECES = (b"null", b"true", b"1e999", b"-0", b'"\\ud800"', b"[[[[", b"\xed\xa0\x80", b"{0:", b"9" * 40, b"\xff" * 4)


def recorded_headers() -> list[tuple[int, bytes]]:
    """Each recorded header in its form, of every kind a few."""
    found: dict[object, tuple[int, bytes]] = {}
    for frame in recorded_frames():
        if frame.binary:
            found["binary", frame.binary[:2], len(frame.binary)] = (1, frame.binary)
        else:
            text = json.dumps(frame.header, ensure_ascii=False, separators=(",", ":")).encode()
            found[frame.header["code"], len(frame.header)] = (0, text)
    return list(found.values())


HEADERS = recorded_headers()


def changed(generator: random.Random, source: bytes) -> bytes:
    data = bytearray(source)
    for _ in range(generator.randint(1, 3)):
        place = generator.randrange(len(data) + 1)
        kind = generator.random()
        if kind < 0.5:
            data[place : place + 1] = bytes([generator.choice(EDGES)])
        elif kind < 0.7:
            data[place : place + 1] = bytes([generator.randrange(256)])
        elif kind < 0.85:
            data[place:place] = generator.choice(PIECES)
        elif kind < 0.95:
            del data[place : place + generator.randint(1, 8)]
        else:
            del data[place:]
    return bytes(data)
