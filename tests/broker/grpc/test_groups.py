"""What `Admin` says of topics, groups and clients is what the broker's port says, to which clients are connected."""

import pytest

from acl_file import READER, READER_SECRET, write_accounts
from broker.grpc.messages.definition_pb2 import Code, FilterType, MessageType, Resource
from connected_consumer import ConnectedConsumer
from grpc_client import grpc_client, serving_grpc, signed
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode
from protocol.fastjson import parse_fastjson
from store_writer import StoreWriter


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
