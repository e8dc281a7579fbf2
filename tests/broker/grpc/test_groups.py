"""What `Admin` says of topics, groups and clients, and `QueryMessage` page by page, as the port and the log have it."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acl_file import ADMIN, ADMIN_SECRET, READER, READER_SECRET, write_accounts
from asking import Asker
from broker.grpc.messages.admin_pb2 import ListMessageRequest
from broker.grpc.messages.definition_pb2 import Code, FilterType, MessageType, Resource
from broker.grpc.query_message import read_question
from connected_consumer import ConnectedConsumer
from examples import examples
from growing_store import GrowingStore
from grpc_client import RECORDED, grpc_client, serving_grpc, serving_recorded, signed
from heartbeats import consumer, heartbeat, subscription
from oracles import read_log
from protocol.codes import RequestCode
from protocol.cursors import encode_cursor
from protocol.fastjson import parse_fastjson
from protocol.message import decode_messages
from protocol.question import KeyKind
from store_writer import StoreWriter, appended, closed_store


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    writer = StoreWriter(tmp_path_factory.mktemp("groups") / "store")
    writer.set_topic("orders", {"message.type": "FIFO"})
    for number in range(40):
        writer.append("orders", b"x", queue_id=number % 2)
    writer.consumer_offsets = {"orders@offline": {0: 5, 1: 7}, "orders@readers": {0: 20, 1: 15}}
    writer.close()
    return writer.root


@pytest.fixture(scope="module")
def served(written, tmp_path_factory):
    with serving_grpc(written, folder=tmp_path_factory.mktemp("state")) as serving:
        yield serving


@pytest.fixture(scope="module")
def client(served):
    with grpc_client(served) as found:
        yield found


@pytest.fixture(scope="module")
def online(served):
    groups = consumer("online", subscription("orders", "t0 || t1", 1795243505254))
    found = ConnectedConsumer(served.broker, heartbeat("10.0.0.1@7", groups, producers=("makers",)))
    yield found
    found.close()


def named(name: str) -> Resource:
    return Resource(name=name)


def test_a_topic_has_what_its_configuration_says(client) -> None:
    found = client.admin("DescribeTopicStatus", topic=named("orders"))
    assert (found.status.code, found.topic_message_type) == (Code.OK, MessageType.FIFO)
    assert (found.tags["readQueueNums"], found.tags["message.type"]) == ("4", "FIFO")
    assert client.admin("DescribeTopicStatus", topic=named("nosuch")).status.code == Code.TOPIC_NOT_FOUND
    assert client.admin("DescribeTopicStatus").status.code == Code.ILLEGAL_TOPIC
    refused = client.admin("DescribeTopicStatus", topic=named("orders"), deployment_name="another")
    assert refused.status.code == Code.NOT_FOUND


@pytest.mark.usefixtures("online")
def test_clients_and_subscriptions_are_those_that_are_connected(client) -> None:
    (found,) = client.admin("ListConsumerConnection", group=named("online")).client_info
    assert (found.client_id, found.egress_ip, found.message_model) == ("10.0.0.1@7", "127.0.0.1", 1)
    assert not client.admin("ListConsumerConnection", group=named("online"), topic=named("another")).client_info
    assert not client.admin("ListConsumerConnection", group=named("offline")).client_info
    infos = client.admin("ListSubscription", topic=named("orders")).subscription_info
    by_group = {each.group.name: each for each in infos}
    assert set(by_group) == {"offline", "online", "readers"}
    assert [name for name, each in by_group.items() if each.online] == ["online"]
    online = by_group["online"]
    assert (online.expression.type, online.expression.expression) == (FilterType.TAG, "t0 || t1")
    assert online.last_update_timestamp.seconds == 1795243505
    (one,) = client.admin("ListSubscription", group=named("offline")).subscription_info
    assert (one.topic.name, one.online) == ("orders", False)
    assert client.admin("ListSubscription").status.code == Code.BAD_REQUEST
    (described,) = client.admin("DescribeSubscription", topic=named("orders")).client_subscription_info
    assert (described.client_info.client_id, described.subscription_info) == ("10.0.0.1@7", online)
    stats = client.admin("GetProxyRuntimeStats")
    assert (stats.producers, stats.consumers, stats.connections >= 0) == (1, 1, True)


def test_what_a_group_has_not_consumed_is_what_the_port_says(client, online) -> None:
    for group, lag in (("offline", 28), ("readers", 5)):
        found = client.admin("DescribeGroupAccumulation", group=named(group))
        answer = online.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group})
        table = parse_fastjson(bytes(answer.body))["offsetTable"].values()
        assert found.accumulation.accumulation == sum(each["brokerOffset"] - each["consumerOffset"] for each in table)
        assert (found.accumulation.accumulation, found.accumulation.ready_messages) == (lag, lag)
        assert found.topic_accumulation["orders"] == found.accumulation
        assert found.accumulation.last_consume_timestamp == max(each["lastTimestamp"] for each in table)
        assert found.accumulation.deliver_delay_time.seconds > 0


def test_a_connected_client_is_asked_for_what_it_alone_knows(client, online) -> None:
    asked = {"group": named("online"), "client_id": "10.0.0.1@7"}
    info = client.admin("GetConsumerRunningInfo", **asked).consumer_running_info
    assert dict(info.properties) == {"PROP_THREADPOOL_CORE_SIZE": "20"}
    (item,) = info.message_queue_table
    process = item.process_queue_info
    assert (item.message_queue.id, process.commit_offset, process.cached_msg_count, process.locked) == (1, 7, 3, True)
    assert info.consume_status_table["orders"].consume_rt == 1.5
    assert info.subscriptions["orders"].expression == "t0"
    trace = client.admin("PrintThreadStackTrace", **asked)
    assert trace.thread_stack_trace == "main RUNNABLE"
    assert len(online.asked) == 2
    for method in ("GetConsumerRunningInfo", "PrintThreadStackTrace"):
        for group, client_id in (("online", "another"), ("offline", "10.0.0.1@7")):
            status = client.admin(method, group=named(group), client_id=client_id).status
            assert (status.code, bool(status.message)) == (Code.NOT_FOUND, True)


def test_an_account_sees_its_groups_and_topics_alone(written, tmp_path) -> None:
    acl = write_accounts(tmp_path / "plain_acl.yml")
    with serving_grpc(written, folder=tmp_path, acl=acl) as serving, grpc_client(serving) as known:
        known.metadata = signed(READER, READER_SECRET)
        asked = {"group": named("offline")}
        for method in ("ListConsumerConnection", "ListSubscription", "DescribeGroupAccumulation", "QueryTimeSpan"):
            assert known.admin(method, **asked).status.code == Code.FORBIDDEN, method
        for method in ("DescribeTopicStatus", "GetTopicRoute", "ListSubscription"):
            assert known.admin(method, topic=named("orders")).status.code == Code.FORBIDDEN, method
        found = known.admin("DescribeGroupAccumulation", group=named("readers"))
        assert (found.status.code, dict(found.topic_accumulation)) == (Code.OK, {})
        assert known.admin("GetProxyRuntimeStats").status.code == Code.FORBIDDEN


Place = tuple[str, int, int]
PREPARED, ROLLBACK = 0x4, 0xC


def pages(client, topic, **fields):
    scroll_id = ""
    while True:
        answer = client.admin("QueryMessage", topic=Resource(name=topic), scroll_id=scroll_id, **fields)
        assert answer.status.code == Code.OK, answer.status
        yield answer
        scroll_id = answer.scroll_id
        if not scroll_id:
            return


def messages(client, topic, **fields):
    return [message for page in pages(client, topic, **fields) for message in page.messages]


def place_of(message) -> Place:
    namespace = message.topic.resource_namespace
    system = message.system_properties
    name = f"{namespace}%{message.topic.name}" if namespace else message.topic.name
    return name, system.queue_id, system.queue_offset


def queued(records):
    return [each for each in records if each.sys_flag & ROLLBACK not in (PREPARED, ROLLBACK)]


def inner_count(record) -> int:
    return int(record.properties.get("INNER_NUM", 1))


@pytest.mark.parametrize("name", ["light", "queues"])
def test_every_message_of_a_recorded_store_is_reached_exactly_once(name, tmp_path) -> None:
    with serving_recorded(name, tmp_path) as served, grpc_client(served) as client:
        expected: dict[str, Counter[Place]] = {}
        for record in queued(read_log(served.roots[0] / "commitlog")):
            places = ((record.topic, record.queue_id, record.queue_offset + at) for at in range(inner_count(record)))
            expected.setdefault(record.topic, Counter()).update(places)
        assert len(expected) > 3
        for topic, places in expected.items():
            assert Counter(map(place_of, messages(client, topic, max_message_nums=7))) == places, topic


def test_every_message_of_a_tier_is_reached_exactly_once(tmp_path) -> None:
    produced = RECORDED["tier"][1] / "produced.tsv"
    told = [line.split("\t") for line in produced.read_text().splitlines() if line]
    with serving_recorded("tier", tmp_path) as served, grpc_client(served) as client:
        for topic in {line[4] for line in told}:
            found = Counter(each.system_properties.message_id for each in messages(client, topic, max_message_nums=7))
            assert found == Counter(key for line in told if line[4] == topic for key in line[2].split(","))


def test_a_light_topic_is_read_by_its_own_name(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for number in range(40):
        name = "%LMQ%$orders$chat-1" if number % 4 else "%LMQ%plain"
        light = {"INNER_MULTI_DISPATCH": name, "INNER_MULTI_QUEUE_OFFSET": str(number)}
        writer.append("orders", b"%d" % number, properties=light)
    writer.close()
    with serving_grpc(writer.root, folder=tmp_path) as served, grpc_client(served) as client:
        found = messages(client, "orders", lite_topic="chat-1", max_message_nums=7)
        assert [int(each.body) for each in found] == [number for number in range(40) if number % 4]
        answer = client.admin("QueryMessage", topic=Resource(name="orders"), lite_topic="chat-2")
        assert (answer.status.code, "chat-2" in answer.status.message) == (Code.NOT_FOUND, True)


def remoting(asker: Asker, topic: str, key: str, kind: str | None) -> Counter[Place]:
    fields = {"topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(2**62)}
    found: Counter[Place] = Counter()
    more = {"indexType": kind} if kind else {}
    answer = asker.ask(RequestCode.QUERY_MESSAGE, fields | more | {"_UNIQUE_KEY_QUERY": str(kind == "U").lower()})
    for each in decode_messages(answer.body):
        found[each.topic, each.queue_id, each.queue_offset] += 1
    return found


def test_ids_and_keys_find_what_the_brokers_port_finds(g1_store, tmp_path) -> None:
    drawn, hits = random.Random(20261127), 0
    asker = Asker(g1_store)
    names = []
    for record in queued(read_log(g1_store / "commitlog")):
        names += [(record.topic, key, None) for key in record.properties.get("KEYS", "").split()]
        names += [(record.topic, key, "U") for key in [record.properties.get("UNIQ_KEY")] if key]
    with serving_grpc(g1_store, folder=tmp_path) as served, grpc_client(served) as client:
        for _ in range(25):
            topic, key, kind = drawn.choice(names)
            key = key if drawn.random() < 0.9 else key[::-1]
            asked = {"message_id" if kind == "U" else "message_key": key}
            found = Counter(map(place_of, messages(client, topic, max_message_nums=drawn.choice((1, 5, 64)), **asked)))
            assert found == remoting(asker, topic, key, kind), (topic, key, kind)
            hits += bool(found)
    assert hits > 15


def test_a_page_is_bounded_by_bytes_too(tmp_path) -> None:
    large = (appended("orders", bytes(1 << 20), keys="hot", unique_key=f"u{number}") for number in range(7))
    writer = closed_store(tmp_path / "store", *large, segment_size=32 << 20)
    with serving_grpc(writer.root, folder=tmp_path) as served, grpc_client(served) as client:
        for asked in ({}, {"message_key": "hot"}):
            found = list(pages(client, "orders", max_message_nums=100, **asked))
            assert sum(len(page.messages) for page in found) == 7
            assert max(page.ByteSize() for page in found) < 5 << 20


def test_a_subscription_is_tags_or_sql92(filtered) -> None:
    passes = {
        "*": lambda number: True,
        "t0 || t2": lambda number: number % 3 != 1,
        "size BETWEEN 10 AND 19 AND TAGS IN ('t0')": lambda number: 10 <= number < 20 and number % 3 == 0,
    }
    for wanted, is_wanted in passes.items():
        found = messages(filtered, "orders", subscription=wanted, max_message_nums=9)
        assert [int(each.body) for each in found] == [number for number in range(200) if is_wanted(number)]


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filtered")
    writer = StoreWriter(folder / "store")
    for number in range(200):
        fields = {"tags": f"t{number % 3}", "properties": {"size": str(number)}, "queue_id": number % 2}
        writer.append("orders", b"%d" % number, **fields)
    writer.close()
    with serving_grpc(writer.root, folder=folder) as served, grpc_client(served) as client:
        yield client


def test_what_cannot_be_asked_is_refused_by_its_code(filtered) -> None:
    questions = [
        ({"topic": Resource(name="nosuch")}, Code.TOPIC_NOT_FOUND),
        ({"topic": Resource()}, Code.ILLEGAL_TOPIC),
        ({"subscription": "a >"}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"message_key": " "}, Code.BAD_REQUEST),
        ({"message_id": "x" * 20_000}, Code.BAD_REQUEST),
        ({"page_num": 3, "page_size": 10}, Code.BAD_REQUEST),
        ({"max_message_nums": -1}, Code.BAD_REQUEST),
        ({"broker_name": "another"}, Code.NOT_FOUND),
        ({"deployment_name": "another"}, Code.NOT_FOUND),
        ({"queue_id": 9}, Code.NOT_FOUND),
        ({"begin_timestamp": {"seconds": 9}, "end_timestamp": {"seconds": 8}}, Code.BAD_REQUEST),
        ({"scroll_id": "garbage"}, Code.BAD_REQUEST),
    ]
    for fields, code in questions:
        answer = filtered.admin("QueryMessage", **{"topic": Resource(name="orders"), **fields})
        assert (answer.status.code, bool(answer.status.message), len(answer.messages)) == (code, True, 0), fields


def test_a_scroll_id_belongs_to_its_question(filtered) -> None:
    orders = Resource(name="orders")
    scroll_id = filtered.admin("QueryMessage", topic=orders, max_message_nums=5).scroll_id
    answer = filtered.admin("QueryMessage", topic=orders, max_message_nums=3, page_num=2, scroll_id=scroll_id)
    assert [int(each.body) for each in answer.messages] == [5, 6, 7]
    refused = filtered.admin("QueryMessage", topic=orders, subscription="t0", scroll_id=scroll_id)
    assert (refused.status.code, "another question" in refused.status.message) == (Code.BAD_REQUEST, True)


PLACES = st.one_of(st.none(), st.integers(-(2**70), 2**70), st.text(max_size=9))
FOUND_AT = st.tuples(st.sampled_from([*KeyKind, "x"]), st.text(max_size=9), PLACES, PLACES)


@settings(max_examples=examples(10))
@given(
    queue=PLACES,
    cursor=st.one_of(st.builds(encode_cursor, st.one_of(PLACES, FOUND_AT)), PLACES),
    likely=st.lists(st.tuples(PLACES, PLACES), max_size=3),
    fields=st.sampled_from([{}, {"message_key": "k"}, {"subscription": "t1"}, {"subscription": "size > 9"}]),
)
def test_no_place_in_a_scroll_id_breaks_the_server_or_leads_elsewhere(filtered, queue, cursor, likely, fields) -> None:
    """Places as only a hostile client has them, of the very question that is asked."""
    request = ListMessageRequest(topic=Resource(name="orders"), max_message_nums=3, **fields)
    place = read_question(request).checksum, "broker-a", queue, cursor, likely
    request.scroll_id = encode_cursor(place)
    answer = filtered.admin("QueryMessage", request)
    assert answer.status.code in (Code.OK, Code.BAD_REQUEST), answer.status
    assert {each.topic.name for each in answer.messages} <= {"orders"}


def test_rights_are_asked_for_on_every_page(g1_store, tmp_path) -> None:
    acl = write_accounts(tmp_path / "plain_acl.yml")
    audit = tmp_path / "audit"
    asked = {"topic": Resource(name="TopicTest"), "max_message_nums": 2}
    with serving_grpc(g1_store, folder=tmp_path, acl=acl, audit_log=audit) as served, grpc_client(served) as client:
        client.metadata = signed(ADMIN, ADMIN_SECRET)
        delayed = {"topic": Resource(name="SCHEDULE_TOPIC_XXXX"), "max_message_nums": 2}
        scroll_id = client.admin("QueryMessage", **delayed).scroll_id
        first = client.admin("QueryMessage", **asked)
        assert scroll_id
        client.metadata = signed(READER, READER_SECRET)
        assert client.admin("QueryMessage", **asked) == first
        assert client.admin("QueryMessage", **asked, scroll_id=first.scroll_id).status.code == Code.OK
        refused = client.admin("QueryMessage", **delayed, scroll_id=scroll_id)
        assert (refused.status.code, len(refused.messages)) == (Code.FORBIDDEN, 0)
    lines = audit.read_text().splitlines()
    assert len(lines) == 5
    assert [line for line in lines if '"FORBIDDEN"' in line] == [lines[-1]]


def test_pages_go_on_while_the_store_grows_loses_its_oldest_segment_and_the_server_is_new(tmp_path) -> None:
    store = GrowingStore(tmp_path / "store", segment_size=4096)
    for number in range(120):
        store.add("T", body=b"%d" % number, keys="hot")
    store.flush()
    asked = {"topic": Resource(name="T"), "max_message_nums": 10}
    with serving_grpc(store.root, folder=tmp_path) as served, grpc_client(served) as client:
        late = client.admin("QueryMessage", **asked).scroll_id
        answer = client.admin("QueryMessage", **asked, message_key="hot")
        seen = [int(each.body) for each in answer.messages]
        key_scroll = answer.scroll_id
    for number in range(120, 160):
        store.add("T", body=b"%d" % number, keys="hot")
    before = min(store.log.segments)
    store.flush()
    store.expire(2)
    store.flush()
    assert min(store.log.segments) > before
    left = [int(record.body) for record in store.writer.records]
    store.exchange_queues()
    with serving_grpc(store.root, folder=tmp_path) as served, grpc_client(served) as client:
        answer = client.admin("QueryMessage", **asked, scroll_id=late)
        assert "expired" in answer.status.message
        bodies = [int(each.body) for each in answer.messages]
        while answer.scroll_id:
            answer = client.admin("QueryMessage", **asked, scroll_id=answer.scroll_id)
            assert "expired" not in answer.status.message
            bodies += [int(each.body) for each in answer.messages]
        assert bodies == left
        scroll_id = key_scroll
        while scroll_id:
            answer = client.admin("QueryMessage", **asked, message_key="hot", scroll_id=scroll_id)
            seen += [int(each.body) for each in answer.messages]
            scroll_id = answer.scroll_id
        assert seen == [number for number in range(119, -1, -1) if number >= left[0]]


def test_two_brokers_follow_one_another(tmp_path) -> None:
    roots = []
    for name in ("a", "b"):
        writer = StoreWriter(tmp_path / name)
        for number in range(25):
            writer.append("orders", f"{name}{number}".encode(), keys="hot")
        if name == "b":
            writer.append("only-b", b"here")
        writer.close()
        roots.append(writer.root)
    with serving_grpc(*roots, folder=tmp_path) as served, grpc_client(served) as client:
        assert len({server._service.broker_name for server in served.servers}) == 2
        bodies = [each.body.decode() for each in messages(client, "orders", max_message_nums=4)]
        assert bodies == [f"{name}{number}" for name in ("a", "b") for number in range(25)]
        bodies = [each.body.decode() for each in messages(client, "orders", message_key="hot", max_message_nums=4)]
        assert bodies == [f"{name}{number}" for name in ("a", "b") for number in range(24, -1, -1)]
        assert [each.body for each in messages(client, "only-b")] == [b"here"]


def test_a_message_is_converted_as_the_official_proxy_does(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store")
    mine = {"color": "red", "__SHARDINGKEY": "g1", "DELAY": "3", "TIMER_DELIVER_MS": "1795243505254", "WAIT": "true"}
    writer.append("ns%orders", b"body", keys="k1  k2 ", unique_key="UK", tags="T", properties=mine, reconsume_times=2)
    more = {"_SYS_MSG_PRIORITY_": "3", "__LITE_TOPIC": "chat", "__BORNHOST": "10.1.2.3"}
    writer.append("orders", b"", properties=more)
    writer.append("orders", b"", properties={"TRAN_MSG": "TRUE"}, born_host=("::1", 5), sys_flag=1)
    writer.close()
    with serving_grpc(writer.root, folder=tmp_path) as served, grpc_client(served) as client:
        (first,) = client.admin("QueryMessage", topic=Resource(resource_namespace="ns", name="orders")).messages
        second, third = messages(client, "orders")
    system = first.system_properties
    assert (first.topic.resource_namespace, first.topic.name) == ("ns", "orders")
    assert dict(first.user_properties) == {"color": "red", "__SHARDINGKEY": "g1"}
    assert (system.tag, list(system.keys), system.message_id) == ("T", ["k1", "", "k2"], "UK")
    assert (system.message_group, system.delivery_attempt, system.message_type) == ("g1", 3, 3)
    assert system.body_digest.checksum == "841A2D689AD86BD1611447453C22C6FC"
    assert (system.delivery_timestamp.seconds, system.delivery_timestamp.nanos) == (1795243505, 254_000_000)
    system = second.system_properties
    assert (system.message_type, system.priority, system.lite_topic, system.born_host) == (6, 3, "chat", "10.1.2.3")
    system = third.system_properties
    assert (system.message_type, system.born_host, system.body_encoding) == (4, "0:0:0:0:0:0:0:1", 2)
