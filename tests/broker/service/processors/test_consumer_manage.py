"""Consumer groups: members, configuration, offsets."""

import json
import shutil
from pathlib import Path

import pytest

from asking import Asker, FakeConnection
from broker.endpoint import Endpoint
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode
from protocol.fastjson import parse_fastjson
from store_writer import StoreWriter


def offset_of(asker: Asker, group: str, topic: str, queue_id: int, **fields: str) -> tuple[int, str | None]:
    answer = asker.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)} | fields
    )
    return answer.code, (answer.ext_fields or {}).get("offset")


def commit(asker: Asker, group: str, topic: str, queue_id: int, offset: int) -> int:
    """The answer to a commit of a member that comes for it and leaves."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
    asker.ask(RequestCode.HEART_BEAT, body=heartbeat("c", consumer(group)))
    answer = asker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    asker.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": group})
    return answer.code


# ---------------------------------------------------------------------- members


def test_the_connections_of_a_live_group_come_with_its_subscriptions(g1: Asker) -> None:
    connection = FakeConnection(peer_address=Endpoint("2001:db8::1", 4711))
    data = consumer(
        "G", subscription("TopicTest", "TagA", 5), consumeType="CONSUME_ACTIVELY", messageModel="BROADCASTING"
    )
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", data), connection=connection)
    found = g1.value(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"})
    assert found["connectionSet"] == [
        {"clientAddr": "[2001:db8::1]:4711", "clientId": "c1", "language": "JAVA", "version": 479}
    ]
    assert (found["consumeType"], found["messageModel"]) == ("CONSUME_ACTIVELY", "BROADCASTING")
    assert found["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
    assert found["subscriptionTable"]["TopicTest"]["subString"] == "TagA"


# ---------------------------------------------------------------------- configuration


def test_groups_come_in_pages_for_clients_that_ask_for_pages(g1: Asker) -> None:
    version = json.dumps({"counter": 3, "stateVersion": 0, "timestamp": 1795243535056})
    first = g1.ask(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": "0", "maxGroupNum": "8", "dataVersion": ""}
    )
    second = g1.ask(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": "8", "maxGroupNum": "8", "dataVersion": version}
    )
    assert first.ext_fields == second.ext_fields == {"totalGroupNum": "11"}
    pages = [json.loads(bytes(answer.body))["subscriptionGroupTable"] for answer in (first, second)]
    assert [len(page) for page in pages] == [8, 3]
    assert pages[0] | pages[1] == g1.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]


def test_a_group_that_the_store_does_not_know_is_told_with_a_brokers_defaults_and_is_not_kept(g1: Asker) -> None:
    before = g1.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    # As the broker 5.5.0 has answered; tests/interop/test_queue_answers.py asks it about any names.
    assert g1.value(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "newgroup"}) == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "newgroup",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    assert g1.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG) == before
    answer = g1.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "no group"})
    assert (answer.code, answer.remark) == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        "No group in this broker",
    )


# ---------------------------------------------------------------------- offsets


def test_a_group_new_to_a_queue_that_is_whole_starts_at_zero_unless_it_asks_otherwise(g1: Asker) -> None:
    assert offset_of(g1, "New", "TopicTest", 2) == (0, "0")
    assert offset_of(g1, "New", "TopicTest", 2, setZeroIfNotFound="true") == (0, "0")
    assert offset_of(g1, "New", "TopicTest", 2, setZeroIfNotFound="false") == (22, None)


def test_a_group_new_to_a_queue_whose_beginning_is_gone_has_no_offset(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for queue_offset in range(5, 9):
        writer.append("Cut", queue_offset=queue_offset)
    writer.close()
    asker = Asker(writer.root)
    assert asker.ask(RequestCode.GET_MIN_OFFSET, {"topic": "Cut", "queueId": "0"}).ext_fields == {"offset": "5"}
    assert offset_of(asker, "New", "Cut", 0) == (22, None)


def test_what_a_consumer_tells_last_may_come_after_its_leave_taking(g1: Asker) -> None:
    """Recorded so: Java clients of 5.x send both without waiting, and the one overtakes the other."""
    fields = {"consumerGroup": "G", "topic": "TopicTest", "queueId": "1", "commitOffset": "9"}
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c", consumer("G")))
    g1.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "G"})
    assert (
        g1.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"}).code
        == ResponseCode.CONSUMER_NOT_ONLINE
    )
    assert g1.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    assert (
        g1.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields, connection=FakeConnection()).code
        == ResponseCode.NO_PERMISSION
    )
    assert offset_of(g1, "G", "TopicTest", 1) == (0, "9")


@pytest.mark.parametrize("oneway", [True, False])
def test_nobody_moves_the_offset_of_a_group_that_he_did_not_join(g1: Asker, oneway: bool) -> None:
    fields = {"consumerGroup": "CG_TAG", "topic": "TopicTest", "queueId": "1", "commitOffset": "9"}
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("CG_TAG")))
    stranger = FakeConnection()
    assert g1.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields, connection=stranger, oneway=oneway).code == (
        0 if oneway else ResponseCode.NO_PERMISSION
    )
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c2", consumer("Another")), connection=stranger)
    assert offset_of(g1, "CG_TAG", "TopicTest", 1) == (0, "2")


def test_an_offset_of_a_group_without_members_is_refused_for_only_tools_commit_so(g1: Asker) -> None:
    """What cloneGroupOffset does: a success would be believed, and no broker would ever know of it."""
    fields = {"consumerGroup": "CG_CLONE", "topic": "TopicTest", "queueId": "1", "commitOffset": "9"}
    answer = g1.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == (
        "this broker is read-only: offsets of a group are taken from its members alone, and this client did not join "
        "CG_CLONE here"
    )
    assert (
        g1.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields | {"setZeroIfNotFound": "false"}).code
        == ResponseCode.QUERY_NOT_FOUND
    )


def test_groups_that_consume_here_are_listed_as_a_broker_would_make_them(g1: Asker) -> None:
    before = g1.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("New"), consumer("CG_SQL")))
    listed = g1.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    assert listed == before | {"New": before["CG_SQL"] | {"groupName": "New"}}
    statistics = g1.value(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})["consumeStatsList"]
    assert {name for groups in statistics for name in groups} == {*listed}
    assert "%RETRY%New" in g1.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
    g1.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "New"})
    assert g1.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"] == before


def test_offsets_of_clients_that_broadcast_are_told_by_the_key_that_the_broker_gave_them(
    g1_store: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(g1_store, tmp_path / "store")
    path = root / "config" / "consumerOffset.json"
    told = parse_fastjson(path.read_bytes())
    told["offsetTable"]["TopicTest@CG_SQL@broadcast"] = {"0": 7}
    path.write_text(json.dumps(told))
    asker = Asker(root)
    found = asker.value(RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"]
    assert found["TopicTest@CG_SQL@broadcast"] == {"0": 7}
    assert found["TopicTest@CG_SQL"] == {"0": 10, "1": 15, "2": 11, "3": 12}
    groups = asker.value(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "TopicTest"})["groupList"]
    assert "CG_SQL" in groups
    assert not [each for each in groups if "broadcast" in each]
