"""Recorded headers of commands, and what becomes of them when a few of their bytes change."""

import json
import random

from recorded_headers import recorded_frames

EDGES = b'\0\x01\x7f\x80\xff"\\{}[]:,0-9eE.utfn \n'
PIECES = (
    b"null",
    b"true",
    b"1e999",
    b"-0",
    b'"\\ud800"',
    b"[[[[",
    b"\xed\xa0\x80",
    b"{0:",
    b"9" * 40,
    b"\xff\xff\xff\xff",
)


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
    """`source` with one to three places changed, some of them by inserting or cutting."""
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
