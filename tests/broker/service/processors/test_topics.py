"""Routes, topic lists, offsets and queue units, beyond what was recorded (see test_golden_replay)."""

import json
import shutil

import pytest

from asking import Asker
from broker.service._metadata_page import page_of
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode
from storage.layout.store_config import DataVersion
from store_writer import START_TIMESTAMP, appended, closed_store


@pytest.fixture
def store(g1_store, tmp_path):
    return shutil.copytree(g1_store, tmp_path / "store")


def test_a_proxy_finds_brokers_by_their_cluster_and_its_own_topic_whatever_the_store_knows(store) -> None:
    for path in (store / "config").glob("topics.json*"):
        path.unlink()
    asker = Asker(store, broker_name="archive-1", cluster="Archive")
    for topic in ("Archive", "archive-1", "DefaultHeartBeatSyncerTopic"):
        route = asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        assert [broker["brokerName"] for broker in route["brokerDatas"]] == ["archive-1"]
        assert [(queues["readQueueNums"], queues["perm"]) for queues in route["queueDatas"]] == [(1, 4)]
    topics = asker.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
    assert not {"Archive", "archive-1", "DefaultHeartBeatSyncerTopic"}.intersection(topics)


def test_numbers_that_only_damage_explains_do_not_make_clients_build_billions_of_queues(store) -> None:
    (store / "consumequeue" / "TopicTest" / "2147483647").mkdir()
    path = store / "config" / "topics.json"
    config = json.loads(path.read_text())
    config["topicConfigTable"]["TopicTx"] |= {"readQueueNums": 2147483647, "writeQueueNums": 2147483647}
    path.write_text(json.dumps(config))
    asker = Asker(store)
    for topic in ("TopicTest", "TopicTx"):
        (queues,) = asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})["queueDatas"]
        assert queues["readQueueNums"] == 16384


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    """A queue of five messages at 10, 20, 20, 20 and 30 ms."""
    times = (START_TIMESTAMP + each for each in (10, 20, 20, 20, 30))
    messages = (appended("Timed", b"body", store_timestamp=time) for time in times)
    writer = closed_store(tmp_path_factory.mktemp("timed") / "store", *messages)
    return Asker(writer.root)


def offset_at(asker: Asker, time: int, boundary: str | None = None) -> int:
    fields = {"topic": "Timed", "queueId": "0", "timestamp": str(START_TIMESTAMP + time)}
    fields |= {"boundaryType": boundary} if boundary else {}
    answer = asker.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
    assert answer.code == 0
    return int(answer.ext_fields["offset"])


@pytest.mark.parametrize(
    ("time", "lower", "upper"), [(5, 0, 0), (10, 0, 0), (15, 1, 0), (20, 1, 3), (25, 4, 3), (30, 4, 4), (35, 5, 4)]
)
def test_a_time_finds_the_first_message_from_it_on_or_the_last_before(time, lower, upper, timed) -> None:
    assert offset_at(timed, time) == lower
    assert offset_at(timed, time, "LOWER") == lower
    assert offset_at(timed, time, "UPPER") == upper


def test_units_with_an_extension_show_it_and_whether_a_live_group_takes_them(tmp_path) -> None:
    writer = closed_store(
        tmp_path / "store", appended("Ext", tags="TagA"), appended("Ext", tags="TagB"), ext_bit_map=bytes([0x80, 1])
    )
    asker = Asker(writer.root)
    asker.ask(RequestCode.HEART_BEAT, body=heartbeat("client-1", consumer("G", subscription("Ext", "TagA"))))
    asked = {"topic": "Ext", "queueId": "0", "index": "0", "count": "9", "consumerGroup": "G"}
    body = asker.value(RequestCode.QUERY_CONSUME_QUEUE, asked)
    assert body["subscriptionData"]["subString"] == "TagA"
    assert [unit["eval"] for unit in body["queueData"]] == [True, False]
    assert [unit["tagsCode"] for unit in body["queueData"]] == [2598919, 2598920]
    assert json.loads(body["queueData"][0]["extendDataJson"])["filterBitMap"] == [-128, 1]
    assert body["queueData"][0]["bitMap"] == "0000000110000000\n"


NAMES = [f"t{number:02}" for number in range(10)]
VERSION = DataVersion(counter=3, state_version=1, timestamp=99)
SEEN = json.dumps({"counter": 3, "stateVersion": 1, "timestamp": 99})


@pytest.mark.parametrize("seen", [None, "", " ", "{}", "[]", "nonsense", SEEN.replace("99", "98"), '{"counter":"x"}'])
def test_any_other_client_starts_at_the_beginning(seen: str | None) -> None:
    assert page_of(NAMES, 4, 3, seen, VERSION) == NAMES[:3]
