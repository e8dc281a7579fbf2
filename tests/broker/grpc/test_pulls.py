"""Pulls and offsets by gRPC, compared with a plain walk over the log and with the broker's port."""

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import pytest
from google.protobuf.json_format import ParseDict

from acl_file import ADMIN, ADMIN_SECRET, READER, READER_SECRET, write_accounts
from blocking_client import eventually
from broker.grpc.messages.definition_pb2 import Code
from broker.grpc.messages.service_pb2 import TelemetryCommand
from broker.metrics.metrics_rows import HELD_PULLS
from draining import pull_of
from growing_store import GrowingStore
from grpc_cases import GROUP, ME, OTHER, TOPIC, TelemetryStream, subscribing
from grpc_client import grpc_client, serving_grpc, serving_recorded, signed
from interop.stages import committed
from interop.wire import ask
from protocol.codes import RequestCode, ResponseCode
from protocol.fastjson import parse_fastjson
from protocol.message import decode_messages

SECONDS = 60


@pytest.fixture(scope="module")
def served(g1_store, tmp_path_factory):
    with serving_grpc(g1_store, folder=tmp_path_factory.mktemp("pulls")) as served:
        yield served


@pytest.fixture
def client(served):
    with grpc_client(served) as client:
        yield client


def queue_of(topic="TopicTest", queue_id=0):
    return {"topic": {"name": topic}, "id": queue_id}


def pulled(client, offset, queue=None, size=32, **fields):
    """The code of a pull, its messages, and the offset to go on from."""
    queue = queue_of() if queue is None else queue
    fields = {"group": GROUP, "message_queue": queue, "offset": offset, "batch_size": size, **fields}
    first, *rest = client.messaging("PullMessage", **fields)
    assert [first.WhichOneof("content"), rest[-1].WhichOneof("content")] == ["status", "next_offset"]
    return Code.Name(first.status.code), [each.message for each in rest[:-1]], rest[-1].next_offset


def settings(client, **subscription) -> TelemetryStream:
    stream = TelemetryStream(client.channel, client.metadata or ME, SECONDS)
    stream.send(ParseDict(subscribing("PULL_CONSUMER", **subscription), TelemetryCommand()))
    answered = Code.Name(stream.receive().status.code)
    assert answered == "OK", answered
    return stream


def code_of(client, method, **fields) -> str:
    return Code.Name(client.messaging(method, **fields).status.code)


def held_pulls(served) -> int:
    served.servers[0].publish()
    return int(served.rows.totals()[HELD_PULLS])


@pytest.mark.parametrize("name", ["light", pytest.param("tier", marks=pytest.mark.soak)])
def test_pulls_and_offsets_of_a_recorded_store_are_those_of_the_brokers_port(name, tmp_path) -> None:
    pulled_ones = light_ones = groups = 0
    with serving_recorded(name, tmp_path) as served, grpc_client(served) as client:
        broker = served.broker.host, served.broker.port
        topics = parse_fastjson(ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
        queues = dict[tuple[str, int], tuple[int, int]]()
        for topic in topics:
            table = parse_fastjson(ask(broker, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}).body)["offsetTable"]
            for key, ends in table.items():
                queues[topic, parse_fastjson(key)["queueId"]] = ends["minOffset"], ends["maxOffset"]
        assert len(queues) > 30
        filled = {key: ends for key, ends in queues.items() if ends[0] < ends[1] or key == (next(iter(topics)), 0)}
        for (topic, queue_id), (begin, end) in filled.items():
            fields, queue = {"topic": topic, "queueId": str(queue_id)}, queue_of(topic, queue_id)
            assert (offset_of(client, queue, "BEGINNING"), offset_of(client, queue, "END")) == (begin, end), queue
            time, offset, is_over = 0, begin, begin == end
            while not is_over:
                answer = ask(broker, RequestCode.PULL_MESSAGE, pull_of(topic, queue_id, offset))
                stored = [each for record in decode_messages(answer.body) for each in record.inner_messages()]
                code, found, following = pulled(client, offset, queue)
                assert following == int(answer.header["extFields"]["nextBeginOffset"])
                assert (code == "OK") == (answer.code == ResponseCode.SUCCESS) == bool(found)
                shown = [(each.topic.name, each.system_properties, each.body) for each in found]
                got = [(topic, system.queue_offset, system.message_id, body) for topic, system, body in shown]
                assert got == [
                    (each.topic, each.queue_offset, each.message_id, bytes(each.stored_body)) for each in stored
                ]
                time = stored[-1].store_timestamp if stored else time
                pulled_ones += len(found)
                light_ones += len(found) * topic.startswith("%LMQ%")
                is_over, offset = not found, following
            by_time = ask(broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields | {"timestamp": str(time)})
            stamp = {"seconds": time // 1000, "nanos": time % 1000 * 1_000_000}
            wanted = int(by_time.header["extFields"]["offset"])
            assert offset_of(client, queue, "TIMESTAMP", timestamp=stamp) == wanted, (queue, time)
        table = parse_fastjson(ask(broker, RequestCode.GET_ALL_CONSUMER_OFFSET).body)["offsetTable"]
        for key, offsets in table.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in offsets.items():
                asked = {"group": {"name": group}, "message_queue": queue_of(topic, int(queue_id))}
                if (topic, int(queue_id)) in queues and not group.startswith("CID_RMQ_SYS_"):
                    assert client.messaging("GetOffset", **asked).offset == offset, asked
                    groups += 1
        with settings(client):
            asked = {"group": GROUP, "message_queue": queue}
            assert code_of(client, "UpdateOffset", **asked, offset=5) == "OK"
            assert client.messaging("GetOffset", **asked).offset == 5
            assert committed(broker, GROUP["name"], topic=queue["topic"]["name"], queue_id=queue["id"]) == 5
    assert pulled_ones > 50
    assert (light_ones > 10) == (name == "light")
    assert groups


def offset_of(client, queue, policy, **fields) -> int:
    answer = client.messaging("QueryOffset", message_queue=queue, query_offset_policy=policy, **fields)
    assert answer.status.code == Code.OK, answer.status
    return int(answer.offset)


def test_an_offset_outside_of_the_range_is_illegal_and_the_next_one_in_it_is_named(client) -> None:
    end = client.messaging("QueryOffset", message_queue=queue_of(), query_offset_policy="END").offset
    assert end > 10
    assert pulled(client, -1)[0::2] == ("ILLEGAL_OFFSET", 0)
    for beyond in (end + 1, 2**63 - 1):
        assert pulled(client, beyond, long_polling_timeout={"nanos": 1_000_000})[0] == "ILLEGAL_OFFSET"
    assert pulled(client, end) == ("MESSAGE_NOT_FOUND", [], end)
    for bad in ({"query_offset_policy": "TIMESTAMP"}, {"query_offset_policy": 9}):
        assert code_of(client, "QueryOffset", message_queue=queue_of(), **bad) == "BAD_REQUEST"
    assert code_of(client, "QueryOffset", message_queue=queue_of("NoSuchTopic")) == "TOPIC_NOT_FOUND"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": {"name": ""}}, "ILLEGAL_CONSUMER_GROUP"),
        ({"group": {"name": "a b"}}, "ILLEGAL_CONSUMER_GROUP"),
        ({"group": {"name": "CID_RMQ_SYS_x"}}, "ILLEGAL_CONSUMER_GROUP"),
        ({"message_queue": queue_of("")}, "ILLEGAL_TOPIC"),
        ({"message_queue": queue_of("x" * 200)}, "ILLEGAL_TOPIC"),
        ({"message_queue": queue_of("NoSuchTopic")}, "TOPIC_NOT_FOUND"),
        ({"message_queue": queue_of(queue_id=4)}, "BAD_REQUEST"),
        ({"message_queue": queue_of(queue_id=-1)}, "BAD_REQUEST"),
        ({"message_queue": {**queue_of(), "broker": {"name": "broker-z"}}}, "NOT_FOUND"),
        ({"filter_expression": {"type": "SQL", "expression": "a >"}}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"long_polling_timeout": {"seconds": -1}}, "ILLEGAL_POLLING_TIME"),
    ],
)
def test_a_pull_that_cannot_be_made_is_refused(fields, code, client) -> None:
    (answer,) = client.messaging("PullMessage", **{"group": GROUP, "message_queue": queue_of(), **fields})
    assert Code.Name(answer.status.code) == code
    assert answer.status.message


def test_a_member_commits_offsets_in_the_store_of_the_port(served, client) -> None:
    broker, asked = (served.broker.host, served.broker.port), {"group": GROUP, "message_queue": queue_of(queue_id=2)}
    assert code_of(client, "GetOffset", **asked) == "OFFSET_NOT_FOUND"
    assert code_of(client, "UpdateOffset", **asked, offset=3) == "FORBIDDEN"
    assert committed(broker, GROUP["name"], "TopicTest", 2) is None
    with settings(client):
        assert code_of(client, "UpdateOffset", **asked, offset=3) == "OK"
        assert client.messaging("GetOffset", **asked).offset == 3
        assert committed(broker, GROUP["name"], "TopicTest", 2) == 3
        assert code_of(client, "UpdateOffset", **asked, offset=-1) == "ILLEGAL_OFFSET"
        client.metadata = dict(OTHER)
        assert code_of(client, "UpdateOffset", **asked, offset=9) == "FORBIDDEN"
    assert committed(broker, GROUP["name"], "TopicTest", 2) == 3


def test_what_is_not_served_says_why(client) -> None:
    for method in ("SendMessage", "EndTransaction", "RecallMessage"):
        status = client.messaging(method).status
        assert (status.code, method in status.message) == (Code.FORBIDDEN, True)
    consuming = ("ReceiveMessage", "AckMessage", "ForwardMessageToDeadLetterQueue", "ChangeInvisibleDuration")
    for method in (*consuming, "SyncLiteSubscription"):
        with pytest.raises(grpc.RpcError) as caught:
            client.messaging(method)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert f"{method} is not served: this server only reads" in caught.value.details()


def test_a_pull_waits_for_a_message_and_what_is_open_ends_with_the_server(tmp_path) -> None:
    growing = GrowingStore(tmp_path / "store")
    growing.add()
    growing.flush()
    with contextlib.ExitStack() as clients, ThreadPoolExecutor(1) as threads:
        with serving_grpc(growing.root, folder=tmp_path) as served:
            client = clients.enter_context(grpc_client(served))
            wait = partial(pulled, client, queue=queue_of("T"), long_polling_timeout={"seconds": 20})
            waiting = threads.submit(wait, 1)
            eventually(lambda: held_pulls(served) == 1, "the pull", SECONDS)
            growing.add()
            growing.flush()
            code, (message,), offset = waiting.result(SECONDS)
            assert (code, message.system_properties.message_id, offset) == ("OK", "u1", 2)
            stream = settings(client, topic={"name": "T"})
            held = {"message_queue": queue_of("T"), "offset": 2, "long_polling_timeout": {"seconds": 20}}
            refused = threads.submit(client.messaging, "PullMessage", group=GROUP, **held)
            eventually(lambda: held_pulls(served) == 1, "the second pull", SECONDS)
        (answer,) = refused.result(SECONDS)
        assert (answer.status.code, "stopping" in answer.status.message) == (Code.TOO_MANY_REQUESTS, True)
        with pytest.raises(StopIteration):
            stream.receive()


def test_rights_are_those_of_the_account_and_looks_are_written_down(g1_store, tmp_path) -> None:
    acl, audit = write_accounts(tmp_path / "plain_acl.yml"), tmp_path / "audit"
    readers = {"name": "readers"}
    with serving_grpc(g1_store, folder=tmp_path, acl=acl, audit_log=audit) as served, grpc_client(served) as client:
        asked = {"group": readers, "message_queue": queue_of()}
        assert code_of(client, "QueryRoute", topic=TOPIC) == "UNAUTHORIZED"
        client.metadata = {**ME, **signed(READER, READER_SECRET)}
        assert code_of(client, "QueryRoute", topic=TOPIC) == "OK"
        assert code_of(client, "QueryRoute", topic={"name": "TopicDelay"}) == "FORBIDDEN"
        code, messages, _ = pulled(client, 0, group=readers, size=3)
        assert (code, len(messages)) == ("OK", 3)
        for fields in ({"group": GROUP}, {"message_queue": queue_of("TopicDelay")}):
            (refused,) = client.messaging("PullMessage", **{**asked, **fields})
            assert Code.Name(refused.status.code) == "FORBIDDEN"
        assert code_of(client, "GetOffset", group=GROUP, message_queue=queue_of()) == "FORBIDDEN"
        assert code_of(client, "QueryOffset", message_queue=queue_of("TopicDelay")) == "FORBIDDEN"
        with pytest.raises(AssertionError, match="FORBIDDEN"):
            settings(client, group=readers, topic={"name": "TopicDelay"})
        with settings(client, group=readers):
            assert code_of(client, "UpdateOffset", **asked, offset=1) == "OK"
            # The id of a client is its account's: another account's client of that id is another one.
            client.metadata = {**ME, **signed(ADMIN, ADMIN_SECRET)}
            assert code_of(client, "UpdateOffset", **asked, offset=2) == "FORBIDDEN"
    looks = [json.loads(line) for line in audit.read_text().splitlines()]
    (shown_look,) = [each for each in looks if each["messages"]]
    assert (shown_look["account"], shown_look["request"]) == (READER, "gRPC MessagingService/PullMessage")
    assert (shown_look["asked"]["topic"], len(shown_look["offsets"])) == ("TopicTest", 3)
