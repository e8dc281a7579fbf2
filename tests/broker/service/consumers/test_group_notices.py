"""Members hear of every change in their group at once: who comes, who goes, who falls silent."""

import asyncio
import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from asking import FakeConnection
from broker.service.consumers import group_notices
from broker.service.consumers.client_registry import EXPIRY_SECONDS, ConsumerGroup, Member
from broker_harness import RawClient, connected, service_of, serving, until
from heartbeats import consumer, heartbeat, subscription
from protocol.bodies import HeartbeatData, decode_json
from protocol.codes import RequestCode
from protocol.command import ONEWAY_FLAG, ext_fields_of
from storage.store.message_store import MessageStore

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def g1(g1_store: Path) -> MessageStore:
    return MessageStore.open(g1_store)


async def notified(client: RawClient) -> str:
    """The group of which the next notice tells."""
    command = await client.push()
    assert (command.code, command.flag) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ONEWAY_FLAG)
    return ext_fields_of(command)["consumerGroup"]


async def members(client: RawClient, group: str) -> list[str]:
    answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return list(json.loads(answer.body)["consumerIdList"])


async def test_a_heartbeat_that_changes_nothing_is_followed_by_nothing(g1: MessageStore) -> None:
    async with serving(service_of(g1)) as server, connected(server.addresses[0]) as client:
        for version in range(3):
            await client.ask(
                RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTest", "*", version)))
            )
        assert len(client.pushed) == 1
        await client.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTx", "*", 9))))
        assert len(client.pushed) == 2


async def test_all_members_hear_of_one_that_comes_and_of_one_that_leaves(g1: MessageStore) -> None:
    async with (
        serving(service_of(g1)) as server,
        connected(server.addresses[0]) as first,
        connected(server.addresses[0]) as second,
    ):
        await first.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G")))
        assert await notified(first) == "G"
        await second.ask(RequestCode.HEART_BEAT, body=heartbeat("c2", consumer("G")))
        assert await notified(first) == await notified(second) == "G"
        assert await members(first, "G") == ["c1", "c2"]
        await second.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c2", "consumerGroup": "G"})
        assert await notified(first) == "G"
        assert await members(first, "G") == ["c1"]
        assert not second.pushed


async def test_members_hear_of_one_that_fell_silent(g1: MessageStore) -> None:
    service = service_of(g1)
    seconds = 1000.0
    service.clients._clock_seconds = lambda: seconds
    silent = FakeConnection()
    data = decode_json(heartbeat("c2", consumer("G")), HeartbeatData)
    async with serving(service) as server, connected(server.addresses[0]) as first:
        service.clients.heartbeat(silent, data, "GO", 1)
        seconds += EXPIRY_SECONDS - 1
        await first.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G")))
        await notified(first)
        seconds += 2
        service.clients.sweep()
        assert await notified(first) == "G"
        assert await members(first, "G") == ["c1"]
        assert len(silent.pushed) == 2


async def test_a_change_that_a_thread_finds_out_is_told_by_the_loop(g1: MessageStore) -> None:
    service = service_of(g1)
    gone = FakeConnection()
    data = decode_json(heartbeat("c2", consumer("G")), HeartbeatData)
    async with serving(service) as server, connected(server.addresses[0]) as first:
        await first.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G")))
        await notified(first)
        service.clients.heartbeat(gone, data, "GO", 1)
        await notified(first)
        gone.is_open = False
        await asyncio.to_thread(service.clients.members_of, "G")
        assert await notified(first) == "G"


async def test_members_of_a_broadcasting_group_share_nothing_and_are_told_nothing(g1: MessageStore) -> None:
    async with serving(service_of(g1)) as server, connected(server.addresses[0]) as client:
        await client.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", messageModel="BROADCASTING")))
        assert not client.pushed


async def test_a_group_that_does_not_want_notices_gets_none(g1_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(g1_store, tmp_path / "store")
    path = store / "config" / "subscriptionGroup.json"
    config = json.loads(path.read_text())
    config["subscriptionGroupTable"]["CG_TAG"]["notifyConsumerIdsChangedEnable"] = False
    path.write_text(json.dumps(config))
    service = service_of(MessageStore.open(store))
    async with serving(service) as server, connected(server.addresses[0]) as client:
        await client.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("CG_TAG"), consumer("CG_SQL")))
        assert [ext_fields_of(command)["consumerGroup"] for command in client.pushed] == ["CG_SQL"]


async def test_a_server_that_stops_tells_nobody_that_the_others_are_gone(g1: MessageStore) -> None:
    async with (
        serving(service_of(g1)) as server,
        connected(server.addresses[0]) as first,
        connected(server.addresses[0]) as second,
    ):
        await first.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G")))
        await second.ask(RequestCode.HEART_BEAT, body=heartbeat("c2", consumer("G")))
        await notified(first)
        await notified(first)
        stopping = asyncio.create_task(server.stop())
        assert await first.is_closed_by_the_server()
        assert await second.is_closed_by_the_server()
        first.writer.close()
        second.writer.close()
        await stopping
        await until(stopping.done)
        assert not first.pushed


async def test_members_of_large_groups_are_told_in_several_turns_of_many_changes_once(
    g1: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each client that joins a group of thousands would have the event loop do nothing else."""
    monkeypatch.setattr(group_notices, "NOTICES_A_TURN", 10)
    notices = group_notices.GroupNotices(g1)
    notices.start()
    members = [FakeConnection() for _ in range(25)]
    group = ConsumerGroup("Large")
    group.members = {number: Member(each, "c", "JAVA", 1, 0, 0.0) for number, each in enumerate(members)}
    for _ in range(50):
        notices.notify(group)
    assert sum(len(each.pushed) for each in members) == 10
    told = []
    async with asyncio.timeout(60):
        while len(told) < 2 or told[-1] != told[-2]:
            await asyncio.sleep(0)
            told.append(sum(len(each.pushed) for each in members))
    assert {len(each.pushed) for each in members} == {2}, "once for what was under way, and once for all changes since"
    assert max(after - before for before, after in pairwise([10, *told])) <= 10
    notices.stop()
