"""Several workers on one port give one view of groups, offsets and locks, also when one of them dies."""

import asyncio
import json
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

import process
from broker_harness import DEADLINE_SECONDS, RawClient, connected
from draining import pull_of
from golden_frames import value_of
from heartbeats import consumer, heartbeat, subscription
from process import Serving, owner_of, serving_process
from protocol.codes import RequestCode, ResponseCode
from protocol.command import encode_request, ext_fields_of

pytestmark = pytest.mark.asyncio

WORKERS = 3
CLIENTS = 12
"""Connections to begin with; more are opened until each worker has one."""

GROUP = "SharedGroup"
PULL = pull_of("TopicTest", consumerGroup=GROUP, maxMsgNums=4, sysFlag=0, subVersion=1)


QUICKLY_BUSY = """
from broker.workers import core_sharing
core_sharing.BUSY_SHARE, core_sharing.IDLE_SHARE = 0.03, 0.02
from rocketlens.cli.main import main
main(prog_name="rocketlens")
"""
"""A server whose workers count as busy with a share of a core that they get beside any others; an idle one has less."""


@pytest.fixture
def server(g1_store: Path, tmp_path: Path) -> Iterator[Serving]:
    """One for each test: a worker that takes the place of another one is the last of the list, whatever its number."""
    with serving_process(
        g1_store, tmp_path, "--workers", str(WORKERS), "--state-dir", str(tmp_path / "state")
    ) as running:
        yield running
        assert running.stop() == 0


def worker_of(server: Serving, client: RawClient) -> int:
    """The process that has the other end of a connection; 0 while none has taken it."""
    return owner_of(server.endpoints[0].port, client.writer.get_extra_info("sockname")[1])


@asynccontextmanager
async def clients_of(server: Serving, count: int = CLIENTS) -> AsyncIterator[list[RawClient]]:
    """Connections to all workers: as many as asked for, and more until each worker has one."""
    async with AsyncExitStack() as stack:
        opened: list[RawClient] = []
        while len(opened) < count or len({worker_of(server, each) for each in opened}) < WORKERS:
            opened.append(await stack.enter_async_context(connected(server.endpoints[0])))
            # Answered: a worker has taken it.
            await opened[-1].ask(RequestCode.GET_MAX_OFFSET, {"topic": "TopicTest", "queueId": "0"})
        yield opened


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until it is so."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await check():  # noqa: ASYNC110 - the state is another process's
            await asyncio.sleep(0.02)


async def join(client: RawClient, name: str) -> None:
    body = heartbeat(name, consumer(GROUP, subscription("TopicTest", "*")))
    assert (await client.ask(RequestCode.HEART_BEAT, {}, body=body)).code == 0


async def refuse(client: RawClient) -> None:
    """Send a heartbeat that Java cannot read; what is wrong with it is worker 0's business at no worker."""
    header, body = b'{"code":34,"language":%d,"opaque":77,"extFields":{}}' % 2**70, heartbeat("odd", consumer(GROUP))
    client.writer.write(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
    answer = await client.answer()
    assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 77)
    assert "language is no 32-bit integer" in (answer.remark or "")


async def members(client: RawClient) -> list[str]:
    answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP})
    return list(json.loads(bytes(answer.body))["consumerIdList"]) if answer.code == 0 else []


async def test_all_workers_know_all_members_and_what_they_subscribe_to(server: Serving) -> None:
    async with clients_of(server) as clients:
        names = sorted(f"client-{number}" for number in range(len(clients)))
        for client, name in zip(clients, names, strict=True):
            await refuse(client)
            await join(client, name)
        for client in clients:
            assert await members(client) == names
            # Without a subscription of its own a pull is filtered by the group's, which each worker has a copy of.
            answer = await client.ask(RequestCode.PULL_MESSAGE, PULL)
            assert (answer.code, len(answer.body) > 0) == (0, True)
        # Every member hears of every newcomer, whatever worker he came to; that may take longer than an answer.
        for client in clients[:-1]:
            while (await client.push()).code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                pass
        clients[0].writer.close()
        await clients[0].writer.wait_closed()

        async def is_gone() -> bool:
            return await members(clients[-1]) == names[1:]

        await eventually(is_gone)
        for client, name in zip(clients[1:], names[1:], strict=True):
            assert (
                await client.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": name, "consumerGroup": GROUP})
            ).code == 0
        assert await members(clients[-1]) == []

        async def is_refused() -> bool:
            codes = [(await client.ask(RequestCode.PULL_MESSAGE, PULL)).code for client in clients[1:]]
            return set(codes) == {ResponseCode.SUBSCRIPTION_NOT_EXIST}

        await eventually(is_refused)


async def test_offsets_and_locks_are_the_same_everywhere(server: Serving) -> None:
    queue = {"topic": "TopicTest", "queueId": "1"}
    mq_set = [{"brokerName": "broker-a", "queueId": 1, "topic": "TopicTest"}]
    async with clients_of(server) as clients:
        strangers_pull = PULL | {"sysFlag": "5", "subscription": "*", "commitOffset": "9", "queueId": "2"}
        for client in clients[1:]:  # of which not all are at the worker that keeps the offsets
            assert (
                await client.ask(
                    RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": GROUP, "commitOffset": "9", **queue}
                )
            ).code == ResponseCode.NO_PERMISSION
            assert (await client.ask(RequestCode.PULL_MESSAGE, strangers_pull | {"consumerGroup": "Foreign"})).code == 0
        for number, client in enumerate(clients):
            await join(client, f"puller-{number}")
        for offset, client in enumerate(clients, 1):
            fields = {"consumerGroup": GROUP, "commitOffset": str(offset), **queue}
            assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
            for other in clients:
                answer = await other.ask(RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": GROUP, **queue})
                assert ext_fields_of(answer)["offset"] == str(offset)
        # An offset that comes with a pull goes to worker 0 too.
        for client in clients:
            await client.ask(RequestCode.PULL_MESSAGE, PULL | {"sysFlag": "1", "commitOffset": "7", "queueId": "2"})
        answer = await clients[0].ask(
            RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": GROUP, "topic": "TopicTest", "queueId": "2"}
        )
        assert ext_fields_of(answer)["offset"] == "7"
        foreign = {"consumerGroup": "Foreign", "topic": "TopicTest", "queueId": "2", "setZeroIfNotFound": "false"}
        assert (await clients[0].ask(RequestCode.QUERY_CONSUMER_OFFSET, foreign)).code == ResponseCode.QUERY_NOT_FOUND
        granted = []
        for number, client in enumerate(clients):
            body = json.dumps({"consumerGroup": GROUP, "clientId": f"c{number}", "mqSet": mq_set}).encode()
            answer = await client.ask(RequestCode.LOCK_BATCH_MQ, {}, body=body)
            granted.append(len(json.loads(bytes(answer.body))["lockOKMQSet"]))
        assert granted == [1] + [0] * (len(clients) - 1)


async def test_what_is_in_flight_is_the_same_everywhere_whoever_was_asked_for_it(server: Serving) -> None:
    async with clients_of(server) as clients:
        await join(clients[0], "puller")
        for client in clients:
            answer = await client.ask(
                RequestCode.PULL_MESSAGE, PULL | {"queueId": "3", "sysFlag": "4", "subscription": "*"}
            )
            assert ext_fields_of(answer)["nextBeginOffset"] == "4"

        async def is_told(client: RawClient) -> bool:
            answer = await client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": GROUP, "topic": "TopicTest"})
            table = value_of(bytes(answer.body))["offsetTable"]
            return [each["pullOffset"] for key, each in table.items() if '"queueId": 3' in key] == [4]

        for client in clients:
            await eventually(partial(is_told, client))


async def test_what_a_member_tells_of_itself_comes_back_whatever_workers_both_are_at(server: Serving) -> None:
    async with clients_of(server) as clients:
        for number, client in enumerate(clients):
            await join(client, f"client-{number}")
        for number, client in enumerate(clients):
            asking = clients[number - 1]
            opaque = asking.send(
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                {"consumerGroup": GROUP, "clientId": f"client-{number}", "jstackEnable": "true"},
            )
            while (call := await client.push()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                pass
            assert (call.code, ext_fields_of(call)["jstackEnable"]) == (RequestCode.GET_CONSUMER_RUNNING_INFO, "true")
            client.reply(call, b"{}", remark=f"of {number}")
            answer = await asking.answer()
            assert (answer.opaque, answer.code, answer.remark, answer.body) == (opaque, 0, f"of {number}", b"{}")


async def test_groups_outlive_worker_0(server: Serving) -> None:
    async with clients_of(server) as clients:
        owner = server.workers[0]
        staying = [client for client in clients if worker_of(server, client) != owner]
        names = sorted(f"client-{number}" for number in range(len(staying)))
        for client, name in zip(staying, names, strict=True):
            await join(client, name)
        asked = [client.send(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP}) for client in staying]
        os.kill(owner, signal.SIGKILL)
        for client, opaque in zip(staying, asked, strict=True):
            assert (await client.answer()).opaque == opaque

        async def all_are_back() -> bool:
            return all([await members(client) == names for client in staying])

        await eventually(all_are_back)
        for client in staying:
            assert (await client.ask(RequestCode.PULL_MESSAGE, PULL)).code == 0


async def test_another_worker_that_dies_takes_its_clients_alone_with_it(server: Serving) -> None:
    async with clients_of(server) as clients:
        for number, client in enumerate(clients):
            await join(client, f"client-{number}")
        victim = server.workers[1]
        staying = {
            f"client-{number}": client for number, client in enumerate(clients) if worker_of(server, client) != victim
        }
        os.kill(victim, signal.SIGBUS)

        async def only_they_are_left() -> bool:
            return all([sorted(await members(client)) == sorted(staying) for client in staying.values()])

        await eventually(only_they_are_left)
        async with clients_of(server):
            pass


@pytest.mark.soak
async def test_workers_share_their_cores_while_several_clients_keep_them_busy(
    g1_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", QUICKLY_BUSY))
    route = encode_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"}, opaque=1)
    count = 300

    async def keep_asking(client: RawClient) -> None:
        while True:
            client.writer.write(route * count)
            await client.reader.readexactly(length * count)

    with serving_process(g1_store, tmp_path, "--workers", str(WORKERS)) as server:

        async def is_any_sharing() -> bool:
            return any(os.sched_getscheduler(worker) == os.SCHED_BATCH for worker in server.workers)

        async def is_none() -> bool:
            return all(os.sched_getscheduler(worker) == os.SCHED_OTHER for worker in server.workers)

        async with clients_of(server) as clients:
            clients[0].writer.write(route)
            start = await clients[0].reader.readexactly(4)
            length = len(start) + int.from_bytes(start)
            await clients[0].reader.readexactly(length - len(start))
            await eventually(is_none)  # the connections were work, too
            asking = [asyncio.create_task(keep_asking(client)) for client in clients]
            await eventually(is_any_sharing)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await eventually(is_none)
