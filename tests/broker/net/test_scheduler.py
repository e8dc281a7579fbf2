"""Bursts of requests wait in one queue: each gets all its answers, and a client that asks little is not held up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from broker.net.scheduler import SHARE_BYTES, SLICE_BYTES, SMALL_READ, TURN_FRAMES, Scheduler
from broker.server import Server
from broker_harness import RawClient, connected, service_of, serving
from protocol.codes import RequestCode
from storage.store.message_store import MessageStore

pytestmark = pytest.mark.asyncio

VIEW = RequestCode.VIEW_MESSAGE_BY_ID
OFFSET = "6581"
BURST = 1500
BURSTS = 12


class Client:
    """Notes when it had its turn, and has work left for so many."""

    def __init__(self, turns: Scheduler, work: int, had_turn: Callable[["Client"], None]) -> None:
        self.turns = turns
        self.work = work
        self.had_turn = had_turn

    def go_on(self) -> None:
        self.had_turn(self)
        self.work -= 1
        if self.work:
            self.turns.join(self)


async def test_one_of_the_line_has_its_turn_in_each_turn_of_the_loop_and_all_in_order() -> None:
    turns, had = Scheduler(asyncio.get_running_loop().call_soon), list[Client | None]()
    first, second = Client(turns, 3, had.append), Client(turns, 2, had.append)
    for client in (first, second, second):
        turns.join(client)
    for _ in range(6):
        await asyncio.sleep(0)
        had.append(None)
    assert had == [first, None, second, None, first, None, second, None, first, None, None]


async def test_who_waits_makes_the_others_answer_in_slices() -> None:
    turns = Scheduler(asyncio.get_running_loop().call_soon)
    assert (turns.is_crowded, turns.stop(10 * SMALL_READ)) == (False, 10 * SMALL_READ)
    turns.join(Client(turns, 1, lambda client: None))
    assert (turns.is_crowded, turns.stop(10 * SMALL_READ), turns.stop(100)) == (True, SLICE_BYTES, 100)


async def test_bursts_beyond_the_share_wait_until_the_next_turn_of_the_loop_and_small_reads_never() -> None:
    turns = Scheduler(asyncio.get_running_loop().call_soon)
    turns.spend(SMALL_READ)
    assert not turns.must_wait(1 << 20)
    turns.spend(SHARE_BYTES + 1)
    assert turns.must_wait(SMALL_READ + 1)
    assert not turns.must_wait(SMALL_READ)
    await asyncio.sleep(0)
    assert not turns.must_wait(1 << 20)


@pytest_asyncio.fixture
async def server(g1_store: Path) -> AsyncIterator[Server]:
    async with serving(service_of(MessageStore.open(g1_store))) as running:
        yield running


async def read_burst(client: RawClient, count: int) -> list[tuple[int, int, int]]:
    """What came for a burst: the opaque, code and length of each answer."""
    answers = [await client.answer() for _ in range(count)]
    return [(answer.opaque, answer.code, len(answer.body)) for answer in answers]


@pytest.mark.lane
async def test_each_burst_gets_all_its_answers_in_order_and_who_asks_little_is_answered_long_before(
    server: Server,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        patient = await stack.enter_async_context(connected(server.addresses[0]))
        opened = [await stack.enter_async_context(connected(server.addresses[0])) for _ in range(BURSTS)]
        for client in opened:
            for _ in range(BURST):
                client.send(VIEW, {"offset": OFFSET})
        expected = await patient.ask(VIEW, {"offset": OFFSET})
        lane = server.lane
        assert lane is not None
        # Fewer than if each burst had had one turn.
        assert 0 < lane.answered[VIEW] < BURSTS * TURN_FRAMES / 2
        for answers in await asyncio.gather(*(read_burst(client, BURST) for client in opened)):
            assert answers == [(number + 1, 0, len(expected.body)) for number in range(BURST)]
