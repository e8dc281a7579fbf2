"""A server under load: a stream of frames cut anywhere, and a server killed in the middle of it.

`make soak` sends a million frames; `make test` fewer.
"""

import random
import signal
import socket
import threading
from hashlib import sha256
from pathlib import Path

import pytest

from benchmarks.server_process import free_port
from process import serving_process
from protocol.codes import ResponseCode
from protocol.command import Command, decode_command, encode_request, ext_fields_of
from protocol.frame import FrameDecoder

VIEW, QUERY, UNKNOWN = 33, 12, 999
START, SIZE = 6581, 289
"""Where hot0 of produced.tsv lies."""
PIECE = 40_000
KEY_QUERY = {"topic": "TopicTest", "key": "hotkey", "maxNum": "3", "beginTimestamp": "0", "endTimestamp": "9" * 18}


class Talk:
    """A client that asks a random mixture and knows what each answer has to be like."""

    def __init__(self, store: Path, count: int, seed: int) -> None:
        self._chooser = random.Random(seed)
        self._count = count
        self._kinds = [self._chooser.choice("vvvvobku") for _ in range(count)]
        with (store / "commitlog" / f"{0:020}").open("rb") as segment:
            segment.seek(START)
            self._record = segment.read(SIZE)

    def request(self, opaque: int) -> bytes:
        """One request; after some comes a oneway one, which nobody answers."""
        kind = self._kinds[opaque]
        if kind == "k":
            frame = encode_request(QUERY, KEY_QUERY, opaque=opaque)
        elif kind == "u":
            frame = encode_request(UNKNOWN, {}, opaque=opaque)
        elif kind == "o":
            frame = encode_request(VIEW, {"offset": str(START + 1)}, opaque=opaque)
        else:
            frame = encode_request(VIEW, {"offset": str(START)}, opaque=opaque, serialize_type=int(kind == "b"))
        if opaque % 50 == 0:
            frame += encode_request(VIEW, {"offset": str(START)}, opaque=opaque, oneway=True)
        return frame

    def send(self, connection: socket.socket) -> None:
        """Send all requests, cut anywhere."""
        pending = bytearray()
        for opaque in range(self._count):
            pending += self.request(opaque)
            if len(pending) > PIECE:
                cut = self._chooser.randrange(1, len(pending))
                connection.sendall(pending[:cut])
                del pending[:cut]
        connection.sendall(pending)

    def receive(self, connection: socket.socket) -> None:
        """Read an answer to each request that wants one, and look at it."""
        decoder = FrameDecoder()
        missing = set(range(self._count))
        while missing:
            data = connection.recv(1 << 20)
            assert data, f"closed before {len(missing)} of {self._count} answers"
            for command in map(decode_command, decoder.feed(data)):
                missing.remove(command.opaque)
                self._check(command)
        assert not decoder.needs_more

    def _check(self, command: Command) -> None:
        kind = self._kinds[command.opaque]
        if kind == "k":
            assert (command.code, "rocketlensCursor" in ext_fields_of(command)) == (0, True)
        elif kind == "u":
            assert command.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        elif kind == "o":
            assert (command.code, command.body) == (ResponseCode.SYSTEM_ERROR, b"")
        else:
            assert (command.code, command.serialize_type, command.body) == (0, int(kind == "b"), self._record)


def talk(store: Path, endpoint: tuple[str, int], count: int, seed: int) -> None:
    """One connection from start to end; sends and receives at the same time, as real clients do."""
    conversation = Talk(store, count, seed)
    with socket.create_connection(endpoint) as connection:
        connection.settimeout(60)
        sender = threading.Thread(target=conversation.send, args=(connection,))
        sender.start()
        conversation.receive(connection)
        sender.join()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_every_request_of_a_long_stream_gets_its_own_answer(
    g1_store: Path, tmp_path: Path, loop: str, count: int
) -> None:
    with serving_process(g1_store, tmp_path, "--loop", loop, "--slow-query", "0") as server:
        talk(g1_store, server.endpoints[0], count, seed=count)
        assert server.stop() == 0
        assert server.errors.read_text() == ""


@pytest.mark.parametrize("times", [2, pytest.param(50, marks=pytest.mark.soak)])
def test_a_server_killed_under_load_can_be_started_again_at_once(g1_store: Path, tmp_path: Path, times: int) -> None:
    before = checksums(g1_store)
    # Always the same port: what lingers of killed connections must not hold it.
    arguments = ["--state-dir", str(tmp_path / "state"), "--listen", f"127.0.0.1:{free_port()}"]
    for _ in range(times):
        with serving_process(g1_store, tmp_path, *arguments) as server:
            endpoint = server.endpoints[0]
            conversation = Talk(g1_store, 200, seed=7)
            with socket.create_connection(endpoint) as connection:
                conversation.send(connection)
                assert connection.recv(100)
                assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    with serving_process(g1_store, tmp_path, *arguments) as server:
        talk(g1_store, server.endpoints[0], 500, seed=8)
        assert server.stop() == 0
    assert checksums(g1_store) == before


def checksums(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): sha256(path.read_bytes()).hexdigest() for path in root.rglob("*") if path.is_file()
    }
