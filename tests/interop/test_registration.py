"""A server of ours in a real cluster: what name server, mqadmin and consumers make of it, with a master and without."""

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from interop.conftest import Java
from interop.flows import ends
from interop.jars import SERVER_VERSION
from interop.java_client import JavaClient, Subscription
from interop.official_broker import G1_PROPERTIES, OfficialPair, official_broker, official_name_server, official_pair
from interop.rocketlens_process import rocketlens_serving
from interop.stages import wait_until
from interop.stored import Stored, stored
from interop.wire import ask, encode_request

pytestmark = pytest.mark.interop

REGISTER, GET_ROUTE, GET_CLUSTER, TOPIC_NOT_EXIST = 103, 105, 106, 17
NO_TOPICS = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},'
    b'"topicConfigTable":{},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
)
TOPIC = "BulkTopic"
REPLICA = "990001"
PREFETCHED = 32
"""Messages of a queue that a consumer has before it takes the first one."""


@pytest.fixture
def g1(tmp_path: Path) -> Stored:
    """A store that a broker may write in."""
    return stored("g1", tmp_path / "g1")


def asked(name_server: tuple[str, int], code: int, fields: dict[str, str] | None = None) -> Any:
    """The body of an answer; fastjson leaves integer keys bare."""
    body = ask(name_server, code, fields or {}).body
    return json.loads(re.sub(rb"([{,])(-?[0-9]+):", rb'\1"\2":', body))


def brokers(name_server: tuple[str, int], name: str = "broker-a") -> dict[str, str]:
    """Addresses by id that a name server has of a broker."""
    table = asked(name_server, GET_CLUSTER)["brokerAddrTable"]
    return dict(table[name]["brokerAddrs"]) if name in table else {}


def text(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


@pytest.fixture
def pair(g1: Stored, tmp_path: Path) -> Iterator[OfficialPair]:
    with official_pair(g1.root, tmp_path / "official", properties=G1_PROPERTIES) as running:
        yield running


def test_consumers_go_on_without_their_master_and_with_it_again(
    g1: Stored, pair: OfficialPair, tmp_path: Path, java: Java
) -> None:
    client: JavaClient = java(SERVER_VERSION, "JSON")
    name_server, master = pair.name_server, pair.broker
    registered = ("--register", name_server.text_address)
    with rocketlens_serving(g1.root, tmp_path, *registered) as ours:
        wait_until(lambda: brokers(name_server.address).get(REPLICA) == text(ours), "our registration")
        assert brokers(name_server.address) == {"0": master.text_address, REPLICA: text(ours)}
        route = asked(name_server.address, GET_ROUTE, {"topic": TOPIC})
        (broker,) = route["brokerDatas"]
        assert broker["brokerAddrs"] == {"0": master.text_address, REPLICA: text(ours)}
        assert broker["enableActingMaster"] is False
        # Our registration takes nobody the right to write.
        assert {queue["perm"] for queue in route["queueDatas"]} == {6}
        listed = client.mqadmin("clusterList", "-n", name_server.text_address)
        assert [line.split()[2] for line in listed.splitlines() if "broker-a" in line] == ["0", REPLICA]

        group = "CG_failover"
        wanted = {(queue, offset) for queue, end in ends(g1, TOPIC).items() for offset in range(end)}
        assert any(end > 2 * PREFETCHED for end in ends(g1, TOPIC).values())
        push = Subscription("push", group, TOPIC, limit=5, holds=True, cached=1, route_millis=500)
        client.consume(name_server.text_address, {"it": push})
        wait_until(lambda: len(client.look("it").messages) >= 5, "the first messages, from the master")
        master.kill()
        wait_until(lambda: brokers(name_server.address) == {REPLICA: text(ours)}, "the master's end")
        client.limit("it", 10**6)
        wait_until(partial(has_all, client, wanted), "all messages, the rest of them from us", seconds=90)

        with official_broker(
            g1.root,
            tmp_path / "again",
            properties=G1_PROPERTIES,
            name_server=name_server,
            port=master.address[1],
        ) as again:
            wait_until(
                lambda: brokers(name_server.address) == {"0": again.text_address, REPLICA: text(ours)}, "its return"
            )
            assert client.send(name_server.text_address, TOPIC) == "SEND_OK"
            wait_until(lambda: bool(new_places(client, wanted)), "a message sent after the return", seconds=90)
            consumed = client.end("it")["it"]
        assert wanted <= set(consumed.places)
    assert REPLICA not in brokers(name_server.address)


def test_the_master_says_what_all_its_replicas_share(g1: Stored, tmp_path: Path) -> None:
    with official_name_server(tmp_path / "official") as name_server, connected(name_server.address) as master:
        # A master by hand, which lives as long as its connection.
        fields = {
            "brokerName": "broker-a",
            "brokerAddr": "127.0.0.1:1",
            "clusterName": "DefaultCluster",
            "brokerId": "0",
            "haServerAddr": "127.0.0.1:2",
            "enableActingMaster": "true",
            "compressed": "false",
            "bodyCrc32": "0",
            "__ZONE_NAME": "zone-1",
        }
        master.sendall(encode_request(REGISTER, 1, fields, NO_TOPICS))
        wait_until(lambda: brokers(name_server.address) == {"0": "127.0.0.1:1"}, "the master")
        with rocketlens_serving(g1.root, tmp_path, "--register", name_server.text_address):
            wait_until(lambda: REPLICA in brokers(name_server.address), "our registration")
            shared = asked(name_server.address, GET_CLUSTER)["brokerAddrTable"]["broker-a"]
            assert (shared["enableActingMaster"], shared["zoneName"]) == (True, "zone-1")
        assert brokers(name_server.address) == {"0": "127.0.0.1:1"}


def test_a_broker_of_its_own_is_consumed_by_the_real_route(g1: Stored, tmp_path: Path, java: Java) -> None:
    client: JavaClient = java(SERVER_VERSION, "JSON")
    wanted = {(queue, offset) for queue, end in ends(g1, TOPIC).items() for offset in range(end)}
    options = ("--register-as", "broker", "--broker-name", "archive", "--cluster", "Archives")
    with (
        official_name_server(tmp_path / "official") as name_server,
        rocketlens_serving(g1.root, tmp_path, "--register", name_server.text_address, *options) as ours,
    ):
        wait_until(lambda: brokers(name_server.address, "archive") == {"0": text(ours)}, "our registration")
        route = asked(name_server.address, GET_ROUTE, {"topic": TOPIC})
        assert [(queue["brokerName"], queue["perm"]) for queue in route["queueDatas"]] == [("archive", 4)]
        # No producer may make topics here.
        assert ask(name_server.address, GET_ROUTE, {"topic": "TBW102"}).code == TOPIC_NOT_EXIST
        client.consume(name_server.text_address, {"own": Subscription("push", "CG_own", TOPIC)})
        wait_until(partial(has_all, client, wanted, "own"), "all messages", seconds=90)
        assert sorted(client.end("own")["own"].places) == sorted(wanted)


def has_all(client: JavaClient, wanted: set[tuple[int, int]], name: str = "it") -> bool:
    return wanted <= set(client.look(name).places)


@contextlib.contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, 5) as connection:
        yield connection


def new_places(client: JavaClient, known: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return set(client.look("it").places) - known
