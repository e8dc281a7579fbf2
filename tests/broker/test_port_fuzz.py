"""No bytes stop a server: frames that are none, nearly none or odd, beside an honest client that is served throughout.

`make soak` sends a million; `make test` fewer.
"""

import socket
import time
from pathlib import Path

import pytest

from broker.endpoint import Endpoint
from frame_garbage import Garbage
from process import Serving, serving_process
from protocol.codes import RequestCode
from protocol.command import decode_command, encode_request
from protocol.frame import FrameDecoder

BATCH = 250
"""Frames of one connection."""

START, SIZE = 6581, 289
"""Where hot0 of produced.tsv lies."""

GROWTH_BYTES = 24 * 1024 * 1024
"""What private memory may grow by after the first fifth: caches of bounded size fill up."""


class Honest:
    """A client that asks one thing again and again and remembers the longest wait."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._connection = socket.create_connection(endpoint, 30)
        self._decoder = FrameDecoder()
        self.longest_seconds = 0.0

    def ask(self) -> None:
        started = time.monotonic()
        self._connection.sendall(encode_request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(START)}, opaque=1))
        frames = []
        while not frames:
            data = self._connection.recv(65536)
            assert data, "an honest client was cut off"
            frames = self._decoder.feed(data)
        command = decode_command(frames[0])
        assert (command.code, len(command.body)) == (0, SIZE)
        self.longest_seconds = max(self.longest_seconds, time.monotonic() - started)

    def close(self) -> None:
        self._connection.close()


def send(endpoint: Endpoint, data: bytes) -> bytes:
    """Send bytes, and return what comes until the server closes."""
    received = bytearray()
    with socket.create_connection(endpoint, 30) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 20):
                received += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass
    return bytes(received)


def private_bytes(server: Serving) -> int:
    """Memory that the serving process has to itself."""
    (worker,) = server.workers
    lines = Path(f"/proc/{worker}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private"))


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_no_bytes_stop_a_server_or_grow_it(g1_store: Path, tmp_path: Path, count: int) -> None:
    garbage = Garbage(count)
    with serving_process(g1_store, tmp_path, "--state-dir", str(tmp_path / "state")) as server:
        endpoint = server.endpoints[0]
        honest = Honest(endpoint)
        before = 0
        for number in range(count // BATCH):
            data = b"".join(garbage.frame() for _ in range(BATCH - 1)) + garbage.end()
            received = send(endpoint, data)
            assert b"Traceback" not in received
            assert b".py" not in received
            honest.ask()
            if number == count // BATCH // 5:
                before = private_bytes(server)
        growth = private_bytes(server) - before
        honest.close()
        assert growth < GROWTH_BYTES
        assert server.stop() == 0
    log = (tmp_path / "stderr").read_text()
    assert "Traceback" not in log
    assert "ERROR" not in log
    print(f"{count:,} frames; private memory grew by {growth:,} bytes; longest wait {honest.longest_seconds:.3f} s")
