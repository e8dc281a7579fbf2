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
from protocol.command import decode_command, encode_request
from protocol.frame import FrameDecoder

VIEW, QUERY, UNKNOWN = 33, 12, 999
START, SIZE = 6581, 289
"""Where hot0 of produced.tsv lies."""
PIECE = 40_000

REQUESTS: dict[str, tuple[int, dict[str, str], int]] = {
    "view": (VIEW, {"offset": str(START)}, 0),
    "view in binary": (VIEW, {"offset": str(START)}, 1),
    "no record": (VIEW, {"offset": str(START + 1)}, 0),
    "key": (
        QUERY,
        {"topic": "TopicTest", "key": "hotkey", "maxNum": "3", "beginTimestamp": "0", "endTimestamp": "9" * 18},
        0,
    ),
    "unknown": (UNKNOWN, {}, 0),
}
"""Code, fields and form of requests."""


def frame_of(name: str, opaque: int, *, oneway: bool = False) -> bytes:
    code, fields, form = REQUESTS[name]
    return encode_request(code, fields, opaque=opaque, serialize_type=form, oneway=oneway)


def answers_on(connection: socket.socket, count: int) -> dict[int, tuple[int, int, bytes]]:
    """Code, form and body of so many answers, by opaque."""
    decoder, found = FrameDecoder(), dict[int, tuple[int, int, bytes]]()
    while len(found) < count:
        data = connection.recv(1 << 20)
        assert data, f"closed after {len(found)} of {count} answers"
        for command in map(decode_command, decoder.feed(data)):
            assert command.opaque not in found
            found[command.opaque] = command.code, command.serialize_type, bytes(command.body)
    assert not decoder.needs_more
    return found


def talk(store: Path, endpoint: tuple[str, int], count: int, seed: int) -> None:
    """One connection: each request of a random mixture, cut anywhere, gets the answer that it gets alone."""
    chooser = random.Random(seed)
    with socket.create_connection(endpoint, 60) as connection:
        alone = {}
        for name in REQUESTS:
            connection.sendall(frame_of(name, 0))
            alone[name] = answers_on(connection, 1)[0]
        with (store / "commitlog" / f"{0:020}").open("rb") as segment:
            segment.seek(START)
            assert alone["view"] == (0, 0, segment.read(SIZE))
        names = chooser.choices([*REQUESTS], k=count)

        def send() -> None:
            pending = bytearray()
            for opaque, name in enumerate(names):
                # Nobody answers a oneway request.
                pending += frame_of(name, opaque) + (b"" if opaque % 50 else frame_of("view", opaque, oneway=True))
                if len(pending) > PIECE:
                    cut = chooser.randrange(1, len(pending))
                    connection.sendall(pending[:cut])
                    del pending[:cut]
            connection.sendall(pending)

        sender = threading.Thread(target=send)
        sender.start()
        found = answers_on(connection, count)
        sender.join()
    assert found == {opaque: alone[name] for opaque, name in enumerate(names)}


@pytest.mark.parametrize("loop", ["uvloop", pytest.param("asyncio", marks=pytest.mark.soak)])
@pytest.mark.parametrize("count", [5_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
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
        with (
            serving_process(g1_store, tmp_path, *arguments) as server,
            socket.create_connection(server.endpoints[0]) as connection,
        ):
            connection.sendall(b"".join(frame_of("view" if opaque % 8 else "key", opaque) for opaque in range(200)))
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
