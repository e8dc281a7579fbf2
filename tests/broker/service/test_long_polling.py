"""Pulls that wait: until a message arrives that they want, until their time is up, until anybody goes away."""

import asyncio
import contextlib
import gc
import threading
from pathlib import Path

import pytest

from broker.service import long_polling
from broker.service.long_polling import LongPolling
from broker_harness import FakeStore, RawClient, connected, service_of, serving, until
from draining import pull_of
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode
from protocol.command import Response, ext_fields_of
from protocol.message import decode_messages
from storage.files.waiting import Wait
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

SUSPEND, SUBSCRIPTION = 2, 4
FOUND, BUSY, NOT_FOUND, RETRY = 0, 2, 19, 20
STOPPING = (BUSY, "the server is stopping")
PATIENT = 15_000


def pull_fields(queue_offset=3, queue_id=0, topic="T", **fields):
    waiting = {"sysFlag": SUSPEND | SUBSCRIPTION, "suspendTimeoutMillis": PATIENT}
    return pull_of(topic, queue_id, queue_offset, **{**waiting, **fields})


class Growing:
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


def held(server) -> int:
    return len(server._service.polls)


def told(answer) -> tuple[int, str | None, int]:
    return answer.code, answer.remark, int(ext_fields_of(answer)["nextBeginOffset"])


def bodies(answer) -> list[bytes]:
    return [bytes(message.body) for message in decode_messages(answer.body)]


async def test_no_pull_is_held_longer_than_clients_wait(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "LONGEST_HOLD_SECONDS", 0.1)
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        assert told(await client.ask(RequestCode.PULL_MESSAGE, pull_fields(suspendTimeoutMillis=2**62)))[0] == NOT_FOUND


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
        other = await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
        assert other.code == 0, "other requests are answered"
        assert await client.is_closed_by_the_server()
        client.writer.close()
        await stopping


async def test_members_of_a_group_are_told_even_if_none_of_their_pulls_waits(growing: Growing) -> None:
    async with serving(service_of(growing.store)) as server, connected(server.addresses[0]) as client:
        await client.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("T"))))
        stopping = asyncio.create_task(server.stop())
        await until(lambda: server._service.polls.is_stopping)
        pull = pull_fields(0, sysFlag=SUSPEND | 1, subVersion=1, commitOffset=2)
        answer = await client.ask(RequestCode.PULL_MESSAGE, pull)
        assert (answer.code, answer.remark) == STOPPING
        assert server._service.offsets.committed("G", "T", 0) == 2, "what it has done is not lost"
        client.writer.close()
        await stopping


async def test_all_pulls_that_wait_for_one_message_get_it_once(growing: Growing) -> None:
    """Two hundred on four connections, in both forms, with different patience and tags."""
    async with serving(service_of(growing.store)) as server, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server.addresses[0])) for _ in range(4)]
        codes, tags = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE), ("*", "A", "A || B", "Never")

        def pull(client, number) -> int:
            fields = pull_fields(subscription=tags[number % 4], suspendTimeoutMillis=120_000 + number)
            return client.send(codes[number % 2], fields, serialize_type=number // 4 % 2)

        sent = [{pull(client, number) for number in range(50)} for client in clients]
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


async def test_a_held_pull_costs_a_few_kilobytes(growing: Growing) -> None:
    """Ten thousand in a hundred megabytes, with room: some hundred are held here, on several connections."""
    async with serving(service_of(growing.store)) as server:
        clients: list[RawClient] = []
        try:
            clients += [RawClient(*await asyncio.open_connection(*server.addresses[0])) for _ in range(4)]
            clients[0].send(RequestCode.PULL_MESSAGE, pull_fields())
            await until(lambda: held(server) == 1)
            gc.collect()
            before = private_bytes()
            for number in range(600):
                clients[number % 4].send(RequestCode.PULL_MESSAGE, pull_fields())
            await until(lambda: held(server) == 601)
            assert (private_bytes() - before) / 600 < 8 * 1024
        finally:
            for client in clients:
                client.writer.close()
        await until(lambda: held(server) == 0)
        assert not server._service.polls._wheel


def private_bytes() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


class FakeQuestion:
    """Answers with what it is given, in turn; an exception is raised, and what is to be waited for waited for."""

    queue_key = ("T", 0)
    queue_offset = 0

    same: object = None

    @property
    def sameness(self) -> object:
        return self.same or id(self)

    def __init__(self, *answers: Response | Exception | Wait | None) -> None:
        self._answers = iter(answers)

    def look(self):
        while isinstance(answer := next(self._answers), Wait):
            yield answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def give_up(self) -> Response:
        return Response(NOT_FOUND)


def polling(store) -> LongPolling:
    store.queues = object()
    polls = LongPolling(store)
    polls.start(lambda work: asyncio.get_running_loop().run_in_executor(None, work))
    return polls


@pytest.mark.parametrize("answers", [(ValueError("odd"),), (Wait("a file"), ValueError("odd"))])
async def test_a_look_that_fails_ends_the_wait_with_its_error(answers: tuple[Exception | Wait, ...]) -> None:
    pull = polling(FakeStore()).hold(FakeQuestion(*answers), 10, object())
    assert not isinstance(pull, Response)
    with pytest.raises(ValueError, match="odd"):
        await pull


async def test_while_a_look_waits_for_the_disk_others_join_it_and_what_arrives_is_looked_for_again() -> None:
    store = FakeStore()
    polls = polling(store)
    entered, leave = threading.Event(), threading.Event()
    cold = Wait("a queue file", lambda: (entered.set(), leave.wait(60)))
    question = FakeQuestion(cold, None, Response(FOUND))
    question.same = "the same"
    first = polls.hold(question, 10, object())
    await until(entered.is_set)
    same = FakeQuestion()
    same.same = question.same
    second = polls.hold(same, 10, object())
    await asyncio.sleep(0)
    leave.set()
    assert not isinstance(first, Response)
    assert not isinstance(second, Response)
    assert await first is await second
    assert len(polls) == 0


async def test_nothing_is_held_before_the_start_and_after_the_end() -> None:
    early = LongPolling(FakeStore()).hold(FakeQuestion(), 10, object())
    assert isinstance(early, Response)
    assert early.code == NOT_FOUND
    polls = polling(FakeStore())
    polls.stop()
    late = polls.hold(FakeQuestion(), 10, object())
    assert isinstance(late, Response)
    assert (late.code, late.remark) == STOPPING
