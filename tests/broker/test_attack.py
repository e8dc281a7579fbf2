"""An attack of all kinds at once: frames, connections and URLs. Everything is answered or cut off, and nobody waits.

`make soak` has it for minutes and measures what an innocent client waits meanwhile; `make test` counts answers alone.
"""

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.endpoint import Endpoint
from broker.web.api.application import Api
from broker_harness import service_of
from frame_garbage import Garbage
from measured_waits import p99, private_bytes, waits
from process import Serving, serving_process
from protocol.codes import RequestCode
from protocol.command import encode_request
from storage.store.message_store import MessageStore
from url_garbage import UrlGarbage

SEED = 37
SECONDS = 90.0
LONGEST_WAIT_SECONDS = 0.2
"""Of 99 in a hundred answers to a client that does nothing wrong."""

FRAMES = 100
STATUSES = frozenset({200, 400, 403, 404, 405, 422, 503})
"""What a URL may be answered; 500 is a fault of ours."""

GROWTH_BYTES = 192 << 20


@contextlib.contextmanager
def connected(endpoint: Endpoint) -> Iterator[socket.socket]:
    """A connection, however the other side ends it."""
    with contextlib.suppress(ConnectionError, TimeoutError), socket.create_connection(endpoint, 60) as connection:
        yield connection


def send_frames(endpoint: Endpoint, garbage: Garbage) -> None:
    """Send frames that are none, nearly none or odd, and read what comes."""
    with connected(endpoint) as connection:
        connection.sendall(b"".join(garbage.frame() for _ in range(FRAMES)) + garbage.end())
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass


def misuse_connections(endpoint: Endpoint, rng: random.Random) -> None:
    """Open some connections, and use each as no client should."""
    request = encode_request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "6581"}, opaque=1)
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(rng.randrange(1, 40)):
            with contextlib.suppress(OSError):
                opened.append(stack.enter_context(socket.create_connection(endpoint, 60)))
        for each in opened:
            with contextlib.suppress(OSError):
                match rng.randrange(6):
                    case 0:  # part of a request
                        each.sendall(request[: rng.randrange(len(request))])
                    case 1:  # many requests, of which no answer is read
                        each.sendall(request * 200)
                    case 2:  # closed without an answer
                        each.sendall(request)
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    case 3:  # ends its side at once
                        each.sendall(request)
                        each.shutdown(socket.SHUT_WR)
                    case 4:
                        each.sendall(rng.randbytes(rng.randrange(2000)))
                    case _:
                        pass


def ask_url(endpoint: Endpoint, target: str) -> int:
    """The status of the answer to a target; 0 where the connection was closed without one."""
    head = b""
    with connected(endpoint) as connection:
        request = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode("latin-1", "replace"))
        while len(head) < 12 and (data := connection.recv(1 << 16)):
            head += data
        while connection.recv(1 << 20):
            pass
    return int(head.split()[1]) if head.startswith(b"HTTP/1.1 ") else 0


def hostile_urls(store: Path) -> UrlGarbage:
    """URLs with all parameters that the API has."""
    api = Api([service_of(MessageStore.open(store))])
    paths = [(f"/api/v1{each.path}", each.question.__struct_encode_fields__) for each in api.endpoints]
    api.close()
    return UrlGarbage(SEED, paths)


class Attack:
    """Attacks a server by threads until it is stopped; `statuses` counts what URLs were answered."""

    def __init__(
        self, server: Serving, urls: UrlGarbage, *, until: float = float("inf"), rounds: int = 1 << 60
    ) -> None:
        self.statuses: Counter[int] = Counter()
        self.faults: list[str] = []
        endpoint, http = server.endpoints[0], Endpoint("127.0.0.1", server.http_port)
        garbage, rng = Garbage(SEED), random.Random(SEED)
        self._until, self._rounds = until, rounds
        works = [
            lambda: send_frames(endpoint, garbage),
            lambda: misuse_connections(endpoint, rng),
            lambda: self._count(http, urls.target()),
        ]
        self._threads = [threading.Thread(target=self._repeat, args=(work,)) for work in works]
        for each in self._threads:
            each.start()

    def _repeat(self, work: Callable[[], None]) -> None:
        for _ in range(self._rounds):
            if time.monotonic() > self._until:
                return
            work()

    def _count(self, http: Endpoint, target: str) -> None:
        status = ask_url(http, target)
        self.statuses[status] += 1
        if status not in STATUSES:
            self.faults.append(f"{status}: {target[:300]}")

    def join(self) -> None:
        """Wait for its end."""
        for each in self._threads:
            each.join()


def judge(server: Serving, attack: Attack, folder: Path) -> None:
    """That nothing was worse than refused, and that the server serves on and ends well."""
    assert attack.faults == []
    assert attack.statuses[200] + attack.statuses[400] > sum(attack.statuses.values()) / 2
    assert ask_url(Endpoint("127.0.0.1", server.http_port), "/healthz") == 200
    assert waits(server.endpoints[0], 0.1)
    assert server.stop() == 0
    log = (folder / "stderr").read_text()
    assert "Traceback" not in log
    assert "a new one replaces it" not in log


@pytest.mark.parametrize("workers", [1, 2])
def test_an_attack_of_all_kinds_is_answered_or_cut_off(g1_store: Path, tmp_path: Path, workers: int) -> None:
    options = ["--state-dir", str(tmp_path / "state"), "--http", "127.0.0.1:0", "--workers", str(workers)]
    with serving_process(g1_store, tmp_path, *options) as server:
        attack = Attack(server, hostile_urls(g1_store), rounds=60)
        attack.join()
        judge(server, attack, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
def test_an_attack_keeps_no_innocent_client_waiting(g1_store: Path, tmp_path: Path, workers: int) -> None:
    options = ["--state-dir", str(tmp_path / "state"), "--http", "127.0.0.1:0", "--workers", str(workers)]
    with serving_process(g1_store, tmp_path, *options) as server:
        quiet = waits(server.endpoints[0], 5)
        before = [private_bytes(Path(f"/proc/{worker}")) for worker in server.workers]
        attack = Attack(server, hostile_urls(g1_store), until=time.monotonic() + SECONDS)
        loaded = waits(server.endpoints[0], SECONDS * 0.9)
        attack.join()
        grown = [private_bytes(Path(f"/proc/{worker}")) for worker in server.workers]
        print(
            f"{workers} workers: URLs {dict(attack.statuses)}; p99 of views {p99(quiet) * 1e3:.1f} ms quiet, "
            f"{p99(loaded) * 1e3:.1f} ms attacked (longest {loaded[-1] * 1e3:.0f}); private memory "
            f"{[size >> 20 for size in before]} MB before, {[size >> 20 for size in grown]} after"
        )
        assert p99(loaded) < LONGEST_WAIT_SECONDS
        assert max(grown) - max(before) < GROWTH_BYTES
        judge(server, attack, tmp_path)
