"""Floods of what is long to parse keep nobody else waiting, and what they leave behind is bounded.

The small version counts what the event loop parses in one turn; the long one measures what others wait.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

import port_flood
import protocol.bodies
from broker.limits import DEFAULT_LIMITS
from broker.service import long_work
from broker.service.consumers.kept_filters import EXPRESSION_UNITS
from broker.service.long_work import UNITS_A_BYTE, UNITS_A_TURN
from broker_harness import connected, service_of, serving, until
from heartbeats import consumer, heartbeat, subscription
from measured_waits import p99, private_bytes, waits
from process import ROOT, Serving, serving_process
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, decode_command, encode_request, ext_fields_of
from protocol.frame import FrameDecoder
from storage.filter.sql92._parser import Parser
from storage.store.message_store import MessageStore

VIEW = {"offset": "6581"}

REGISTRY_BYTES = 64 << 20
SLACK_BYTES = 128 << 20
"""What requests may take that are under way, and what the allocator keeps."""


class Parsed:
    """What is parsed on the thread of the event loop, in units, by turn of the loop."""

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
        """Count for the next turn from now on."""
        self._turn += 1
        asyncio.get_running_loop().call_soon(self.begin_turn)


FLOODS: list[Callable[[int], bytes]] = [
    lambda number: port_flood.expressions(number, 40, 400),
    lambda number: port_flood.check(number, 12_000),
    lambda number: port_flood.odd_body(number, 12_000),
    lambda number: port_flood.pull(number, 12_000),
    lambda number: b"".join(port_flood.expressions(number + each, 1, 400) for each in range(10)),
    lambda number: b"".join(port_flood.odd_body(number + each, 1000) for each in range(20)),
]


@pytest.mark.asyncio
async def test_a_turn_of_the_event_loop_parses_no_more_than_its_share_whatever_comes(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.asyncio
async def test_a_pull_with_a_long_expression_is_answered_as_with_a_short_one(g1_store: Path) -> None:
    """It is parsed on one thread, looked up on the event loop or on another thread, and may wait there."""
    every = "a IS NULL OR a IS NOT NULL"
    everything = f"{every} OR {' OR '.join(f'a = {number}' for number in range(2000))}"
    fields = {"consumerGroup": "G", "topic": "TopicTest", "queueId": "0", "maxMsgNums": "4", "subVersion": "0"}
    fields |= {"commitOffset": "0", "suspendTimeoutMillis": "15000", "expressionType": "SQL92"}
    service = service_of(MessageStore.open(g1_store))
    async with serving(service) as server:
        async with connected(server.addresses[0]) as client:
            asked = fields | {"queueOffset": "0", "sysFlag": "4"}
            long = await client.ask(RequestCode.PULL_MESSAGE, asked | {"subscription": everything})
            short = await client.ask(RequestCode.PULL_MESSAGE, asked | {"subscription": every})
            assert (long.code, long.body) == (short.code, short.body) == (0, short.body)
            assert short.body
            wrong = await client.ask(RequestCode.PULL_MESSAGE, asked | {"subscription": everything + " OR"})
            assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            end = ext_fields_of(await client.ask(RequestCode.GET_MAX_OFFSET, asked))["offset"]
            client.send(
                RequestCode.PULL_MESSAGE, fields | {"queueOffset": end, "sysFlag": "6", "subscription": everything}
            )
            await until(lambda: len(service.polls) == 1)
            assert server.budget.in_flight > len(everything), "its texts count as long as it waits"
        await until(lambda: not len(service.polls))
        await until(lambda: server.budget.in_flight == 0)


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_bodies_are_held_to_the_limit_that_is_told(g1_store: Path) -> None:
    service = service_of(MessageStore.open(g1_store), limits=replace(DEFAULT_LIMITS, body_bytes=5000))
    async with serving(service) as server, connected(server.addresses[0]) as client:
        for code in sorted(long_work.PARSED_BODIES):
            answer = await client.ask(code, body=b" " * 5001)
            assert (answer.code, "of 5000 (body_bytes)" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        # Whose body nobody reads may be as long as a frame.
        assert (
            await client.ask(RequestCode.SEND_MESSAGE_V2, {"a": "P", "b": "TopicTest"}, body=b" " * 50_000)
        ).code == ResponseCode.NO_PERMISSION


# ---------------------------------------------------------------------- what others wait, in processes


def flooding(
    port: int, processes: int, connections: int, seconds: float, stack: ExitStack
) -> list["subprocess.Popen[str]"]:
    """Processes that flood a port, once all of them do."""
    command = [
        sys.executable,
        str(ROOT / "tests" / "support" / "port_flood.py"),
        *map(str, (port, connections, seconds)),
    ]
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))
    environment = os.environ | {"PYTHONPATH": paths}
    runs = [
        stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        for _ in range(processes)
    ]
    for run in runs:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
    return runs


def health_waits(server: Serving, seconds: float) -> list[float]:
    """How long `/healthz` takes, asked ten times a second."""
    measured = []
    end = time.monotonic() + seconds
    while (started := time.monotonic()) < end:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/healthz", timeout=60) as answer:
            assert answer.status == 200
        measured.append(time.monotonic() - started)
        time.sleep(0.1)
    return sorted(measured)


def heartbeat_waits(server: Serving, seconds: float) -> list[float]:
    """How long a member of two groups waits for its heartbeat, asked twice a second; it stays a member throughout."""
    body = heartbeat("honest", consumer("HonestGroup", subscription("TopicTest", "a > 5", kind="SQL92")))
    measured = []
    end = time.monotonic() + seconds
    with socket.create_connection(server.endpoints[0], 60) as connection:
        while (started := time.monotonic()) < end:
            assert ask(connection, RequestCode.HEART_BEAT, {}, body).code == 0
            measured.append(time.monotonic() - started)
            members = ask(connection, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "HonestGroup"}).body
            assert json.loads(members) == {"consumerIdList": ["honest"]}
            time.sleep(0.5)
    return sorted(measured)


def ask(connection: socket.socket, code: int, fields: dict[str, str], body: bytes = b"") -> Command:
    """The answer to one request; what the server asks meanwhile is left unanswered."""
    connection.sendall(encode_request(code, fields, opaque=1, body=body))
    decoder = FrameDecoder()
    while True:
        for command in map(decode_command, decoder.feed(connection.recv(65536))):
            if command.is_response:
                return command


def in_thread(work: Callable[[Serving, float], list[float]], server: Serving, seconds: float) -> "Future[list[float]]":
    done: Future[list[float]] = Future()

    def run() -> None:
        try:
            done.set_result(work(server, seconds))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
def test_floods_keep_nobody_waiting_and_what_they_leave_is_bounded(
    g1_store: Path, tmp_path: Path, workers: int
) -> None:
    processes, connections, seconds = 4, 4, 60.0
    options = ["--state-dir", str(tmp_path / "state"), "--http", "127.0.0.1:0", "--workers", str(workers)]
    options += ["--limit", f"registry_bytes={REGISTRY_BYTES}"]
    with serving_process(g1_store, tmp_path, *options) as server, ExitStack() as stack:
        quiet = waits(server.endpoints[0], 5)
        before = [private_bytes(Path(f"/proc/{worker}")) for worker in server.workers]
        runs = flooding(server.endpoints[0].port, processes, connections, seconds, stack)
        health, beats = (in_thread(work, server, seconds * 0.8) for work in (health_waits, heartbeat_waits))
        loaded = waits(server.endpoints[0], seconds * 0.8)
        peak = [private_bytes(Path(f"/proc/{worker}")) for worker in server.workers]
        answered = [run.stdout.read().strip() for run in runs if run.stdout is not None]
        kept = sum(path.stat().st_size for path in (tmp_path / "state").glob("consumerOffset.json"))
        print(
            f"{workers} workers: {answered}; p99 of views {p99(quiet) * 1e3:.1f} ms quiet, {p99(loaded) * 1e3:.1f} ms "
            f"flooded (longest {loaded[-1] * 1e3:.0f}); health {p99(health.result()) * 1e3:.1f} ms (longest "
            f"{health.result()[-1] * 1e3:.0f}); heartbeats {p99(beats.result()) * 1e3:.1f} ms; private memory "
            f"{[size >> 20 for size in before]} MB before, {[size >> 20 for size in peak]} after; "
            f"consumerOffset.json {kept >> 20} MB"
        )
        assert all(int(each.split()[0]) > 0 for each in answered)
        assert p99(loaded) < 0.2
        assert p99(health.result()) < 0.2
        assert kept < REGISTRY_BYTES
        assert max(peak) - max(before) < 3 * REGISTRY_BYTES + SLACK_BYTES
        assert server.stop() == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()
