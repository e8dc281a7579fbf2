"""Members of groups, how they come and go; filters of groups, made once, kept, shown, and asked by pulls."""

import asyncio
import json
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from asking import Asker, FakeConnection
from broker.service.consumers import client_registry, group_notices, queue_locks
from broker.service.consumers.client_registry import EXPIRY_SECONDS, ClientRegistry, ConsumerGroup, Member
from broker.service.consumers.kept_filters import Failed, KeptFilters
from broker.service.consumers.queue_locks import LOCK_SECONDS, QueueLocks
from broker.service.consumers.subscriptions import Subscriptions, expressions_of
from broker.service.consumers.subscriptions import reported_filters as reported_filters_of
from broker.service.registry_budget import BudgetSpent, RegistryBudget
from draining import pull_of
from golden_frames import Session
from golden_store import GOLDEN, unpack
from heartbeats import consumer, heartbeat, subscription
from protocol.bodies import HeartbeatData, MessageQueue, SubscriptionData, decode_json
from protocol.codes import RequestCode, ResponseCode
from protocol.errors import BadCommand, FilterSyntaxError
from protocol.message import decode_messages
from protocol.properties import encode_properties
from storage.files.waiting import finish
from storage.filter.expression import ExpressionFilter
from storage.layout.store_config import ConsumerFilter
from store_writer import appended, closed_store


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


@pytest.fixture
def room():
    return RegistryBudget(4 << 20).room("filters", 1)


@pytest.fixture
def filters(room) -> KeptFilters:
    return KeptFilters(room)


def expression(number: int, terms: int = 20) -> str:
    return " AND ".join(f"p{number} > {term}" for term in range(terms))


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("a >", "SQL92", "a >"),
        (None, "SQL92", "the expression is empty"),
        ("", "SQL92", "the expression is empty"),
        ("a > 1", "sql92", "TAG or SQL92"),
        ("x", "FOO", "TAG or SQL92"),
        ("||", "TAG", "no tag"),
        ("a" * (1 << 18) + "a", "SQL92", "262145 characters, more than 262144"),
    ],
)
def test_what_does_not_compile_is_an_error_that_says_where(text, kind, words, filters) -> None:
    for _ in range(2):
        with pytest.raises(FilterSyntaxError) as caught:
            filters.make(text, kind)
        assert words in str(caught.value)
        assert len(str(caught.value)) < 500


def test_where_all_filters_are_used_a_further_one_is_refused_and_those_go_on() -> None:
    room = RegistryBudget(1 << 19).room("filters", 1)
    filters = KeptFilters(room)
    used = [filters.make(expression(number), "SQL92") for number in range(6)]
    with pytest.raises(BudgetSpent, match="filters of all clients"):
        used.extend(filters.make(expression(number), "SQL92") for number in range(100))
    assert filters.make(expression(0), "SQL92") is used[0]
    assert room.used <= room.limit
    made = finish(filters.make_all([(expression(0), "SQL92"), (expression(200), "SQL92"), ("a >", "SQL92")]))
    assert made[expression(0), "SQL92"] is used[0]
    assert isinstance(made[expression(200), "SQL92"], BudgetSpent)
    assert isinstance(made["a >", "SQL92"], Failed)


def test_one_request_may_bring_so_many_characters_anew(filters: KeptFilters) -> None:
    half = [(f"'{number}' = '{'x' * 1000}'", "SQL92") for number in range(200)]
    finish(filters.make_all(half))
    finish(filters.make_all([*half, *((text.replace("x", "y"), kind) for text, kind in half)]))
    with pytest.raises(BadCommand, match=r"subString: .* characters of new expressions, more than 262144"):
        finish(filters.make_all((f"'{number}' = '{'z' * 1000}'", "SQL92") for number in range(300)))


RECORDED = (
    '{\n\t"bloomFilterData":{\n\t\t"bitNum":112,\n\t\t"bitPos":[106,45,15]\n\t},\n\t"bornTime":1795281385657,\n\t'
    '"clientVersion":5,\n\t"consumerGroup":"GS",\n\t"dead":false,\n\t"deadTime":0,\n\t'
    '"expression":"a > 2 AND b = \'x\'",\n\t"expressionType":"SQL92",\n\t"topic":"T"\n}'
)
DEAD = (
    '{\n\t"bloomFilterData":{\n\t\t"bitNum":112,\n\t\t"bitPos":[106,95,84]\n\t},\n\t"bornTime":1795281386649,\n\t'
    '"clientVersion":6,\n\t"consumerGroup":"GT",\n\t"dead":true,\n\t"deadTime":1795281387322,\n\t'
    '"expression":"a > 7",\n\t"expressionType":"SQL92",\n\t"topic":"T"\n}'
)
STORED = {"consumerGroup": "GT", "topic": "T", "expression": "a > 7", "expressionType": "SQL92", "clientVersion": 6}
STORED |= {"bornTime": 1795281386649, "deadTime": 1795281387322}
STORED |= {"bloomFilterData": {"bitNum": 112, "bitPos": [106, 95, 84]}}


def asker(root, stored=None) -> Asker:
    """A store of one message, in whose registry a filter stands perhaps."""
    writer = closed_store(root / "store", appended("T", b"", tags="TagA"))
    if stored is not None:
        registry = {"filterDataByTopic": {"T": {"groupFilterData": {stored["consumerGroup"]: stored}, "topic": "T"}}}
        (writer.root / "config").mkdir(exist_ok=True)
        (writer.root / "config" / "consumerFilter.json").write_text(json.dumps(registry))
    return Asker(writer.root)


def shown(client: Asker, group: str) -> str:
    asked = {"topic": "T", "queueId": "0", "index": "0", "count": "1", "consumerGroup": group}
    body = client.value(RequestCode.QUERY_CONSUME_QUEUE, asked)
    return str(body["filterData"])


def heard(client: Asker, group: str, expression: str, version: int, kind: str = "SQL92") -> None:
    told = consumer(group, subscription("T", expression, version, kind))
    client.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", told))


def born(text: str) -> int:
    return int(json.loads(text)["bornTime"])


def test_the_filter_of_a_live_group_is_shown_as_a_broker_prints_it(tmp_path) -> None:
    client = asker(tmp_path)
    before = time.time_ns() // 1_000_000
    heard(client, "GS", "a > 2 AND b = 'x'", 5)
    text = shown(client, "GS")
    assert before <= born(text) <= time.time_ns() // 1_000_000
    assert text.replace(str(born(text)), "1795281385657") == RECORDED


def test_a_filter_of_which_only_the_store_knows_is_dead(tmp_path) -> None:
    client = asker(tmp_path, STORED)
    heard(client, "GT", "TagA", 5, "TAG")
    assert shown(client, "GT") == DEAD


def test_a_stored_expression_that_is_told_again_keeps_its_time_and_bits(tmp_path) -> None:
    bloom = {"bitNum": 120, "bitPos": [1, 2]}
    client = asker(tmp_path, STORED | {"bloomFilterData": bloom})
    heard(client, "GT", "a > 7", 9)
    told = json.loads(shown(client, "GT"))
    assert (told["bornTime"], told["clientVersion"], told["dead"], told["deadTime"]) == (1795281386649, 9, False, 0)
    assert told["bloomFilterData"] == bloom
    heard(client, "GT", "a > 8", 10)
    assert json.loads(shown(client, "GT"))["bornTime"] != 1795281386649


@pytest.mark.parametrize(
    ("version", "text", "kind", "expected"),
    [
        (2, "b > 1", "SQL92", (3, "a > 1")),
        (3, "b > 1", "SQL92", (3, "a > 1")),
        (4, "b > 1", "SQL92", (4, "b > 1")),
        (4, "a > 1", "SQL92", (4, "a > 1")),
        (3, "b >", "SQL92", (3, "a > 1")),
        (4, "b >", "SQL92", None),
        (4, "b > 1", "FOO", None),
        (4, "", "SQL92", (3, "a > 1")),
        (4, "*", "TAG", (3, "a > 1")),
        (4, "*", "", (3, "a > 1")),
    ],
)
def test_a_known_filter_changes_as_in_a_brokers_registry(version, text, kind, expected, filters) -> None:
    """The table of filters §3.4."""
    known = {}
    first = SubscriptionData("A", "a > 1", expression_type="SQL92", sub_version=3)
    for told in (first, SubscriptionData("A", text, expression_type=kind, sub_version=version)):
        known = reported_filters_of(known, [told], finish(filters.make_all(expressions_of([told]))))
    if found := known.get("A"):
        assert isinstance(found.chosen, ExpressionFilter)
        assert (found.version, found.chosen.expression.text) == expected
    assert bool(found) == bool(expected)


@pytest.mark.parametrize(("text", "kind"), [("a >", "SQL92"), (None, "SQL92"), ("a > 5", "FOO")])
def test_a_stored_filter_that_does_not_compile_lets_everything_through(text: str | None, kind: str) -> None:
    config = SimpleNamespace(filters={"TopicTest": {"CG_SQL": ConsumerFilter("CG_SQL", "TopicTest", text, kind)}})
    store = SimpleNamespace(config=config, state=SimpleNamespace(abort=False))
    chosen = Subscriptions(store, lambda _group: {}, supports_retry=True).in_pull("%RETRY%CG_SQL", "a > 99", "SQL92")
    assert finish(chosen).matches_commit_log(encode_properties({"RETRY_TOPIC": "TopicTest", "a": "1"}))


FOUND, SYSTEM_ERROR, NOT_FOUND, UNPARSED = 0, 1, 19, 23
FILTERS = GOLDEN / "g2" / "g2-filters"
ONE_PERCENT = "a = 7 AND region IN ('hz', 'bj')"
MESSAGES = 1000


def ask(asker, topic, group, queue_id, queue_offset, version, **fields):
    header = pull_of(topic, queue_id, queue_offset, consumerGroup=group, sysFlag=0, subVersion=version)
    return asker.ask(RequestCode.PULL_MESSAGE, header | fields)


@pytest.fixture(scope="module")
def filters_store(tmp_path_factory):
    return unpack("store", tmp_path_factory.mktemp("filters"), archives=FILTERS)


def keys_of(asker: Asker, group: str, text: str) -> list[str | None]:
    told = consumer(group, subscription("FilterTopic", text, 1, "SQL92"))
    asker.ask(RequestCode.HEART_BEAT, body=heartbeat("c", told))
    found = []
    for queue_id in range(2):
        queue_offset, code = 0, FOUND
        while code != NOT_FOUND:
            answer = ask(asker, "FilterTopic", group, queue_id, queue_offset, 1)
            found += [message.unique_key for message in decode_messages(answer.body)]
            queue_offset, code = int(answer.ext_fields["nextBeginOffset"]), answer.code
    return found


def counted(asker: Asker) -> tuple[int, int]:
    table = asker.value(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    return int(table["rocketlensBitmapEvaluations"]), int(table["rocketlensBitmapEvaluationsSkipped"])


def test_a_group_that_the_broker_knew_is_spared_most_evaluations_and_gets_the_same(filters_store) -> None:
    asker = Asker(filters_store)
    received = [line.split("\t")[0] for line in (FILTERS / "consumed-CG_ONE_PERCENT.tsv").read_text().splitlines()]
    assert sorted(map(str, keys_of(asker, "CG_ONE_PERCENT", ONE_PERCENT))) == sorted(received)
    done, skipped = counted(asker)
    assert done + skipped == MESSAGES
    assert skipped >= MESSAGES / 2


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ("CG_STRANGER", ONE_PERCENT),
        ("CG_TENTH", ONE_PERCENT),
        ("CG_NONE", ONE_PERCENT),
        ("CG_ONE_PERCENT", "a = 8"),
        ("CG_ONE_PERCENT", f"{ONE_PERCENT} "),
        ("CG_CHANGES", "a < 20"),
        ("CG_NONE", "a >= 0"),
    ],
    ids=lambda value: value.strip(),
)
def test_a_filter_that_the_broker_did_not_know_is_never_ruled_out_by_bits(group, text, filters_store) -> None:
    asker = Asker(filters_store)
    found = keys_of(asker, group, text)
    assert counted(asker) == (0, 0)
    assert found == keys_of(asker, "CG_UNKNOWN_TO_ALL", text)
    assert len(found) == {"a = 8": 10, "a < 20": 200, "a >= 0": MESSAGES}.get(text, 10)


@pytest.mark.parametrize(("name", "supports_retry"), [("pulls.jsonl.xz", False), ("pulls-retry.jsonl.xz", True)])
def test_pulls_of_retry_topics_are_answered_as_recorded(name, supports_retry, filters_store) -> None:
    """But for expressions that do not compile, and for a message at which a broker fails for ever."""
    asker = Asker(filters_store, filter_support_retry=supports_retry)
    by_expression = 0
    for exchange in Session("g2-filters", FILTERS / name, FILTERS / "store.tar.xz").exchanges():
        expected, fields = exchange.recorded, exchange.ext_fields
        answer = asker.ask(RequestCode.PULL_MESSAGE, fields)
        if fields["subscription"] == "a >":
            assert answer.code == UNPARSED, str(exchange)
        elif expected.code == SYSTEM_ERROR:
            assert "NullPointerException" in expected.remark
            assert (answer.code, fields["queueOffset"]) == (FOUND, "12"), str(exchange)
        else:
            assert (answer.code, answer.remark) == (expected.code, expected.remark), str(exchange)
            assert (bytes(answer.body), answer.ext_fields) == (expected.body, expected.ext_fields), str(exchange)
            by_expression += fields["expressionType"] == "SQL92"
    assert by_expression > 20
