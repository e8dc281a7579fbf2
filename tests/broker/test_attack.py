"""An attack of all kinds at once: frames, connections, URLs, and messages that cost far more than their bytes."""

import asyncio
import contextlib
import gzip
import json
import os
import random
import resource
import socket
import struct
import threading
import time
import zlib
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import quote_plus, urlencode

import pytest

import protocol.bodies
from bombs import EMPTY_LZ4, EMPTY_ZSTD
from broker.endpoint import Endpoint
from broker.service.consumers.kept_filters import EXPRESSION_UNITS
from broker.service.long_work import UNITS_A_BYTE, UNITS_A_TURN
from broker.web.api.application import Api
from broker.web.api.cursors import encode_cursor
from broker_harness import connected, service_of, serving
from draining import pull_of
from frame_garbage import Garbage
from heartbeats import consumer, heartbeat, subscription
from process import serving_process
from protocol.codes import RequestCode, ResponseCode
from protocol.command import encode_request
from storage.filter.sql92._parser import Parser
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

VALUES = [
    lambda rng: "=" * rng.randrange(1, 10_000),
    lambda rng: "(" * rng.randrange(1, 3_000) + ")" * rng.randrange(1, 3_000),
    lambda rng: "(a*)*" * rng.randrange(1, 1_000) + "b",
    lambda rng: "[\\w-\\d]" * rng.randrange(1, 1_000),
    lambda rng: "|".join(f"x{number}{{1,{rng.randrange(1, 1000)}}}" for number in range(rng.randrange(1, 300))),
    lambda rng: "$" + "..a[?(@.b=='c')]" * rng.randrange(1, 500),
    lambda rng: "$." + "a=1 " * rng.randrange(1, 1_500),
    lambda rng: " AND ".join(f"a{number} > {number}" for number in range(rng.randrange(1, 800))),
    lambda rng: "NOT " * rng.randrange(1, 2_000) + "a",
    lambda rng: "||".join(f"Tag{number}" for number in range(rng.randrange(1, 1_500))),
    lambda rng: rng.choice(("-1", "0", "1", str(2**31), str(2**63 - 1), str(2**63), "1" + "0" * 30, "1" + "0" * 4400)),
    lambda rng: "".join(chr(rng.randrange(1, 0xD800)) for _ in range(rng.randrange(1, 500))),
    lambda rng: rng.choice(("\x00", "\r\nX: y", "../../etc/passwd", "%", "%zz", "\ufeff", "\u202e", "")),
    lambda rng: rng.choice(("TopicTest", "*", "TagA", "a = 1", ".*", "body", "0", "1", "6581", "-1h", "true")),
]


PLAIN = {"topic": "TopicTest", "queueId": "0", "queueOffset": "0", "offset": "6581", "text": "hotkey"}
"""Parameters without which there is no answer."""


class UrlGarbage:
    """Makes targets for a request line; `paths` has the names of the parameters of each path."""

    def __init__(self, seed, paths) -> None:
        self._rng = random.Random(seed)
        self._paths = paths

    def target(self) -> str:
        """A path and a query, of at most the bytes that a request may have."""
        rng = self._rng
        path, names = rng.choice(self._paths)
        # What is wrong at once costs nothing: most parameters are what somebody would ask for.
        hostile = set(rng.sample(list(names), k=min(len(names), rng.choice((0, 1, 1, 1, 2, 5)))))
        parts = []
        for name in names:
            value = rng.choice(VALUES)(rng) if name in hostile else PLAIN.get(name, "")
            if value or name in hostile:
                parts.append(f"{name}={quote_plus(value, errors='replace')}")
        rng.shuffle(parts)
        return f"{path}?{'&'.join(parts)}"[:15_000]


TOPIC = "TopicTest"


def expression(number: int, size: int) -> str:
    """An expression of about so many characters that nobody has asked before."""
    terms = size // 24
    return " AND ".join(f"p{number}x{term} > {term}" for term in range(terms))


def expressions(number: int, count: int, size: int) -> bytes:
    wanted = [subscription(f"T{each}", expression(number + each, size), number, "SQL92") for each in range(count)]
    body = heartbeat(f"c{number}", consumer(f"G{number}", *wanted))
    return encode_request(RequestCode.HEART_BEAT, {}, opaque=1, body=body)


def check(number: int, size: int) -> bytes:
    wanted = {"subscriptionData": subscription(TOPIC, expression(number, size), kind="SQL92")}
    return encode_request(RequestCode.CHECK_CLIENT_CONFIG, {}, opaque=1, body=json.dumps(wanted).encode())


WITH_A_BODY = (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ)
WITH_A_BODY += (RequestCode.CHECK_CLIENT_CONFIG, RequestCode.QUERY_ASSIGNMENT)


def odd_body(number: int, size: int) -> bytes:
    body = b'{"clientID":"c%d","x":{' % number + b"{}:1," * (size // 5)
    return encode_request(WITH_A_BODY[number % len(WITH_A_BODY)], {}, opaque=1, body=body)


def pull(number: int, size: int) -> bytes:
    fields = pull_of(TOPIC, consumerGroup=f"G{number}", maxMsgNums=1, suspendTimeoutMillis=0)
    fields |= {"subscription": expression(number, size), "expressionType": "SQL92"}
    return encode_request(RequestCode.PULL_MESSAGE, fields, opaque=1)


def groups(number: int, count: int) -> bytes:
    wanted = (consumer(f"{number}-{each}-{'g' * 200}", subscription(TOPIC)) for each in range(count))
    producers = tuple(f"{number}-{each}-{'p' * 200}" for each in range(count))
    return encode_request(RequestCode.HEART_BEAT, {}, opaque=1, body=heartbeat("c" * 200, *wanted, producers=producers))


def commits(number: int, count: int) -> bytes:
    place = {"topic": TOPIC, "queueId": "0", "commitOffset": "1"}
    wanted = b"".join(
        encode_request(RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, **place}, opaque=1, oneway=True)
        for group in (f"{number}-{each}-{'g' * 200}" for each in range(count))
    )
    return wanted + encode_request(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}, opaque=1)


def huge(number: int, size: int) -> bytes:
    wanted = [subscription(f"T{each}", f"a > {each}", kind="SQL92") for each in range(size // 150)]
    return encode_request(RequestCode.HEART_BEAT, {}, opaque=1, body=heartbeat(f"c{number}", consumer("G", *wanted)))


LARGE = [
    lambda number: expressions(number, 100, 2400),
    lambda number: check(number, 250_000),
    lambda number: odd_body(number, 130_000),
    lambda number: odd_body(number, 1_000_000),
    lambda number: pull(number, 250_000),
    lambda number: groups(number, 1000),
    lambda number: commits(number, 500),
    lambda number: huge(number, 12_000_000),
    lambda number: b"".join(expressions(number + each, 1, 500) for each in range(0, 100, 2)),
]


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
def opened_to(endpoint):
    with contextlib.suppress(ConnectionError, TimeoutError), socket.create_connection(endpoint, 60) as connection:
        yield connection


def send_frames(endpoint: Endpoint, garbage: Garbage) -> None:
    with opened_to(endpoint) as connection:
        connection.sendall(b"".join(garbage.frame() for _ in range(FRAMES)) + garbage.end())
        connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(1 << 20):
            assert b"Traceback" not in data
            assert b".py" not in data


def send_long(endpoint: Endpoint, rng: random.Random) -> None:
    with opened_to(endpoint) as connection:
        connection.sendall(rng.choice(LARGE)(rng.randrange(1 << 30)))
        connection.recv(1 << 20)


def misuse_connections(endpoint: Endpoint, rng: random.Random) -> None:
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
    head = b""
    with opened_to(endpoint) as connection:
        request = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode("latin-1", "replace"))
        while len(head) < 12 and (data := connection.recv(1 << 16)):
            head += data
        while connection.recv(1 << 20):
            pass
    return int(head.split()[1]) if head.startswith(b"HTTP/1.1 ") else 0


def hostile_urls(store: Path) -> UrlGarbage:
    api = Api([service_of(MessageStore.open(store))])
    paths = [(f"/api/v1{each.path}", each.question.__struct_encode_fields__) for each in api.endpoints]
    api.close()
    return UrlGarbage(SEED, paths)


MASKS: dict[str, list[str]] = {
    "no mask": [],
    "patterns": [r"/\b[\w.]+@[\w.]+\b/", "properties:/(a+)+b/"],
    "a pattern of bodies": [r"body:/1[3-9]\d{9}/"],
    "a path": ["$..phone"],
}


def costly_bodies(part: int = 1) -> dict[str, tuple[bytes, int]]:
    """Bodies with their sysFlags, by what they are, or such of a part of the size."""
    long = b"one more order 4711, " * (3_000_000 // part)
    digits = b"[" + b"1234.5, " * (7_800_000 // part) + b"0]"
    many, mega = 400_000 // part, (60 << 20) // part
    return {
        "empty LZ4 frames": (EMPTY_LZ4 * many, 0x101),
        "empty zstd frames": (EMPTY_ZSTD * many, 0x201),
        "empty gzip members": (gzip.compress(b"", mtime=0) * (many // 2), 0),
        "a long text": (gzip.compress(long, 1, mtime=0), 0),
        "a long text, compressed": (zlib.compress(long), 0x301),
        "long JSON": (gzip.compress(digits, 1, mtime=0), 0),
        "long text beyond the basic plane": (gzip.compress("🙂".encode() * (mega // 4), 1, mtime=0), 0),
        "long bytes": (gzip.compress(bytes(mega), 1, mtime=0), 0),
        "a bomb in a bomb": (zlib.compress(gzip.compress(bytes(mega), mtime=0)), 0x301),
        "a stored text": (long[: 3 << 20], 0),
        "40 KB without end": (b"a." * 20_000, 0),
        "300 KB without end": (b"a." * 150_000, 0),
        "JSON without end": (json.dumps([{"phone": "a." * 20_000}] * 8).encode(), 0),
        "packed text without end": (gzip.compress(b"a." * (mega // 2), 1, mtime=0), 0),
    }


def write_costly(root, bodies):
    """Write a store with some bodies in topic T, and with a message of many properties without end; by their names."""
    writer = StoreWriter(root, segment_size=16 << 20)
    written = {name: writer.append("T", body, sys_flag=flag, keys="key") for name, (body, flag) in bodies.items()}
    many = {f"p{number}": "a" * 30 + str(number) for number in range(500)}
    written["properties without end"] = writer.append("T", b"many", keys="key", properties=many)
    writer.close()
    return written


def questions(offset):
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


REQUEST = encode_request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "6581"}, opaque=1)


def waits(endpoint: Endpoint, seconds: float, request: bytes = REQUEST) -> list[float]:
    measured = []
    with socket.create_connection(endpoint, 30) as connection:
        end = time.monotonic() + seconds
        while (started := time.monotonic()) < end:
            connection.sendall(request)
            assert connection.recv(65536)
            measured.append(time.monotonic() - started)
            time.sleep(0.005)
    return sorted(measured)


def private_bytes(worker: Path) -> int:
    lines = (worker / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private"))


def p99(measured: list[float]) -> float:
    return measured[len(measured) * 99 // 100]


class Attack:
    def __init__(self, server, urls, costly, *, until=float("inf"), rounds=1 << 60, looks=1 << 60) -> None:
        self.statuses: Counter[int] = Counter()
        self.looks: Counter[int] = Counter()
        self.faults: list[str] = []
        endpoint, http = server.endpoints[0], Endpoint("127.0.0.1", server.http_port)
        garbage = Garbage(SEED)
        rng, costly_rng, long_rng = (random.Random(SEED) for _ in range(3))
        self._until, self._http = until, http
        works = [
            (rounds, lambda: send_frames(endpoint, garbage)),
            (rounds, lambda: misuse_connections(endpoint, rng)),
            (rounds, lambda: send_long(endpoint, long_rng)),
            (rounds, lambda: self._count(http, urls.target())),
            (looks, lambda: self._look(costly_rng, costly)),  # each takes far longer
        ]
        self._threads = [threading.Thread(target=self._repeat, args=each) for each in works]
        for each in self._threads:
            each.start()

    def _repeat(self, rounds, work) -> None:
        for _ in range(rounds):
            if time.monotonic() > self._until:
                return
            work()

    def _count(self, http: Endpoint, target: str) -> None:
        status = ask_url(http, target)
        self.statuses[status] += 1
        if status not in STATUSES:
            self.faults.append(f"{status}: {target[:300]}")

    def _look(self, rng: random.Random, costly: list[int]) -> None:
        path, parameters = rng.choice(questions(rng.choice(costly)))
        status = ask_url(self._http, f"/api/v1{path}?{urlencode({**parameters, 'broker': COSTLY})}")
        self.looks[status] += 1
        if status not in STATUSES:
            self.faults.append(f"{status}: {path} {parameters}")

    def join(self) -> None:
        for each in self._threads:
            each.join()


def until_closed(worker: int) -> None:
    deadline = time.monotonic() + 60
    while len(os.listdir(f"/proc/{worker}/fd")) > MOST_DESCRIPTORS:
        assert time.monotonic() < deadline, "descriptors leak"
        time.sleep(0.05)


def judge(server, attack, folder) -> None:
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
def attackable(g1_store, folder, bodies, *, workers, rules):
    written = write_costly(folder / COSTLY, bodies)
    options = ["--state-dir", str(folder / "state"), "--http", "127.0.0.1:0", "--workers", str(workers)]
    options += ["--broker-name", "broker-a", "--broker-name", COSTLY]
    masks = [part for rule in rules for part in ("--mask", rule)]
    with serving_process(g1_store, folder, str(folder / COSTLY), *options, *masks) as server:
        yield server, [each.physical_offset for each in written.values()]


def test_an_attack_of_all_kinds_is_answered_or_cut_off(g1_store: Path, tmp_path: Path) -> None:
    with attackable(g1_store, tmp_path, costly_bodies(100), workers=2, rules=MASKS["patterns"]) as (server, costly):
        attack = Attack(server, hostile_urls(g1_store), costly, rounds=8, looks=10)
        attack.join()
        judge(server, attack, tmp_path)


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


# ------------------------ floods of what is long to parse

VIEW = {"offset": "6581"}


class Parsed:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_turn: Counter[int] = Counter()
        self.elsewhere = 0
        self._turn = 0
        self._thread = threading.get_ident()
        begin, slowly = Parser.__init__, protocol.bodies.parse_fastjson

        def parse(parser: Parser, source: str) -> None:
            self._count(EXPRESSION_UNITS * len(source))
            begin(parser, source)

        def parse_slowly(text: bytes | str) -> object:
            self._count(UNITS_A_BYTE * len(text))
            return slowly(text)

        monkeypatch.setattr(Parser, "__init__", parse)
        monkeypatch.setattr(protocol.bodies, "parse_fastjson", parse_slowly)

    def _count(self, units: int) -> None:
        if threading.get_ident() == self._thread:
            self.by_turn[self._turn] += units
        else:
            self.elsewhere += units

    def begin_turn(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self.begin_turn)


FLOODS = [
    lambda number: expressions(number, 40, 400),
    lambda number: check(number, 12_000),
    lambda number: odd_body(number, 12_000),
    lambda number: pull(number, 12_000),
    lambda number: b"".join(expressions(number + each, 1, 400) for each in range(10)),
    lambda number: b"".join(odd_body(number + each, 1000) for each in range(20)),
]


async def test_a_turn_of_the_event_loop_parses_no_more_than_its_share_whatever_comes(g1_store, monkeypatch) -> None:
    parsed = Parsed(monkeypatch)
    others = 0
    async with serving(service_of(MessageStore.open(g1_store))) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server.addresses[0])) for _ in FLOODS]
        honest = await stack.enter_async_context(connected(server.addresses[0]))
        parsed.begin_turn()

        async def flood(number: int) -> None:
            sent = FLOODS[number](number * 1000)
            clients[number].writer.write(sent)
            for _ in range(sent.count(b'"serializeTypeCurrentRPC"')):
                assert (await clients[number].answer()).code != ResponseCode.SYSTEM_BUSY

        flooding = asyncio.gather(*(flood(number) for number in range(len(FLOODS))))
        while not flooding.done():
            assert (await honest.ask(RequestCode.VIEW_MESSAGE_BY_ID, VIEW)).code == 0
            others += 1
        await flooding
    assert parsed.elsewhere > 3 * UNITS_A_TURN
    assert max(parsed.by_turn.values(), default=0) <= UNITS_A_TURN
    assert others > 10, "others are answered in between"


async def test_a_body_that_is_too_long_is_answered_before_it_has_come_and_takes_no_memory(g1_store: Path) -> None:
    body = heartbeat("c", consumer("G", *(subscription(f"T{each}") for each in range(8000))))
    frame = encode_request(RequestCode.HEART_BEAT, {}, opaque=7, body=body)
    refused = f"the body of request code 34 has {len(body)} bytes, more than the limit of 1048576 (body_bytes)"
    async with serving(service_of(MessageStore.open(g1_store))) as server, connected(server.addresses[0]) as client:
        for cut in (5000, len(frame) - 1):
            client.writer.write(frame[:cut])
            answer = await client.answer()
            assert (answer.opaque, answer.code, answer.remark) == (7, ResponseCode.SYSTEM_ERROR, refused)
            assert server.budget.received < 1000
            client.writer.write(frame[cut:])
            assert (await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, VIEW)).code == 0
