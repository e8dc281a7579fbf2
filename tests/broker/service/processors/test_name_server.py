"""Routes, clusters and topic lists: what a client learns before it asks a broker anything."""

import json
import shutil
from pathlib import Path

import pytest

from asking import Asker, FakeConnection
from broker.endpoint import Endpoint
from protocol.codes import RequestCode


@pytest.fixture
def store(g1_store: Path, tmp_path: Path) -> Path:
    """A copy of g1 that a test may change."""
    return shutil.copytree(g1_store, tmp_path / "store")


def test_the_address_is_the_advertised_one_or_that_which_the_client_reached(g1_store: Path) -> None:
    reached = Endpoint("192.0.2.7", 10911)
    for local, advertise, expected in (
        (reached, None, "192.0.2.7:10911"),
        (Endpoint("2001:db8::7", 10911), None, "[2001:db8::7]:10911"),
        (reached, Endpoint("archive.example", 11911), "archive.example:11911"),
    ):
        asker = Asker(g1_store, advertise=advertise)
        asker.connection = FakeConnection(local_address=local)
        (broker,) = asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"})["brokerDatas"]
        info = asker.value(RequestCode.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"]["broker-a"]
        assert broker["brokerAddrs"] == info["brokerAddrs"] == {"0": expected}
        assert asker.value(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)["brokerAddr"] == expected


def test_a_proxy_finds_brokers_by_their_cluster_and_its_own_topic_whatever_the_store_knows(store: Path) -> None:
    for path in (store / "config").glob("topics.json*"):
        path.unlink()
    asker = Asker(store, broker_name="archive-1", cluster="Archive")
    for topic in ("Archive", "archive-1", "DefaultHeartBeatSyncerTopic"):
        route = asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        assert [broker["brokerName"] for broker in route["brokerDatas"]] == ["archive-1"]
        assert [(queues["readQueueNums"], queues["perm"]) for queues in route["queueDatas"]] == [(1, 4)]
    topics = asker.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
    assert not {"Archive", "archive-1", "DefaultHeartBeatSyncerTopic"}.intersection(topics)


def test_topics_that_have_queues_but_no_configuration_are_there(store: Path) -> None:
    for path in (store / "config").glob("topics.json*"):
        path.unlink()
    asker = Asker(store, broker_name="broker-a", cluster="DefaultCluster")
    on_disk = {path.name for path in (store / "consumequeue").iterdir()}
    # And two that have no queues: the groups consumed, and nothing failed.
    assert set(asker.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]) == on_disk | {
        "%RETRY%CG_SQL",
        "%RETRY%CG_TAG",
    }
    (queues,) = asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "BulkTopic"})["queueDatas"]
    assert queues["readQueueNums"] == 4, "queue 3 is there, though queue 1 never had a message"


def test_a_topic_that_was_shrunk_still_announces_all_its_queues(store: Path) -> None:
    path = store / "config" / "topics.json"
    config = json.loads(path.read_text())
    config["topicConfigTable"]["TopicTest"] |= {"readQueueNums": 1, "writeQueueNums": 1}
    path.write_text(json.dumps(config))
    (queues,) = Asker(store).value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"})["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"]) == (4, 1)


def test_numbers_that_only_damage_explains_do_not_make_clients_build_billions_of_queues(store: Path) -> None:
    (store / "consumequeue" / "TopicTest" / "2147483647").mkdir()
    path = store / "config" / "topics.json"
    config = json.loads(path.read_text())
    config["topicConfigTable"]["TopicTx"] |= {"readQueueNums": 2147483647, "writeQueueNums": 2147483647}
    path.write_text(json.dumps(config))
    asker = Asker(store)
    for topic in ("TopicTest", "TopicTx"):
        (queues,) = asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})["queueDatas"]
        assert queues["readQueueNums"] == 16384


def test_unit_topics_are_told_by_their_flags(store: Path) -> None:
    path = store / "config" / "topics.json"
    config = json.loads(path.read_text())
    for topic, flag in (("TopicTest", 1), ("TopicTx", 2), ("TopicBatch", 3)):
        config["topicConfigTable"][topic]["topicSysFlag"] = flag
    path.write_text(json.dumps(config))
    asker = Asker(store)
    assert asker.value(RequestCode.GET_UNIT_TOPIC_LIST)["topicList"] == ["TopicBatch", "TopicTest"]
    assert asker.value(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)["topicList"] == ["TopicBatch", "TopicTx"]
    assert asker.value(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)["topicList"] == ["TopicTx"]
    assert asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTx"})["queueDatas"][0]["topicSysFlag"] == 2
