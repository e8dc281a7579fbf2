"""Other clients while bodies are looked at that cost far more than their bytes."""

import gzip
import http.client
import json
import threading
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from bombs import EMPTY_LZ4, EMPTY_ZSTD
from broker.endpoint import Endpoint
from measured_waits import p99, waits
from process import serving_process
from store_writer import StoreWriter

MOST_SECONDS = 0.2
"""What another client may wait for one of a hundred answers."""

LONG = b"one more order 4711, " * 3_000_000
DIGITS = b"[" + b"1234.5, " * 7_800_000 + b"0]"
BODIES: dict[str, tuple[bytes, int]] = {
    "empty LZ4 frames": (EMPTY_LZ4 * 363_636, 0x101),
    "empty zstd frames": (EMPTY_ZSTD * 444_444, 0x201),
    "empty gzip members": (gzip.compress(b"", mtime=0) * 200_000, 0),
    "a long text": (gzip.compress(LONG, 1, mtime=0), 0),
    "a long text, compressed": (zlib.compress(LONG), 0x301),
    "long JSON": (gzip.compress(DIGITS, 1, mtime=0), 0),
    "long text beyond the basic plane": (gzip.compress("🙂".encode() * 15_000_000, 1, mtime=0), 0),
    "long bytes": (gzip.compress(bytes(63 << 20), 1, mtime=0), 0),
    "a bomb in a bomb": (zlib.compress(gzip.compress(bytes(60 << 20), mtime=0)), 0x301),
    "a stored text": (LONG[: 3 << 20], 0),
}


def questions(offset: int) -> list[tuple[str, dict[str, Any]]]:
    """Every way to look at a message."""
    return [
        ("/message", {"offset": offset}),
        ("/message", {"offset": offset, "bodyLimit": 4 << 20}),
        ("/message/body", {"offset": offset}),
        ("/message/body", {"offset": offset, "unpacked": "true"}),
        ("/messages", {"topic": "T"}),
        ("/find", {"text": "key"}),
        ("/search", {"topic": "T", "contains": "no such text"}),
        ("/tail", {"topic": "T", "cursor": json.dumps([[0, 0]])}),
    ]


def look(port: int, offsets: list[int], is_over: threading.Event) -> int:
    """Ask every question about every message, again and again; how many answers there were."""
    count = 0
    while True:
        for offset in offsets:
            for path, parameters in questions(offset):
                if is_over.is_set():
                    return count
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", f"/api/v1{path}?{urlencode(parameters)}")
                answer = connection.getresponse()
                answer.read()
                assert answer.status < 500, (path, parameters)
                connection.close()
                count += 1


@pytest.mark.soak
def test_other_clients_hardly_wait_while_any_message_is_looked_at(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=16 << 20)
    innocent = writer.append("I", b"an innocent message")
    written = {name: writer.append("T", body, sys_flag=flag, keys="key") for name, (body, flag) in BODIES.items()}
    writer.close()
    with serving_process(writer.root, tmp_path, "--http", "127.0.0.1:0") as server:
        endpoint: Endpoint = server.endpoints[0]
        quiet = waits(endpoint, 3)
        slow = {}
        for name, one in written.items():
            is_over = threading.Event()
            looking = threading.Thread(target=look, args=(server.http_port, [one.physical_offset], is_over))
            looking.start()
            slow[name] = waits(endpoint, 8)
            is_over.set()
            looking.join()
        print(f"p99 quiet {p99(quiet) * 1000:.1f} ms, worst {quiet[-1] * 1000:.1f} ms")
        for name, measured in slow.items():
            print(f"p99 {p99(measured) * 1000:.1f} ms, worst {measured[-1] * 1000:.1f} ms: {name}")
        assert innocent.physical_offset == 0
        assert {name: p99(measured) for name, measured in slow.items() if p99(measured) > MOST_SECONDS} == {}
        assert server.stop() == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()
