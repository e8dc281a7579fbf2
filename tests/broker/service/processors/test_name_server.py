"""Routes, clusters and topic lists: what a client learns before it asks a broker anything."""

import json
import shutil
from pathlib import Path

import pytest

from asking import Asker, FakeConnection
from broker.endpoint import Endpoint
from protocol.codes import RequestCode, ResponseCode

NO_ROUTE = "No topic route info in name server for the topic: {}\n"


@pytest.fixture(scope="module")
def g1(g1_store: Path) -> Asker:
    return Asker(g1_store)


@pytest.fixture
def store(g1_store: Path, tmp_path: Path) -> Path:
    """A copy of g1 that a test may change."""
    return shutil.copytree(g1_store, tmp_path / "store")


def test_a_route_names_one_broker_with_id_zero_and_queues_for_reading_alone(g1: Asker) -> None:
    assert g1.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"}) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "127.0.0.1:10911"},
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {"brokerName": "broker-a", "perm": 4, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}
        ],
    }


def test_a_topic_that_is_nowhere_has_no_route_in_a_name_servers_words(g1: Asker) -> None:
    answer = g1.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "NoSuchTopic"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark is not None
    assert answer.remark.startswith(NO_ROUTE.format("NoSuchTopic"))
    assert not answer.body


def test_every_listed_topic_has_a_route(g1: Asker) -> None:
    topics = g1.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
    assert {"TopicTest", "%RETRY%CG_FAIL", "BenchmarkTest", "TBW102"} <= set(topics)
    for topic in topics:
        (queues,) = g1.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})["queueDatas"]
        assert queues["perm"] == 4
        assert queues["readQueueNums"] > 0


@pytest.mark.parametrize(
    ("local", "advertise", "expected"),
    [
        (Endpoint("192.0.2.7", 10911), None, "192.0.2.7:10911"),
        (Endpoint("2001:db8::7", 10911), None, "[2001:db8::7]:10911"),
        (Endpoint("192.0.2.7", 10911), Endpoint("archive.example", 11911), "archive.example:11911"),
    ],
)
def test_the_address_is_the_advertised_one_or_that_which_the_client_reached(
    local: Endpoint, advertise: Endpoint | None, expected: str, g1_store: Path
) -> None:
    asker = Asker(g1_store, advertise=advertise)
    asker.connection = FakeConnection(local_address=local)
    assert asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"})["brokerDatas"][0]["brokerAddrs"] == {
        "0": expected
    }
    assert asker.value(RequestCode.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {
        "0": expected
    }
    assert asker.value(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)["brokerAddr"] == expected


def test_names_given_by_options_replace_those_of_the_store(g1_store: Path) -> None:
    asker = Asker(g1_store, broker_name="archive-1", cluster="Archive")
    cluster_info = asker.value(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert cluster_info["clusterAddrTable"] == {"Archive": ["archive-1"]}
    assert cluster_info["brokerAddrTable"]["archive-1"]["cluster"] == "Archive"
    assert asker.value(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)["topicList"] == ["Archive", "archive-1"]


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


def test_without_topics_json_groups_are_still_found_by_their_retry_topics(store: Path) -> None:
    """`mqadmin consumerProgress` asks for nothing but the list, and then for the group of each retry topic in it."""
    for path in (store / "config").glob("topics.json*"):
        path.unlink()
    asker = Asker(store)
    retry_topics = {
        topic
        for topic in asker.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
        if topic.startswith("%RETRY%")
    }
    assert retry_topics >= {"%RETRY%CG_FAIL", "%RETRY%CG_SQL", "%RETRY%CG_TAG"}
    assert "%RETRY%CID_RMQ_SYS_TRANS" not in retry_topics
    for topic in retry_topics:
        assert asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0
    lag = [
        entry["brokerOffset"] - entry["consumerOffset"]
        for entry in asker.value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG_TAG"})["offsetTable"].values()
    ]
    assert sum(lag) == 44


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


def test_the_retry_topic_of_any_group_has_a_route(g1: Asker) -> None:
    (queues,) = g1.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%NewGroup"})["queueDatas"]
    assert queues["readQueueNums"] == 1
    assert g1.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_the_topics_of_our_cluster_are_all_topics_and_those_of_another_none(g1: Asker) -> None:
    assert g1.value(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}) == g1.value(
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    )
    assert g1.value(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "Other"}) == {"topicList": []}


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


def test_the_brokers_of_our_name_are_us(g1: Asker) -> None:
    group = g1.value(RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "DefaultCluster", "brokerName": "broker-a"})[
        "brokerMemberGroup"
    ]
    assert group["brokerAddrs"] == {"0": "127.0.0.1:10911"}
    assert (group["cluster"], group["brokerName"]) == ("DefaultCluster", "broker-a")


def test_there_is_no_key_value_configuration(g1: Asker) -> None:
    answer = g1.ask(RequestCode.GET_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicTest"})
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "No config item, Namespace: ORDER_TOPIC_CONFIG Key: TopicTest",
    )
    answer = g1.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"})
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "No config item, Namespace: ORDER_TOPIC_CONFIG",
    )


def test_the_name_servers_configuration_tells_our_own_port(g1: Asker) -> None:
    assert g1.value(RequestCode.GET_NAMESRV_CONFIG)["listenPort"] == "10911"


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
    ],
)
def test_what_would_change_a_name_server_is_refused(code: int, g1: Asker) -> None:
    answer = g1.ask(code, {})
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "this broker is read-only")


def test_a_route_without_a_topic_is_answered_naming_the_field(g1: Asker) -> None:
    answer = g1.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "topic" in (answer.remark or "")
