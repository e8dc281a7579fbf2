"""Our side of each deliberate difference from the recorded broker; docs/deviations.md describes them all."""

import json
import re
from pathlib import Path

import pytest

from asking import Asker
from golden_deviations import DEVIATIONS, LARGEST_NUMBER
from golden_frames import value_of
from golden_store import GOLDEN, unpack
from heartbeats import consumer, heartbeat
from protocol.codes import RequestCode, ResponseCode
from protocol.message import decode_messages

FOREVER = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}


@pytest.fixture(scope="module")
def g1(g1_store: Path) -> Asker:
    return Asker(g1_store)


def test_each_deviation_has_a_name_of_its_own_and_a_test_here() -> None:
    names = [rule.name for rule in DEVIATIONS]
    assert len(set(names)) == len(names)
    assert len(names) <= LARGEST_NUMBER
    for name in names:
        assert f"test_{name}" in globals()


def test_read_only_routes(g1: Asker) -> None:
    for topic in ("TopicTest", "DefaultCluster", "rmq_sys_SYNC_BROKER_MEMBER_broker-a"):
        (queues,) = g1.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})["queueDatas"]
        assert queues["perm"] == 4
    assert g1.value(RequestCode.GET_TOPIC_CONFIG, {"topic": "TopicTest"})["perm"] == 6


def test_stored_queues(tmp_path: Path) -> None:
    asker = Asker(unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-queues"))
    assert "%LMQ%alpha" not in asker.store.config.topics
    assert "%LMQ%alpha" in asker.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
    (queues,) = asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%LMQ%alpha"})["queueDatas"]
    assert (queues["readQueueNums"], queues["perm"]) == (1, 4)


def test_retry_routes(g1: Asker) -> None:
    route = g1.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%NobodyYet"})
    assert [(queues["readQueueNums"], queues["perm"]) for queues in route["queueDatas"]] == [(1, 4)]
    assert g1.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"})["brokerDatas"] == route["brokerDatas"]
    assert g1.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_refused_registration(g1: Asker) -> None:
    fields = {"brokerName": "b", "brokerAddr": "192.0.2.1:10911", "clusterName": "C", "brokerId": "0"}
    answer = g1.ask(RequestCode.REGISTER_BROKER, fields, body=b"{}")
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "this broker is read-only")
    assert set(g1.value(RequestCode.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"]) == {"broker-a"}


def test_heartbeat_features(g1: Asker) -> None:
    answer = g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G")))
    assert (answer.code, answer.ext_fields) == (0, None)


def test_explained_absence(g1: Asker) -> None:
    fields = {"topic": "TopicTest", "key": "nosuchkey", "maxNum": "64", "_UNIQUE_KEY_QUERY": "false", **FOREVER}
    answer = g1.ask(RequestCode.QUERY_MESSAGE, fields)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert re.match(r"can not find message, maybe time range not correct; searched 10 index files", answer.remark or "")
    answer = g1.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "1048575"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert re.match(r"can not find message by the offset, 1048575: .* past the end", answer.remark or "")


def test_inside_a_record(g1: Asker) -> None:
    answer = g1.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "1"})
    assert (answer.code, len(answer.body)) == (ResponseCode.SYSTEM_ERROR, 0)
    assert "inside the record that starts at 0" in (answer.remark or "")


def test_true_keys(g1: Asker) -> None:
    fields = {"topic": "TopicTest", "key": "Aa", "maxNum": "64", "_UNIQUE_KEY_QUERY": "false", **FOREVER}
    for index_type in ({}, {"indexType": "K"}):
        (message,) = decode_messages(g1.ask(RequestCode.QUERY_MESSAGE, fields | index_type).body)
        assert "Aa" in message.keys
    (other,) = decode_messages(g1.ask(RequestCode.QUERY_MESSAGE, fields | {"key": "BB"}).body)
    assert "BB" in other.keys


def test_disclosed_page(g1: Asker) -> None:
    fields = {"topic": "TopicTest", "key": "hotkey", "indexType": "K", "_UNIQUE_KEY_QUERY": "false", **FOREVER}
    answer = g1.ask(RequestCode.QUERY_MESSAGE, fields | {"maxNum": "5"})
    oldest, *_ = decode_messages(answer.body)
    assert answer.ext_fields is not None
    assert answer.ext_fields["rocketlensTruncated"] == "true"
    assert answer.ext_fields["rocketlensCursor"] == str(oldest.physical_offset)
    assert f"lastKey {oldest.physical_offset}" in (answer.remark or "")
    whole = g1.ask(RequestCode.QUERY_MESSAGE, fields | {"maxNum": "40"})
    assert "rocketlensTruncated" not in (whole.ext_fields or {})


def test_plain_success(g1: Asker) -> None:
    answer = g1.ask(RequestCode.QUERY_CONSUME_QUEUE, {"topic": "TopicTest", "queueId": "0", "index": "0", "count": "5"})
    assert (answer.code, answer.remark) == (0, None)


def test_process_facts(g1: Asker) -> None:
    table = g1.value(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert table["bootTimestamp"] == str(g1.service.started_timestamp)
    assert table["msgPutTotalTodayNow"] == "0"
    assert (table["commitLogMinOffset"], table["commitLogMaxOffset"]) == ("0", "156014")
    assert g1.value(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "TopicTest"})["topicPutTps"] == 0.0
    assert table["brokerVersion"] == "513"
    put = g1.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "TopicTest"})
    assert (put.code, put.remark) == (ResponseCode.SYSTEM_ERROR, "The stats <TOPIC_PUT_NUMS> <TopicTest> not exist")
    assert g1.value(RequestCode.GET_ALL_TOPIC_CONFIG)["mappingDataVersion"] == {
        "counter": 0,
        "stateVersion": 0,
        "timestamp": 0,
    }


def test_own_configuration(g1: Asker) -> None:
    broker = g1.value(RequestCode.GET_BROKER_CONFIG)
    assert (broker["brokerPermission"], broker["autoCreateTopicEnable"]) == ("4", "false")
    version = (g1.ask(RequestCode.GET_BROKER_CONFIG).ext_fields or {})["version"]
    assert json.loads(version)["timestamp"] == g1.service.started_timestamp
    assert value_of(bytes(g1.ask(RequestCode.GET_NAMESRV_CONFIG).body))["listenPort"] == "10911"
