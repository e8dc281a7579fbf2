"""Pulls that wait: until a message arrives that they want, until their time is up, until anybody goes away."""

import asyncio
import contextlib
import gc
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker import server as broker_server
from broker.server import Server
from broker.service import long_polling
from broker_harness import RawClient, connected, service_of, serving, until
from draining import pull_of
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode
from protocol.command import Command, ext_fields_of
from protocol.message import decode_messages
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

pytestmark = pytest.mark.asyncio

SUSPEND, SUBSCRIPTION = 2, 4
FOUND, BUSY, NOT_FOUND, RETRY = 0, 2, 19, 20
STOPPING = (BUSY, "the server is stopping")
PATIENT = 15_000


def pull_fields(queue_offset: int = 3, queue_id: int = 0, topic: str = "T", **fields: str | int) -> Mapping[str, str]:
    waiting = {"sysFlag": SUSPEND | SUBSCRIPTION, "suspendTimeoutMillis": PATIENT}
    return pull_of(topic, queue_id, queue_offset, **{**waiting, **fields})


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


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
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
        answer = await client.ask(RequestCode.PULL_MESSAGE, pull_fields(suspendTimeoutMillis=250))
        assert told(answer) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3)
        assert ext_fields_of(answer)["maxOffset"] == "3"
        assert loop.time() - begin >= 0.25
        assert held(server) == 0


async def test_no_pull_is_held_longer_than_clients_wait(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "LONGEST_HOLD_SECONDS", 0.1)
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        assert told(await client.ask(RequestCode.PULL_MESSAGE, pull_fields(suspendTimeoutMillis=2**62)))[0] == NOT_FOUND


@pytest.mark.parametrize(
    "fields",
    [{"sysFlag": SUBSCRIPTION}, {"suspendTimeoutMillis": 0}, {"suspendTimeoutMillis": -5}],
    ids=["no flag", "no time", "negative time"],
)
async def test_a_pull_that_may_not_wait_is_answered_at_once(fields: dict[str, int], growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        answer = await client.ask(RequestCode.PULL_MESSAGE, pull_fields(**fields))
        assert told(answer) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3)


async def test_a_queue_that_does_not_exist_yet_is_waited_for(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        client.send(RequestCode.PULL_MESSAGE, pull_fields(0, topic="%RETRY%G"))
        await until(lambda: held(server) == 1)
        growing.writer.append("%RETRY%G", b"again")
        growing.writer.flush()
        await growing.refresh()
        assert bodies(await client.answer()) == [b"again"]


async def test_messages_that_a_held_pull_does_not_want_are_passed_over_once(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        client.send(RequestCode.PULL_MESSAGE, pull_fields(subscription="Wanted"))
        await until(lambda: held(server) == 1)
        (group,) = server._service.polls._held["T", 0].values()
        growing.add("no", "neither", tags="Other")
        await growing.refresh()
        await until(lambda: group.question.queue_offset == 5)
        assert held(server) == 1
        growing.add("yes", tags="Wanted")
        await growing.refresh()
        answer = await client.answer()
        assert (told(answer)[::2], bodies(answer)) == ((FOUND, 6), [b"yes"])


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_pulls_that_come_while_the_server_stops_are_told_so(code: int, growing: Growing) -> None:
    """If the answer were that nothing is new, the consumer would ask again on a connection that is about to close."""
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        waiting = client.send(RequestCode.PULL_MESSAGE, pull_fields())
        await until(lambda: held(server) == 1)
        stopping = asyncio.create_task(server.stop())
        assert (await client.answer()).opaque == waiting
        for queue_offset in (0, 3, 99):
            answer = await client.ask(code, pull_fields(queue_offset))
            assert (answer.code, answer.remark) == STOPPING
        assert (await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})).code == 0, (
            "other requests are answered"
        )
        assert await client.is_closed_by_the_server()
        client.writer.close()
        await stopping


async def test_members_of_a_group_are_told_even_if_none_of_their_pulls_waits(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        await client.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("T"))))
        stopping = asyncio.create_task(server.stop())
        await until(lambda: server._service.polls.is_stopping)
        answer = await client.ask(
            RequestCode.PULL_MESSAGE, pull_fields(0, sysFlag=SUSPEND | 1, subVersion=1, commitOffset=2)
        )
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
        await client.ask(RequestCode.HEART_BEAT, body=heartbeat("p1", producers=("P",)))
        async with connected(server.addresses[0]) as consuming:
            await consuming.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("T"))))
        await until(lambda: not server._service.clients.has_consumers)
        stopping = asyncio.create_task(server.stop())
        assert await client.is_closed_by_the_server()
        client.writer.close()
        await stopping


async def test_all_pulls_that_wait_for_one_message_get_it_once(growing: Growing) -> None:
    """Two hundred on four connections, in both forms, with different patience and tags."""
    async with serving(service_of(growing.store)) as server, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server.addresses[0])) for _ in range(4)]
        sent = [
            {
                client.send(
                    [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE][number % 2],
                    pull_fields(
                        subscription=["*", "A", "A || B", "Never"][number % 4], suspendTimeoutMillis=120_000 + number
                    ),
                    serialize_type=number // 4 % 2,
                )
                for number in range(50)
            }
            for client in clients
        ]
        await until(lambda: held(server) == 200)
        growing.add("new", tags="A")
        await growing.refresh()
        for client, opaques in zip(clients, sent, strict=True):
            answers = [await client.answer() for _ in range(38)]
            assert {answer.opaque for answer in answers} < opaques
            assert len({answer.opaque for answer in answers}) == 38
            assert {(told(answer), *bodies(answer)) for answer in answers} == {((FOUND, "FOUND", 4), b"new")}
        assert held(server) == 48, "those that want another tag"
        assert [await client.ask(RequestCode.GET_MIN_OFFSET, {"topic": "T", "queueId": "0"}) for client in clients]


async def test_a_client_that_does_not_read_gets_its_answers_when_it_does(growing: Growing) -> None:
    """A hundred and fifty answers of 100 KB: a megabyte waits to be sent, the rest as what it is made of."""
    async with (
        serving(service_of(growing.store)) as server,
        connected(server.addresses[0]) as lazy,
        connected(server.addresses[0]) as client,
    ):
        sent = {lazy.send(RequestCode.PULL_MESSAGE, pull_fields()) for _ in range(150)}
        await until(lambda: held(server) == 150)
        (connection,) = [each for each in server.connections if len(each.session.pending) == 150]
        growing.add("x" * 100_000)
        await growing.refresh()
        await until(lambda: connection.session.answers.is_read_slowly)
        assert connection.session.answers._due
        assert connection._transport.get_write_buffer_size() < 3_000_000
        assert (await client.ask(RequestCode.GET_MIN_OFFSET, {"topic": "T", "queueId": "0"})).code == 0
        answers = [await lazy.answer() for _ in range(150)]
        assert {answer.opaque for answer in answers} == sent
        assert {len(answer.body) > 100_000 for answer in answers} == {True}
        assert not connection.session.answers._due


async def test_a_held_pull_costs_a_few_kilobytes(growing: Growing) -> None:
    """Ten thousand in a hundred megabytes, with room: a thousand are held here, on several connections."""
    async with serving(service_of(growing.store)) as server:
        clients: list[RawClient] = []
        try:
            clients += [RawClient(*await asyncio.open_connection(*server.addresses[0])) for _ in range(4)]
            clients[0].send(RequestCode.PULL_MESSAGE, pull_fields())
            await until(lambda: held(server) == 1)
            gc.collect()
            before = private_bytes()
            for number in range(2000):
                clients[number % 4].send(RequestCode.PULL_MESSAGE, pull_fields())
            await until(lambda: held(server) == 2001)
            assert (private_bytes() - before) / 2000 < 8 * 1024
        finally:
            for client in clients:
                client.writer.close()
        await until(lambda: held(server) == 0)
        assert not server._service.polls._wheel


def private_bytes() -> int:
    """Memory of this process that is no page of a file: those come and go by themselves."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024
