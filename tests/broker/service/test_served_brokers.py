"""Several stores, each served at its own port, as one cluster: each port answers routes for all of them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asking import Asker, FakeConnection
from broker.endpoint import Endpoint
from broker.service.served_brokers import ServedBrokers
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode
from store_writer import StoreWriter

PORTS = ((10911,), (10921,), (10931,))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """Two stores with a topic that both have, one that one has alone each; a third with none of them."""
    made = []
    for number, topics in enumerate((("Shared", "First"), ("Shared", "Second"), ("Third",))):
        root = tmp_path_factory.mktemp(f"broker-{number}")
        writer = StoreWriter(root)
        for topic in topics:
            for message in range(8):
                writer.append(topic, b"%d of %d" % (message, number), keys="k", queue_id=message % 4)
        writer.close()
        made.append(root)
    return made


@pytest.fixture
def askers(stores: Sequence[Path]) -> list[Asker]:
    made = [Asker(store, broker_name=name, cluster="C") for store, name in zip(stores, ("a", "b", "c"), strict=True)]
    for asker, (port,) in zip(made, PORTS, strict=True):
        asker.connection = FakeConnection(Endpoint("127.0.0.1", port))
    brokers = ServedBrokers([asker.service for asker in made], PORTS)
    for asker in made:
        asker.serve_with(brokers)
    return made


def addresses(route: Any) -> dict[str, str]:
    return {broker["brokerName"]: broker["brokerAddrs"]["0"] for broker in route["brokerDatas"]}


def test_a_route_names_every_store_that_has_the_topic_whichever_port_is_asked(askers: list[Asker]) -> None:
    for asker in askers:
        route = asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Shared"})
        assert addresses(route) == {"a": "127.0.0.1:10911", "b": "127.0.0.1:10921"}
        assert [(each["brokerName"], each["readQueueNums"]) for each in route["queueDatas"]] == [("a", 4), ("b", 4)]
        assert addresses(asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Second"})) == {
            "b": "127.0.0.1:10921"
        }
        assert asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Nowhere"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_the_retry_topic_of_a_group_is_at_all_of_them(askers: list[Asker]) -> None:
    assert addresses(askers[1].value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%G"})).keys() == {
        "a",
        "b",
        "c",
    }


def test_cluster_info_lists_all_brokers_of_the_one_cluster(askers: list[Asker]) -> None:
    info = askers[2].value(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert info["clusterAddrTable"] == {"C": ["a", "b", "c"]}
    assert {name: each["brokerAddrs"]["0"] for name, each in info["brokerAddrTable"].items()} == {
        "a": "127.0.0.1:10911",
        "b": "127.0.0.1:10921",
        "c": "127.0.0.1:10931",
    }


def test_lists_of_topics_are_of_all_stores_and_a_brokers_own_list_is_its_own(askers: list[Asker]) -> None:
    for asker in askers:
        assert {"Shared", "First", "Second", "Third"} <= set(
            asker.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
        )
        assert (
            asker.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
            == asker.value(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"})["topicList"]
        )
        assert {"a", "b", "c", "C"} == set(asker.value(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)["topicList"])
    assert "Second" not in json.dumps(askers[0].value(RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"])


def test_a_broker_is_found_by_its_name_and_one_that_is_nowhere_is_the_asked_one(askers: list[Asker]) -> None:
    for name, own in (("b", "b"), ("nobody", "a")):
        group = askers[0].value(RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "C", "brokerName": name})[
            "brokerMemberGroup"
        ]
        assert group["brokerName"] == own


def test_what_is_asked_for_by_key_or_place_comes_from_the_store_of_the_port(askers: list[Asker]) -> None:
    fields = {"topic": "Shared", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9" * 13}
    for number, asker in enumerate(askers[:2]):
        found = asker.ask(RequestCode.QUERY_MESSAGE, fields)
        assert b"7 of %d" % number in bytes(found.body)
        assert b"0 of %d" % number in bytes(asker.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}).body)
    assert askers[2].ask(RequestCode.QUERY_MESSAGE, fields).code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("options", "reached", "told"),
    [
        ({}, Endpoint("10.0.0.7", 10921), "10.0.0.7:10911"),
        ({}, Endpoint("::1", 10921), "[::1]:10911"),
        ({}, Endpoint("proxy", 30921), "proxy:30911"),
        ({"advertise": Endpoint("broker.example", 40911)}, Endpoint("10.0.0.7", 10921), "broker.example:40911"),
    ],
    ids=["same host", "IPv6", "behind a proxy that keeps the distances", "advertised"],
)
def test_another_store_is_where_its_port_is_as_the_client_reached_this_one(
    stores: Sequence[Path], options: dict[str, Any], reached: Endpoint, told: str
) -> None:
    first, second = Asker(stores[0], broker_name="a", **options), Asker(stores[1], broker_name="b")
    second.serve_with(ServedBrokers([first.service, second.service], PORTS[:2]))
    second.connection = FakeConnection(reached)
    assert addresses(second.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "First"})) == {"a": told}


def test_free_ports_are_told_as_they_were_taken(stores: Sequence[Path]) -> None:
    first, second = Asker(stores[0], broker_name="a"), Asker(stores[1], broker_name="b")
    second.serve_with(ServedBrokers([first.service, second.service], ((40001, 40002), (50001, 50007))))
    second.connection = FakeConnection(Endpoint("127.0.0.1", 50007))
    assert addresses(second.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "First"})) == {"a": "127.0.0.1:40002"}


def test_members_that_leave_it_to_the_server_share_the_queues_of_all_stores(askers: list[Asker]) -> None:
    for asker in askers[:2]:
        for number in range(2):
            connection = replace(asker.connection, peer_address=Endpoint("127.0.0.1", 40000 + number))
            body = heartbeat(f"c{number}", consumer("G", subscription("Shared")))
            assert asker.ask(RequestCode.HEART_BEAT, {}, body, connection).code == 0
    shares: list[tuple[str, int]] = []
    for number in range(2):
        body = {"topic": "Shared", "consumerGroup": "G", "clientId": f"c{number}", "messageModel": "CLUSTERING"}
        asked = json.dumps(body | {"strategyName": "AVG"}).encode()
        both = [asker.value(RequestCode.QUERY_ASSIGNMENT, {}, asked)["messageQueueAssignments"] for asker in askers[:2]]
        assert both[0] == both[1]
        shares += [(each["messageQueue"]["brokerName"], each["messageQueue"]["queueId"]) for each in both[0]]
    assert shares == [(name, queue_id) for name in "ab" for queue_id in range(4)]
