"""Members of groups: they come by heartbeat, and go by taking leave, by losing their connection, and by silence."""

import asyncio
import json
from itertools import pairwise
from types import SimpleNamespace

import pytest

from asking import Asker, FakeConnection
from broker.service.consumers import client_registry, group_notices, queue_locks
from broker.service.consumers.client_registry import EXPIRY_SECONDS, ClientRegistry, ConsumerGroup, Member
from broker.service.consumers.kept_filters import KeptFilters
from broker.service.consumers.queue_locks import LOCK_SECONDS, QueueLocks
from broker.service.consumers.subscriptions import expressions_of
from broker.service.registry_budget import BudgetSpent, RegistryBudget
from heartbeats import consumer, heartbeat, subscription
from protocol.bodies import HeartbeatData, MessageQueue, decode_json
from protocol.codes import RequestCode, ResponseCode
from storage.files.waiting import finish


@pytest.fixture
def registry(clock) -> ClientRegistry:
    return ClientRegistry(clock)


def beat(registry, connection, client_id, *consumers, **members) -> bool:
    data = decode_json(heartbeat(client_id, *consumers, **members), HeartbeatData)
    told = (each for group in data.consumer_data_set for each in group.subscription_data_set)
    return registry.heartbeat(connection, data, "JAVA", 479, finish(KeptFilters().make_all(expressions_of(told))))


def ids(registry: ClientRegistry, group: str) -> list[str]:
    return sorted(member.client_id for member in registry.members_of(group))


def test_silence_of_two_minutes_ends_a_membership_and_any_heartbeat_renews_it(registry, clock) -> None:
    connection = FakeConnection()
    beat(registry, connection, "c1", consumer("G"), producers=("P",))
    clock.seconds += EXPIRY_SECONDS - 1
    beat(registry, connection, "c1", consumer("G"))
    clock.seconds += 2
    assert ids(registry, "G") == ["c1"]
    assert registry.producers("P") == ()
    clock.seconds += EXPIRY_SECONDS
    assert registry.consumer_group("G") is None


def test_a_member_that_lags_behind_does_not_bring_back_an_older_subscription(registry: ClientRegistry) -> None:
    beat(registry, FakeConnection(), "new", consumer("G", subscription("A", "new", 5)))
    beat(registry, FakeConnection(), "old", consumer("G", subscription("A", "old", 4)))
    found = registry.subscription("G", "A")
    assert found.sub_string == "new"


def test_what_was_told_is_counted_and_given_back_when_clients_are_gone(registry, clock) -> None:
    connections = [FakeConnection() for _ in range(5)]
    for version in range(3):
        for number, connection in enumerate(connections):
            told = consumer(f"G{number}", subscription("T" * 100, "A" * 5000 * version, version))
            beat(registry, connection, f"c{version}", told, consumer("Shared"), producers=("P", f"P{number}"))
            registry.unregister(connection, f"G{number}", "P")
    assert registry.room.used > 5 * 6 * 10_000
    for connection in connections[:3]:
        registry.connection_lost(connection)
    clock.seconds += EXPIRY_SECONDS + 1
    registry.sweep()
    for connection in connections[3:]:
        registry.connection_lost(connection)
    assert (registry.room.used, len(registry)) == (0, 0)


def test_a_newcomer_without_room_is_refused_and_all_is_as_it_was(registry: ClientRegistry) -> None:
    registry.room = RegistryBudget(20_000).room("groups and subscriptions", 1)
    assert beat(registry, FakeConnection(), "c1", consumer("G", subscription("A")))
    used = registry.room.used
    with pytest.raises(BudgetSpent, match="groups and subscriptions of all clients"):
        beat(registry, FakeConnection(), "c2", consumer("H", subscription("A", "x" * 20_000)))
    assert registry.consumer_group("H") is None
    assert (registry.room.used, ids(registry, "G")) == (used, ["c1"])


def test_one_connection_joins_so_many_groups_in_its_life(registry, monkeypatch) -> None:
    monkeypatch.setattr(client_registry, "GROUPS_OF_ONE", 10)
    connection = FakeConnection()
    for number in range(10):
        assert beat(registry, connection, "c1", consumer(f"G{number}"))
        registry.unregister(connection, f"G{number}", None)
    assert not beat(registry, connection, "c1", consumer("G10"))
    assert beat(registry, connection, "c1", consumer("G3"))
    assert beat(registry, FakeConnection(), "c2", consumer("G10"))


async def test_members_of_large_groups_are_told_in_several_turns_of_many_changes_once(monkeypatch) -> None:
    """Else each client that joins a group of thousands would have the event loop do nothing else."""
    monkeypatch.setattr(group_notices, "NOTICES_A_TURN", 10)
    notices = group_notices.GroupNotices(SimpleNamespace(config=SimpleNamespace(subscription_groups={})))
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


GROUP, TOPIC = "g" * 255, "t" * 127
RETRY = "%RETRY%" + GROUP


@pytest.fixture(scope="module")
def g1(g1_store) -> Asker:
    return Asker(g1_store)


def mq_set(group: str = "G", client_id: str = "c", topic: str = "T", broker: str = "b", count: int = 1) -> bytes:
    queues = [{"brokerName": broker, "queueId": number, "topic": topic} for number in range(count)]
    return json.dumps({"consumerGroup": group, "clientId": client_id, "mqSet": queues}).encode()


def test_what_a_client_may_be_called_and_subscribe_to_is_taken_in(g1: Asker) -> None:
    by_expression = (subscription(f"T{number}", "a > 5 AND b = 'x'", kind="SQL92") for number in range(500))
    for told in (
        heartbeat("c" * 255, consumer(GROUP, subscription(TOPIC), subscription(RETRY)), producers=(GROUP,)),
        heartbeat("c", consumer("G", subscription(f"{RETRY}+{TOPIC}"), subscription("%DLQ%" + GROUP))),
        heartbeat("c", *(consumer(f"G{number}") for number in range(1024))),
        heartbeat("c", consumer("G", *by_expression)),
    ):
        answer = g1.ask(RequestCode.HEART_BEAT, body=told)
        assert (answer.code, answer.remark) == (0, None)


def test_a_heartbeat_that_tells_too_much_is_refused_naming_it_its_size_and_the_limit(g1: Asker) -> None:
    before = g1.service.budget.used
    many = [{"topic": f"T{number}"} for number in range(4097)]
    for told, field, words in (
        (heartbeat("c" * 256), "clientID", "256 characters), longer than 255"),
        (heartbeat("c", consumer(GROUP + "g")), "groupName", "256 characters), longer than 255"),
        (heartbeat("c", producers=(GROUP + "g",)), "groupName", "256 characters), longer than 255"),
        (heartbeat("c", consumer("G", subscription(TOPIC + "t"))), "topic", "128 characters), longer than 127"),
        (heartbeat("c", consumer("G", subscription(f"{RETRY}+{TOPIC}t"))), "topic", "391 characters), longer than 390"),
        (heartbeat("c", consumer("G", subscription("T", kind="S" * 64))), "expressionType", "longer than 63"),
        (heartbeat("c", consumer("G", consumeType="C" * 64)), "consumeType", "longer than 63"),
        (heartbeat("c", *map(consumer, map(str, range(1025)))), "consumerDataSet", "1025 entries, more than 1024"),
        (heartbeat("c", producers=tuple(map(str, range(1025)))), "producerDataSet", "1025 entries, more than 1024"),
        (heartbeat("c", consumer("G", *many)), "subscriptionDataSet of group G", "4097 entries, more than 4096"),
        (
            heartbeat("c", *(consumer(f"G{number}", *many[:4095]) for number in range(3))),
            "subscriptionDataSet",
            "12285 of all groups together, more than 8192",
        ),
    ):
        answer = g1.ask(RequestCode.HEART_BEAT, body=told)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        remark = answer.remark or ""
        assert (remark.startswith(f"{field}: "), words in remark, len(remark) < 300) == (True, True, True), remark
        assert g1.service.budget.used == before, "nothing of it is remembered"


def test_locks_under_names_that_are_too_long_are_refused(g1: Asker) -> None:
    long_names = {"consumerGroup": mq_set(group=GROUP + "g"), "clientId": mq_set(client_id="c" * 256)}
    long_names |= {"topic": mq_set(topic=TOPIC + "t"), "brokerName": mq_set(broker="b" * 256)}
    for field, body in (long_names | {"mqSet": mq_set(count=16_385)}).items():
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            answer = g1.ask(code, body=body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark.startswith(f"{field}: ")
    assert len(g1.service.locks) == 0
    body = mq_set(GROUP, "c" * 255, RETRY, count=500)
    assert len(g1.value(RequestCode.LOCK_BATCH_MQ, body=body)["lockOKMQSet"]) == 500


def test_offsets_and_pulls_of_groups_with_too_long_a_name_are_refused(g1: Asker) -> None:
    fields = {"consumerGroup": GROUP + "g", "topic": "TopicTest", "queueId": "0", "commitOffset": "1"}
    pull = fields | {"queueOffset": "0", "maxMsgNums": "1", "sysFlag": "5", "suspendTimeoutMillis": "0"}
    pull |= {"subscription": "*", "subVersion": "0"}
    for code, asked in ((RequestCode.UPDATE_CONSUMER_OFFSET, fields), (RequestCode.PULL_MESSAGE, pull)):
        answer = g1.ask(code, asked, oneway=True)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark.startswith("consumerGroup: ")
    assert len(g1.service.offsets) == 0
    assert g1.service.pulled.next_offsets(GROUP + "g", "TopicTest") == {}


Q0, Q1, Q2 = (MessageQueue("broker-a", number, "T") for number in range(3))


@pytest.fixture
def locks(clock) -> QueueLocks:
    return QueueLocks(clock)


def test_a_lock_given_back_can_be_had_at_once_but_only_its_owner_gives_it_back(locks: QueueLocks) -> None:
    locks.lock("G", "c1", [Q0, Q1])
    locks.unlock("G", "c2", [Q0])
    locks.unlock("H", "c1", [Q0])
    assert locks.lock("G", "c2", [Q0]) == []
    locks.unlock("G", "c1", [Q0, Q2])
    assert locks.lock("G", "c2", [Q0, Q1]) == [Q0]


def test_locks_beyond_the_limit_are_not_granted_until_old_ones_run_out(locks, clock, monkeypatch) -> None:
    monkeypatch.setattr(queue_locks, "LOCKS_LIMIT", 2)
    assert locks.lock("G", "c1", [Q0, Q1, Q2]) == [Q0, Q1]
    assert locks.lock("G", "c1", [Q0]) == [Q0]
    clock.seconds += LOCK_SECONDS + 1
    assert locks.lock("G", "c2", [Q2]) == [Q2]
    assert len(locks) == 1


def test_without_room_old_locks_give_way_and_live_ones_stay(locks, clock) -> None:
    locks.room = RegistryBudget(2000).room("locks", 1)
    assert locks.lock("G", "c1", [Q0, Q1]) == [Q0, Q1]
    assert locks.lock("H" * 200, "c2" * 100, [Q0, Q1, Q2]) == []
    assert locks.lock("G", "c1", [Q0, Q1]) == [Q0, Q1], "who has a lock keeps it"
    clock.seconds += LOCK_SECONDS + 1
    assert locks.lock("H" * 200, "c2" * 100, [Q0]) == [Q0]
    assert len(locks) == 1
