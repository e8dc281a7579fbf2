"""A server of ours in a real cluster: what name server, mqadmin and consumers make of it, with a master and without."""

import asyncio
import contextlib
import json
import re
import socket
import threading
from functools import partial
from pathlib import Path

import pytest

from blocking_client import eventually
from broker.cluster.registration import Registration
from broker.config import RegisterOptions, ServeOptions
from broker.endpoint import Endpoint
from broker.service.broker_service import BrokerService
from interop.flows import ends
from interop.jars import SERVER_VERSION
from interop.java_client import Subscription
from interop.mqadmin_commands import OFFSET_ID, UNIQUE_KEY
from interop.official_broker import G1_PROPERTIES, official_broker, official_name_server, official_pair
from interop.stages import WAIT_SECONDS
from interop.stored import stored
from interop.wire import ask, encode_request
from process import rocketlens_serving
from storage.store.message_store import MessageStore

pytestmark = pytest.mark.interop

REGISTER, GET_ROUTE, GET_CLUSTER, SYSTEM_ERROR, TOPIC_NOT_EXIST = 103, 105, 106, 1, 17
NO_TOPICS = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},'
    b'"topicConfigTable":{},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
)
TOPIC = "BulkTopic"
REPLICA = "990001"
OURS = "127.0.0.1:3"
OTHER_KINDS = ("orderly", "broadcasting", "lite")
PREFETCHED = 32
"""Messages of a queue that a consumer has before it takes the first one."""

DOCUMENT = Path(__file__).parents[2] / "docs" / "serve.md"
GO_ON = {
    "queryMsgByKey -t TopicTest -k hotkey -m 3": r"#Message ID",
    f"queryMsgByUniqueKey -t TopicTest -i {UNIQUE_KEY} -s 0 -e 9999999999999": r"Message Body Path:",
    f"queryMsgById -t TopicTest -i {OFFSET_ID}": r"Message Body Path:",
    "queryMsgByOffset -t TopicTest -b broker-a -i 2 -o 1": r"Message Body Path:",
    "topicList": r"TopicTest",
    "topicRoute -t TopicTest": REPLICA,
    "topicStatus -t TopicTest": r"broker-a +3 +0 +12",
    "topicClusterList -t TopicTest": r"DefaultCluster",
    "statsAll -t TopicTest": r"CG_TAG +44",
    "consumerProgress -g CG_TAG": r"Consume Diff Total: 44",
    "getConsumerConfig -g CG_TAG": r"retryMaxTimes",
    "clusterList": REPLICA,
    "brokerStatus -c DefaultCluster": r"commitLogMaxOffset",
    "getBrokerConfig -c DefaultCluster": rf"brokerId += +{REPLICA}",
}
"""What mqadmin shows by the real name server without the master: command and what it must print."""
NEED_THE_MASTER = {
    "printMsg -t TopicTest": r"The broker\[broker-a\] not exist",
    "printMsgByQueue -t TopicTest -a broker-a -i 0 -p true": r"The broker\[broker-a\] not exist",
    "consumeMessage -t TopicTest -b broker-a -i 0 -o 0 -c 3": r"The broker\[broker-a\] not exist",
    "queryCq -t TopicTest -q 0 -i 0": r"CODE: 3 ",
    "exportConfigs -c DefaultCluster -f {folder}": r"connect to +failed",
    "exportMetrics -c DefaultCluster -f {folder}": r"CODE: 3 ",
}
"""What asks for the broker with id 0, and how it fails without one."""
STRICT = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
STRICT["deleteTopicWithBrokerRegistration"] = "true"
"""A name server that takes what the smallest id registers for the broker's topics, all of them."""


@pytest.fixture
def g1(tmp_path):
    return stored("g1", tmp_path / "g1")


def asked(name_server, code, fields=None):
    """The body of an answer; fastjson leaves integer keys bare."""
    for _ in range(20):
        answer = ask(name_server, code, fields or {})
        if answer.code != SYSTEM_ERROR:
            break
    body = answer.body
    return json.loads(re.sub(rb"([{,])(-?[0-9]+):", rb'\1"\2":', body))


def brokers(name_server: tuple[str, int], name: str = "broker-a") -> dict[str, str]:
    table = asked(name_server, GET_CLUSTER)["brokerAddrTable"]
    return dict(table[name]["brokerAddrs"]) if name in table else {}


def text(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


@pytest.fixture
def pair(g1, tmp_path):
    with official_pair(g1.root, tmp_path / "official", properties=G1_PROPERTIES) as running:
        yield running


@pytest.mark.parametrize("returns", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_consumers_go_on_without_their_master_and_with_it_again(g1, pair, tmp_path, java, returns) -> None:
    client = java(SERVER_VERSION, "JSON")
    name_server, master = pair.name_server, pair.broker
    registered = ("--register", name_server.text_address)
    with rocketlens_serving(g1.root, tmp_path, *registered) as ours:
        eventually(lambda: brokers(name_server.address).get(REPLICA) == text(ours), "our registration")
        assert brokers(name_server.address) == {"0": master.text_address, REPLICA: text(ours)}
        route = asked(name_server.address, GET_ROUTE, {"topic": TOPIC})
        (broker,) = route["brokerDatas"]
        assert broker["brokerAddrs"] == {"0": master.text_address, REPLICA: text(ours)}
        assert broker["enableActingMaster"] is False
        # Our registration takes nobody the right to write.
        assert {queue["perm"] for queue in route["queueDatas"]} == {6}
        listed = client.mqadmin("clusterList", "-n", name_server.text_address)
        assert [line.split()[2] for line in listed.splitlines() if "broker-a" in line] == ["0", REPLICA]
        printed = client.mqadmin("getBrokerConfig", "-c", "DefaultCluster", "-n", name_server.text_address)
        said = re.findall(r"^(?:brokerId|brokerRole) += +(\w+)", printed, re.M)[-2:]
        assert sorted(said) == [REPLICA, "SLAVE"]

        group = "CG_failover"
        wanted = {(queue, offset) for queue, end in ends(g1, TOPIC).items() for offset in range(end)}
        assert any(end > 2 * PREFETCHED for end in ends(g1, TOPIC).values())
        push = Subscription("push", group, TOPIC, limit=5, holds=True, cached=1, route_millis=500)
        client.consume(name_server.text_address, {"it": push})
        eventually(lambda: len(client.look("it").messages) >= 5, "the first messages, from the master")
        # Consumers send their heartbeats to each replica.
        connections = ("consumerConnection", "-g", group, "-b", text(ours), "-n", name_server.text_address)
        eventually(lambda: "CONSUME_PASSIVELY" in client.mqadmin(*connections), "its heartbeat at ours")
        master.kill()
        eventually(lambda: brokers(name_server.address) == {REPLICA: text(ours)}, "the master's end")
        client.limit("it", 10**6)
        others = {kind: Subscription(kind, f"CG_{kind}", TOPIC, route_millis=500) for kind in OTHER_KINDS}
        client.consume(name_server.text_address, others)
        eventually(partial(has_all, client, wanted), "all messages, the rest of them from us", seconds=90)
        for kind in ("broadcasting", "lite"):
            eventually(partial(has_all, client, wanted, kind), f"all messages for a {kind} consumer", seconds=90)
        check_commands(client, name_server, tmp_path)
        # Its locks are the master's to give.
        assert client.look("orderly").messages == []

        if returns:
            return_of_the_master(g1, pair, tmp_path, client, wanted, {REPLICA: text(ours)})
        consumed = client.end("it", *OTHER_KINDS)["it"]
        assert wanted <= set(consumed.places)
    eventually(lambda: REPLICA not in brokers(name_server.address), "the farewell")


def return_of_the_master(g1, pair, tmp_path, client, wanted, ours) -> None:
    name_server, port = pair.name_server, pair.broker.address[1]
    how = {"properties": G1_PROPERTIES, "name_server": name_server, "port": port}
    with official_broker(g1.root, tmp_path / "again", **how) as again:
        eventually(lambda: brokers(name_server.address) == {"0": again.text_address} | ours, "its return")
        assert client.send(name_server.text_address, TOPIC) == "SEND_OK"
        eventually(lambda: bool(set(client.look("it").places) - wanted), "a message sent after the return", seconds=90)
        eventually(partial(has_all, client, wanted, "orderly"), "all messages in order, with a master", seconds=90)


def check_commands(client, name_server, tmp_path) -> None:
    """Run what goes on without the master and what does not, as the documentation has it."""
    rows = re.findall(r"^\| mqadmin, [^|]+\| ([^|]+) \|$", DOCUMENT.read_text(), re.M)
    for row, commands in zip(rows, (GO_ON, NEED_THE_MASTER), strict=True):
        assert set(re.findall(r"`(\w+)`", row)) == {command.split()[0] for command in commands}
        for command, pattern in commands.items():
            arguments = command.format(folder=tmp_path / "exported").split()
            printed = client.mqadmin(*arguments, "-n", name_server.text_address)
            assert re.search(pattern, printed), printed


def as_master(acting: bool) -> bytes:
    fields = {
        "brokerName": "broker-a", "brokerAddr": "127.0.0.1:1", "clusterName": "DefaultCluster", "brokerId": "0",
        "haServerAddr": "127.0.0.1:2", "enableActingMaster": str(acting).lower(), "compressed": "false",
        "bodyCrc32": "0", "__ZONE_NAME": "zone-1"
    }  # fmt: skip
    topics = {name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for name in ("T", "Other")}
    body = NO_TOPICS.replace(b'"topicConfigTable":{}', b'"topicConfigTable":' + json.dumps(topics).encode())
    return encode_request(REGISTER, 1, fields, body)


def test_a_replica_repeats_what_its_master_set_and_stands_in_where_a_cluster_wants_that(
    g1, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("broker.cluster.registration.REPEAT_SECONDS", 0.1)
    with official_name_server(tmp_path / "official", properties=STRICT) as name_server:
        for acting in (True, False):
            with connected(name_server.address) as master:
                master.sendall(as_master(acting))
                eventually(lambda: brokers(name_server.address) == {"0": "127.0.0.1:1"}, "the master")
                with registering(g1, name_server) as rounds:
                    eventually(lambda: brokers(name_server.address) == {"0": "127.0.0.1:1", REPLICA: OURS}, "both")
                    repeated(rounds)
                    shared = asked(name_server.address, GET_CLUSTER)["brokerAddrTable"]["broker-a"]
                    assert (shared["enableActingMaster"], shared["zoneName"]) == (acting, "zone-1")
                    assert route_of(name_server.address, "T") == ({"0": "127.0.0.1:1", REPLICA: OURS}, 6)
                    master.close()
                    eventually(lambda: brokers(name_server.address) == {REPLICA: OURS}, "the master's end")
                    repeated(rounds)
                    # Nothing that we tell costs the broker its topics.
                    assert route_of(name_server.address, "T") == (({"0": OURS}, 4) if acting else ({REPLICA: OURS}, 6))
            # A name server answers a farewell before it has taken the broker off its list.
            eventually(lambda: brokers(name_server.address) == {}, "the farewell")


def repeated(rounds: list[int]) -> None:
    before = len(rounds)
    eventually(lambda: len(rounds) > before + 3, "more registrations")


def route_of(name_server: tuple[str, int], topic: str) -> tuple[dict[str, str], int]:
    route = asked(name_server, GET_ROUTE, {"topic": topic})
    (broker,), (queue,) = route["brokerDatas"], route["queueDatas"]
    return broker["brokerAddrs"], queue["perm"]


@contextlib.contextmanager
def registering(g1, name_server):
    """A replica at OURS, without a server behind it; the list grows with each registration."""
    options = RegisterOptions((Endpoint(*name_server.address),))
    service = BrokerService.of(MessageStore.open(g1.root), ServeOptions(g1.root, register=options))
    registration = Registration(service, options, Endpoint.parse(OURS))
    rounds: list[int] = []
    report = registration._report
    registration._report = lambda *problem: (rounds.append(1), report(*problem))[1]
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        loop.call_soon_threadsafe(registration.start)
        yield rounds
    finally:
        asyncio.run_coroutine_threadsafe(registration.stop(), loop).result(60)
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.soak  # in each run: what it registers, tests/broker/cluster/test_registration.py
def test_a_broker_of_its_own_is_consumed_by_the_real_route(g1, tmp_path, java) -> None:
    client = java(SERVER_VERSION, "JSON")
    wanted = {(queue, offset) for queue, end in ends(g1, TOPIC).items() for offset in range(end)}
    options = ("--register-as", "broker", "--broker-name", "archive", "--cluster", "Archives")
    with (
        official_name_server(tmp_path / "official") as name_server,
        rocketlens_serving(g1.root, tmp_path, "--register", name_server.text_address, *options) as ours,
    ):
        eventually(lambda: brokers(name_server.address, "archive") == {"0": text(ours)}, "our registration")
        route = asked(name_server.address, GET_ROUTE, {"topic": TOPIC})
        assert [(queue["brokerName"], queue["perm"]) for queue in route["queueDatas"]] == [("archive", 4)]
        # No producer may make topics here.
        assert ask(name_server.address, GET_ROUTE, {"topic": "TBW102"}).code == TOPIC_NOT_EXIST
        client.consume(name_server.text_address, {"own": Subscription("push", "CG_own", TOPIC)})
        eventually(partial(has_all, client, wanted, "own"), "all messages", seconds=90)
        assert sorted(client.end("own")["own"].places) == sorted(wanted)


def has_all(client, wanted, name="it") -> bool:
    return wanted <= set(client.look(name).places)


@contextlib.contextmanager
def connected(address):
    with socket.create_connection(address, WAIT_SECONDS) as connection:
        yield connection
