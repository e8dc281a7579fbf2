"""Messages that cost far more than their bytes where they are looked at, and all questions that look at them."""

import contextlib
import functools
import gzip
import http.client
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bombs import EMPTY_LZ4, EMPTY_ZSTD
from broker.web.api.cursors import encode_cursor
from store_writer import StoreWriter, Written

MASKS: dict[str, list[str]] = {
    "no mask": [],
    "patterns": [r"/\b[\w.]+@[\w.]+\b/", "properties:/(a+)+b/"],
    "a pattern of bodies": [r"body:/1[3-9]\d{9}/"],
    "a path": ["$..phone"],
}


@functools.cache
def costly_bodies() -> dict[str, tuple[bytes, int]]:
    """Bodies with their sysFlags, by what they are; those "without end" hold the pattern of docs/security.md up."""
    long = b"one more order 4711, " * 3_000_000
    digits = b"[" + b"1234.5, " * 7_800_000 + b"0]"
    return {
        "empty LZ4 frames": (EMPTY_LZ4 * 363_636, 0x101),
        "empty zstd frames": (EMPTY_ZSTD * 444_444, 0x201),
        "empty gzip members": (gzip.compress(b"", mtime=0) * 200_000, 0),
        "a long text": (gzip.compress(long, 1, mtime=0), 0),
        "a long text, compressed": (zlib.compress(long), 0x301),
        "long JSON": (gzip.compress(digits, 1, mtime=0), 0),
        "long text beyond the basic plane": (gzip.compress("🙂".encode() * 15_000_000, 1, mtime=0), 0),
        "long bytes": (gzip.compress(bytes(63 << 20), 1, mtime=0), 0),
        "a bomb in a bomb": (zlib.compress(gzip.compress(bytes(60 << 20), mtime=0)), 0x301),
        "a stored text": (long[: 3 << 20], 0),
        "40 KB without end": (b"a." * 20_000, 0),
        "300 KB without end": (b"a." * 150_000, 0),
        "JSON without end": (json.dumps([{"phone": "a." * 20_000}] * 8).encode(), 0),
        "packed text without end": (gzip.compress(b"a." * 30_000_000, 1, mtime=0), 0),
    }


SMALL_BODIES: dict[str, tuple[bytes, int]] = {
    "empty LZ4 frames": (EMPTY_LZ4 * 10_000, 0x101),
    "empty zstd frames": (EMPTY_ZSTD * 10_000, 0x201),
    "a packed text": (gzip.compress(b"4711, " * 1_000_000, mtime=0), 0),
    "a bomb in a bomb": (zlib.compress(gzip.compress(bytes(6 << 20), mtime=0)), 0x301),
    "40 KB without end": (b"a." * 20_000, 0),
}


def write_costly(root: Path, bodies: Mapping[str, tuple[bytes, int]]) -> dict[str, Written]:
    """Write a store with some bodies in topic T, and with a message of many properties without end; by their names."""
    writer = StoreWriter(root, segment_size=16 << 20)
    written = {name: writer.append("T", body, sys_flag=flag, keys="key") for name, (body, flag) in bodies.items()}
    many = {f"p{number}": "a" * 30 + str(number) for number in range(500)}
    written["properties without end"] = writer.append("T", b"many", keys="key", properties=many)
    writer.close()
    return written


def questions(offset: int) -> list[tuple[str, dict[str, Any]]]:
    """Every way to look at a message of topic T."""
    return [
        ("/message", {"offset": offset}),
        ("/message", {"offset": offset, "bodyLimit": 4 << 20}),
        ("/message/body", {"offset": offset}),
        ("/message/body", {"offset": offset, "unpacked": "true"}),
        ("/messages", {"topic": "T"}),
        ("/find", {"text": "key"}),
        ("/search", {"topic": "T", "contains": "no such text"}),
        ("/tail", {"topic": "T", "cursor": encode_cursor([(0, 0)])}),
    ]


def ask_costly(port: int, path: str, parameters: dict[str, Any]) -> int:
    """Ask the API; the status of its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", f"/api/v1{path}?{urlencode(parameters)}")
        answer = connection.getresponse()
        answer.read()
        return answer.status
