"""An attack of all kinds at once: frames, connections, URLs, and messages that cost far more than their bytes.

Everything is answered or cut off, and nobody waits.

`make soak` has it for minutes and measures what an innocent client waits meanwhile; `make test` counts answers alone.
"""

import contextlib
import os
import random
import resource
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
from costly_messages import MASKS, SMALL_BODIES, ask_costly, costly_bodies, questions, write_costly
from frame_garbage import Garbage
from measured_waits import p99, private_bytes, waits
from port_flood import LARGE
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
CROWD_GROWTH_BYTES = 24 << 20
"""What private memory may grow by after the first fifth: caches of bounded size fill up."""
MOST_DESCRIPTORS = 100

COSTLY = "costly"
"""The store of the messages that cost far more than their bytes, and its broker's name."""


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
        while data := connection.recv(1 << 20):
            assert b"Traceback" not in data
            assert b".py" not in data


def send_long(endpoint: Endpoint, rng: random.Random) -> None:
    """Send a request that is long to parse, and read what comes first."""
    with connected(endpoint) as connection:
        connection.sendall(rng.choice(LARGE)(rng.randrange(1 << 30)))
        connection.recv(1 << 20)


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
        self,
        server: Serving,
        urls: UrlGarbage,
        costly: list[int],
        *,
        until: float = float("inf"),
        rounds: int = 1 << 60,
        looks: int = 1 << 60,
    ) -> None:
        self.statuses: Counter[int] = Counter()
        self.looks: Counter[int] = Counter()
        self.faults: list[str] = []
        endpoint, http = server.endpoints[0], Endpoint("127.0.0.1", server.http_port)
        garbage = Garbage(SEED)
        rng, costly_rng, long_rng = (random.Random(SEED) for _ in range(3))
        self._until = until
        works: list[tuple[int, Callable[[], None]]] = [
            (rounds, lambda: send_frames(endpoint, garbage)),
            (rounds, lambda: misuse_connections(endpoint, rng)),
            (rounds, lambda: send_long(endpoint, long_rng)),
            (rounds, lambda: self._count(http, urls.target())),
            (looks, lambda: self._look(server, costly_rng, costly)),  # each takes far longer
        ]
        self._threads = [threading.Thread(target=self._repeat, args=each) for each in works]
        for each in self._threads:
            each.start()

    def _repeat(self, rounds: int, work: Callable[[], None]) -> None:
        for _ in range(rounds):
            if time.monotonic() > self._until:
                return
            work()

    def _count(self, http: Endpoint, target: str) -> None:
        status = ask_url(http, target)
        self.statuses[status] += 1
        if status not in STATUSES:
            self.faults.append(f"{status}: {target[:300]}")

    def _look(self, server: Serving, rng: random.Random, costly: list[int]) -> None:
        """Look at a message of the second store, in one of all ways."""
        path, parameters = rng.choice(questions(rng.choice(costly)))
        status = ask_costly(server.http_port, path, {**parameters, "broker": COSTLY})
        self.looks[status] += 1
        if status not in STATUSES:
            self.faults.append(f"{status}: {path} {parameters}")

    def join(self) -> None:
        """Wait for its end."""
        for each in self._threads:
            each.join()


def until_closed(worker: int) -> None:
    """Wait until a process has hardly any descriptor left."""
    deadline = time.monotonic() + 60
    while len(os.listdir(f"/proc/{worker}/fd")) > MOST_DESCRIPTORS:
        assert time.monotonic() < deadline, "descriptors leak"
        time.sleep(0.05)


def judge(server: Serving, attack: Attack, folder: Path) -> None:
    """That nothing was worse than refused, and that the server has closed all, serves on and ends well."""
    assert attack.faults == []
    assert attack.statuses[200] + attack.statuses[400] > sum(attack.statuses.values()) / 2
    assert attack.looks[200] > sum(attack.looks.values()) / 2
    assert ask_url(Endpoint("127.0.0.1", server.http_port), "/healthz") == 200
    assert waits(server.endpoints[0], 0.1)
    for worker in server.workers:
        until_closed(worker)
    assert server.stop() == 0
    log = (folder / "stderr").read_text()
    assert "Traceback" not in log
    assert "a new one replaces it" not in log


@contextlib.contextmanager
def attackable(
    g1_store: Path, folder: Path, bodies: dict[str, tuple[bytes, int]], *, workers: int, rules: list[str]
) -> Iterator[tuple[Serving, list[int]]]:
    """Serve a store, and a second one of messages that cost far more than their bytes, whose offsets come too."""
    written = write_costly(folder / COSTLY, bodies)
    options = ["--state-dir", str(folder / "state"), "--http", "127.0.0.1:0", "--workers", str(workers)]
    options += ["--broker-name", "broker-a", "--broker-name", COSTLY]
    masks = [part for rule in rules for part in ("--mask", rule)]
    with serving_process(g1_store, folder, str(folder / COSTLY), *options, *masks) as server:
        yield server, [each.physical_offset for each in written.values()]


def test_an_attack_of_all_kinds_is_answered_or_cut_off(g1_store: Path, tmp_path: Path) -> None:
    with attackable(g1_store, tmp_path, SMALL_BODIES, workers=2, rules=MASKS["patterns"]) as (server, costly):
        attack = Attack(server, hostile_urls(g1_store), costly, rounds=12, looks=10)
        attack.join()
        judge(server, attack, tmp_path)


@pytest.mark.soak
def test_a_million_frames_do_not_grow_a_server(g1_store: Path, tmp_path: Path) -> None:
    garbage = Garbage(SEED)
    with serving_process(g1_store, tmp_path, "--state-dir", str(tmp_path / "state")) as server:
        (worker,) = server.workers
        sizes = []
        for _ in range(5):
            for _ in range(2_000):
                send_frames(server.endpoints[0], garbage)
            sizes.append(private_bytes(Path(f"/proc/{worker}")))
        print(f"private memory after each fifth of a million frames: {sizes}")
        assert sizes[-1] - sizes[0] < CROWD_GROWTH_BYTES
        assert server.stop() == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()


@pytest.mark.soak
def test_ten_thousand_connections_leave_others_served_and_nothing_behind(g1_store: Path, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 65536), before[1]))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        server = stack.enter_context(serving_process(g1_store, tmp_path, "--state-dir", str(tmp_path / "state")))
        (worker,) = server.workers
        quiet, sizes = waits(server.endpoints[0], 10), []
        for _ in range(2):
            with contextlib.ExitStack() as crowd:
                opened = [crowd.enter_context(socket.create_connection(server.endpoints[0], 60)) for _ in range(10_000)]
                for each in opened[::10]:
                    each.sendall(b"\0")  # the rest of its frame never comes
                loaded = waits(server.endpoints[0], 20)
            until_closed(worker)
            # What the first crowd took stays with the allocator; the second one finds it there.
            sizes.append(private_bytes(Path(f"/proc/{worker}")))
        print(f"p99 quiet {p99(quiet) * 1e3:.2f} ms, loaded {p99(loaded) * 1e3:.2f} ms, private memory {sizes}")
        assert p99(loaded) < 2 * p99(quiet) + 0.0005
        assert sizes[1] - sizes[0] < CROWD_GROWTH_BYTES
        assert server.stop() == 0


@pytest.mark.soak
@pytest.mark.parametrize("masks", ["no mask", "patterns", "a path"])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_attack_keeps_no_innocent_client_waiting(g1_store: Path, tmp_path: Path, workers: int, masks: str) -> None:
    with attackable(g1_store, tmp_path, costly_bodies(), workers=workers, rules=MASKS[masks]) as (server, costly):
        quiet = waits(server.endpoints[0], 5)
        before = [private_bytes(Path(f"/proc/{worker}")) for worker in server.workers]
        attack = Attack(server, hostile_urls(g1_store), costly, until=time.monotonic() + SECONDS)
        loaded = waits(server.endpoints[0], SECONDS * 0.9)
        attack.join()
        grown = [private_bytes(Path(f"/proc/{worker}")) for worker in server.workers]
        print(
            f"{workers} workers, {masks}: URLs {dict(attack.statuses)}, messages {dict(attack.looks)}; "
            f"p99 of views {p99(quiet) * 1e3:.1f} ms quiet, "
            f"{p99(loaded) * 1e3:.1f} ms attacked (longest {loaded[-1] * 1e3:.0f}); private memory "
            f"{[size >> 20 for size in before]} MB before, {[size >> 20 for size in grown]} after"
        )
        assert p99(loaded) < LONGEST_WAIT_SECONDS
        assert max(grown) - max(before) < GROWTH_BYTES
        judge(server, attack, tmp_path)
