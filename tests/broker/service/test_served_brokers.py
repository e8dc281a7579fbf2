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


def test_another_store_is_where_its_port_is_as_the_client_reached_this_one(stores: Sequence[Path]) -> None:
    advertised = {"advertise": Endpoint("broker.example", 40911)}
    cases: list[tuple[dict[str, Any], Sequence[tuple[int, ...]], Endpoint, str]] = [
        ({}, PORTS[:2], Endpoint("10.0.0.7", 10921), "10.0.0.7:10911"),
        ({}, PORTS[:2], Endpoint("::1", 10921), "[::1]:10911"),
        ({}, PORTS[:2], Endpoint("proxy", 30921), "proxy:30911"),  # one that keeps the distances
        (advertised, PORTS[:2], Endpoint("10.0.0.7", 10921), "broker.example:40911"),
        ({}, ((40001, 40002), (50001, 50007)), Endpoint("127.0.0.1", 50007), "127.0.0.1:40002"),  # free ones
    ]
    for options, ports, reached, told in cases:
        first, second = Asker(stores[0], broker_name="a", **options), Asker(stores[1], broker_name="b")
        second.serve_with(ServedBrokers([first.service, second.service], ports))
        second.connection = FakeConnection(reached)
        assert addresses(second.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "First"})) == {"a": told}


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
