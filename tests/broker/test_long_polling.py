"""Pulls that wait: until a message arrives that they want, until their time is up, until anybody goes away."""

import asyncio
import gc
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from broker import long_polling
from broker import server as broker_server
from broker.long_polling import LongPolling
from broker.server import Server
from broker_harness import RawClient, connected, service_of, serving, until
from heartbeats import consumer, heartbeat, subscription
from protocol.command import Command, Response, ext_fields_of
from protocol.message import decode_messages
from storage.message_store import MessageStore
from storage.queue_store import QueueStore
from storage.residency import Cold
from store_writer import StoreWriter

pytestmark = pytest.mark.asyncio

SUSPEND, SUBSCRIPTION = 2, 4
FOUND, BUSY, NOT_FOUND, RETRY = 0, 2, 19, 20
STOPPING = (BUSY, "the server is stopping")
PATIENT = 15_000


def pull_fields(queue_offset: int = 3, queue_id: int = 0, topic: str = "T", **fields: str | int) -> Mapping[str, str]:
    header = {
        "consumerGroup": "G",
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "maxMsgNums": 32,
        "sysFlag": SUSPEND | SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": PATIENT,
        "subscription": "*",
        "subVersion": 0,
        **fields,
    }
    return {name: str(value) for name, value in header.items()}


class Growing:
    """A store of queue 0 of topic T with three messages, which more can be added to."""

    def __init__(self, root: Path) -> None:
        self.writer = StoreWriter(root)
        self.add(*"abc")
        self.writer.append("Other", b"x")
        self.writer.flush()
        self.store = MessageStore.open(root)

    def add(self, *bodies: str, tags: str | None = None, queue_id: int = 0) -> None:
        for body in bodies:
            self.writer.append("T", body.encode(), tags=tags, queue_id=queue_id)
        self.writer.flush()

    async def refresh(self) -> None:
        await asyncio.to_thread(self.store.refresh)


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path / "store")


def held(server: Server) -> int:
    return len(server._service.polls)


def told(answer: Command) -> tuple[int, str | None, int]:
    return answer.code, answer.remark, int(ext_fields_of(answer)["nextBeginOffset"])


def bodies(answer: Command) -> list[bytes]:
    return [bytes(message.body) for message in decode_messages(answer.body)]


@pytest.mark.parametrize("code", [11, 361])
async def test_a_pull_at_the_end_is_answered_when_a_message_arrives(code: int, growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        opaque = client.send(code, pull_fields())
        await until(lambda: held(server) == 1)
        growing.add("new")
        await growing.refresh()
        answer = await client.answer()
        assert (answer.opaque, told(answer), bodies(answer)) == (opaque, (FOUND, "FOUND", 4), [b"new"])
        assert held(server) == 0


async def test_a_pull_whose_time_is_up_is_told_that_there_is_nothing_new(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        answer = await client.ask(11, pull_fields(suspendTimeoutMillis=250))
        assert told(answer) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3)
        assert ext_fields_of(answer)["maxOffset"] == "3"
        assert loop.time() - begin >= 0.25
        assert held(server) == 0


async def test_no_pull_is_held_longer_than_clients_wait(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "LONGEST_HOLD_SECONDS", 0.1)
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        assert told(await client.ask(11, pull_fields(suspendTimeoutMillis=2**62)))[0] == NOT_FOUND


async def test_pulls_of_different_patience_are_answered_each_in_its_time(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        slow = client.send(11, pull_fields(suspendTimeoutMillis=900))
        quick = client.send(11, pull_fields(suspendTimeoutMillis=200))
        assert [(await client.answer()).opaque, (await client.answer()).opaque] == [quick, slow]


@pytest.mark.parametrize(
    "fields",
    [{"sysFlag": SUBSCRIPTION}, {"suspendTimeoutMillis": 0}, {"suspendTimeoutMillis": -5}],
    ids=["no flag", "no time", "negative time"],
)
async def test_a_pull_that_may_not_wait_is_answered_at_once(fields: dict[str, int], growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        answer = await client.ask(11, pull_fields(**fields))
        assert told(answer) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3)


@pytest.mark.parametrize(("queue_offset", "following"), [(99, 3), (0, 3)])
async def test_a_pull_that_has_somewhere_to_go_is_not_held(queue_offset: int, following: int, growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        answer = await client.ask(11, pull_fields(queue_offset, subscription="Never"))
        assert told(answer)[::2] == (RETRY, following)


async def test_a_queue_that_does_not_exist_yet_is_waited_for(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        client.send(11, pull_fields(0, topic="%RETRY%G"))
        await until(lambda: held(server) == 1)
        growing.writer.append("%RETRY%G", b"again")
        growing.writer.flush()
        await growing.refresh()
        assert bodies(await client.answer()) == [b"again"]


async def test_a_message_of_another_queue_wakes_nobody(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        client.send(11, pull_fields())
        await until(lambda: held(server) == 1)
        growing.writer.append("Other", b"x")
        growing.writer.flush()
        await growing.refresh()
        await client.ask(31, {"topic": "T", "queueId": "0"})
        assert held(server) == 1


async def test_messages_that_a_held_pull_does_not_want_are_passed_over_once(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        client.send(11, pull_fields(subscription="Wanted"))
        await until(lambda: held(server) == 1)
        (pull,) = server._service.polls._held["T", 0]
        growing.add("no", "neither", tags="Other")
        await growing.refresh()
        await until(lambda: pull.question.queue_offset == 5)
        assert held(server) == 1
        growing.add("yes", tags="Wanted")
        await growing.refresh()
        answer = await client.answer()
        assert (told(answer)[::2], bodies(answer)) == ((FOUND, 6), [b"yes"])


async def test_a_pull_that_passed_over_messages_goes_on_behind_them_when_its_time_is_up(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        client.send(11, pull_fields(subscription="Wanted", suspendTimeoutMillis=1500))
        await until(lambda: held(server) == 1)
        growing.add("no", tags="Other")
        await growing.refresh()
        answer = await client.answer()
        assert told(answer) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE", 4)
        assert ext_fields_of(answer)["maxOffset"] == "4"


async def test_a_closed_connection_takes_its_pulls_with_it(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server:
        async with connected(server.addresses[0]) as client:
            for _ in range(5):
                client.send(11, pull_fields())
            await until(lambda: held(server) == 5)
        await until(lambda: held(server) == 0)
        assert not server._service.polls._wheel


async def test_all_pulls_are_told_that_the_server_stops(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        sent = {client.send(11, pull_fields()) for _ in range(5)}
        await until(lambda: held(server) == 5)
        stopping = asyncio.create_task(server.stop())
        answers = [await client.answer() for _ in range(5)]
        assert {answer.opaque for answer in answers} == sent
        assert {(answer.code, answer.remark) for answer in answers} == {STOPPING}
        client.writer.close()
        await stopping


@pytest.mark.parametrize("code", [11, 361])
async def test_pulls_that_come_while_the_server_stops_are_told_so(code: int, growing: Growing) -> None:
    """A consumer that is told that there is nothing new asks at once, into a connection that is about to close."""
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        waiting = client.send(11, pull_fields())
        await until(lambda: held(server) == 1)
        stopping = asyncio.create_task(server.stop())
        assert (await client.answer()).opaque == waiting
        for queue_offset in (0, 3, 99):
            answer = await client.ask(code, pull_fields(queue_offset))
            assert (answer.code, answer.remark) == STOPPING
        assert (await client.ask(30, {"topic": "T", "queueId": "0"})).code == 0, "other requests are answered"
        assert await client.is_closed_by_the_server()
        client.writer.close()
        await stopping


async def test_members_of_a_group_are_told_even_if_none_of_their_pulls_waits(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        await client.ask(34, body=heartbeat("c1", consumer("G", subscription("T"))))
        stopping = asyncio.create_task(server.stop())
        await until(lambda: server._service.polls.is_stopping)
        answer = await client.ask(11, pull_fields(0, sysFlag=SUSPEND | 1, subVersion=1, commitOffset=2))
        assert (answer.code, answer.remark) == STOPPING
        assert server._service.offsets.committed("G", "T", 0) == 2, "what it has done is not lost"
        client.writer.close()
        await stopping


async def test_a_server_without_consumers_stops_at_once(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_server, "FAREWELL_SECONDS", 1000.0)
    async with (
        serving(service_of(growing.store, stop_timeout_seconds=1000)) as server,
        connected(server.addresses[0]) as client,
    ):
        await client.ask(34, body=heartbeat("p1", producers=("P",)))
        async with connected(server.addresses[0]) as consuming:
            await consuming.ask(34, body=heartbeat("c1", consumer("G", subscription("T"))))
        await until(lambda: not server._service.clients.has_consumers)
        stopping = asyncio.create_task(server.stop())
        assert await client.is_closed_by_the_server()
        client.writer.close()
        await stopping


async def test_other_requests_of_the_connection_are_answered_meanwhile(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        waiting = client.send(11, pull_fields(suspendTimeoutMillis=2000))
        assert ext_fields_of(await client.ask(30, {"topic": "T", "queueId": "0"})) == {"offset": "3"}
        assert (await client.answer()).opaque == waiting


async def test_a_oneway_pull_is_not_held(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        client.send(11, pull_fields(), oneway=True)
        await client.ask(30, {"topic": "T", "queueId": "0"})
        assert held(server) == 0


async def test_a_push_consumer_is_woken_by_the_subscription_of_its_heartbeat(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        await client.ask(34, body=heartbeat("c1", consumer("G", subscription("T", "A || B", 4))))
        client.send(11, pull_fields(sysFlag=SUSPEND, subVersion=4))
        await until(lambda: held(server) == 1)
        growing.add("no", tags="C")
        growing.add("yes", tags="B")
        await growing.refresh()
        assert bodies(await client.answer()) == [b"yes"]


# ---------------------------------------------------------------------- the parts alone


class FakeStore:
    """A store whose queues are whatever object they are at the moment."""

    def __init__(self) -> None:
        self.queues: Any = object()

    def after_refresh(self, _callback: object) -> None:
        """Nobody refreshes it."""


class FakeQuestion:
    """Answers with what it is given, in turn; an exception is raised."""

    queue_key = ("T", 0)
    queue_offset = 0

    @property
    def sameness(self) -> int:
        return id(self)

    def look_as(self, other: object) -> None:
        """Nothing is passed over."""

    def __init__(self, *answers: Response | Exception | None) -> None:
        self._answers: Iterator[Response | Exception | None] = iter(answers)

    def look(self) -> Response | None:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def give_up(self) -> Response:
        return Response(NOT_FOUND)


def polling(store: FakeStore) -> LongPolling:
    polls = LongPolling(store)  # type: ignore[arg-type]
    polls.start(lambda work: asyncio.get_running_loop().run_in_executor(None, work))
    return polls


async def test_a_store_that_grew_while_a_pull_looked_at_it_is_looked_at_again() -> None:
    store = FakeStore()
    polls = polling(store)
    seen: QueueStore = store.queues
    store.queues = object()
    pull = polls.hold(FakeQuestion(Response(FOUND)), 10, seen)
    assert not isinstance(pull, Response)
    assert (await pull).code == FOUND


async def test_a_look_that_would_wait_for_the_disk_is_made_on_a_thread() -> None:
    store = FakeStore()
    polls = polling(store)
    warmed: list[bool] = []
    cold = Cold("a queue file", lambda: warmed.append(True))
    pull = polls.hold(FakeQuestion(cold, Response(FOUND)), 10, object())  # type: ignore[arg-type]
    assert not isinstance(pull, Response)
    assert (await pull).code == FOUND
    assert warmed == [True]


@pytest.mark.parametrize("answers", [(ValueError("odd"),), (Cold("a file"), ValueError("odd"))])
async def test_a_look_that_fails_ends_the_wait_with_its_error(answers: tuple[Exception, ...]) -> None:
    pull = polling(FakeStore()).hold(FakeQuestion(*answers), 10, object())  # type: ignore[arg-type]
    assert not isinstance(pull, Response)
    with pytest.raises(ValueError, match="odd"):
        await pull


async def test_a_pull_that_was_found_wanting_on_a_thread_is_kept_there() -> None:
    store = FakeStore()
    polls = polling(store)
    queues = store.queues
    pull = await asyncio.to_thread(polls.hold, FakeQuestion(), 10, queues)
    assert not isinstance(pull, Response)
    await until(lambda: len(polls) == 1)
    pull.cancel()
    await until(lambda: len(polls) == 0)


async def test_nothing_is_held_before_the_start_and_after_the_end() -> None:
    early = LongPolling(FakeStore()).hold(FakeQuestion(), 10, object())  # type: ignore[arg-type]
    assert isinstance(early, Response)
    assert early.code == NOT_FOUND
    polls = polling(FakeStore())
    polls.stop()
    late = polls.hold(FakeQuestion(), 10, object())  # type: ignore[arg-type]
    assert isinstance(late, Response)
    assert (late.code, late.remark) == STOPPING


async def test_a_pull_on_its_way_from_a_thread_when_the_server_stops_is_told_so() -> None:
    store = FakeStore()
    polls = polling(store)
    pull = await asyncio.to_thread(polls.hold, FakeQuestion(), 10, store.queues)
    polls.stop()
    assert not isinstance(pull, Response)
    answer = await pull
    assert (answer.code, answer.remark) == STOPPING


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
async def test_a_held_pull_costs_a_few_kilobytes(growing: Growing) -> None:
    """Ten thousand in a hundred megabytes, with room: a thousand are held here, on several connections."""
    async with serving(service_of(growing.store)) as server:
        clients: list[RawClient] = []
        try:
            clients += [RawClient(*await asyncio.open_connection(*server.addresses[0])) for _ in range(4)]
            clients[0].send(11, pull_fields())
            await until(lambda: held(server) == 1)
            gc.collect()
            before = resident_bytes()
            for number in range(2000):
                clients[number % 4].send(11, pull_fields())
            await until(lambda: held(server) == 2001)
            assert (resident_bytes() - before) / 2000 < 8 * 1024
        finally:
            for client in clients:
                client.writer.close()
        await until(lambda: held(server) == 0)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
