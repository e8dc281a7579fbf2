"""Floods of what is long to parse keep nobody else waiting, and what they leave behind is bounded.

What others wait is measured in `test_attack.py`.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import port_flood
import protocol.bodies
from broker.service.consumers.kept_filters import EXPRESSION_UNITS
from broker.service.long_work import UNITS_A_BYTE, UNITS_A_TURN
from broker_harness import connected, service_of, serving
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode
from protocol.command import encode_request
from storage.filter.sql92._parser import Parser
from storage.store.message_store import MessageStore

VIEW = {"offset": "6581"}


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


# ---------------------------------------------------------------------- what others wait, in processes
