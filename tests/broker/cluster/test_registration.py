"""What a server tells name servers and when, our own client, and several stores in one server."""

import asyncio
import json
import logging
import zlib
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from asking import Asker, FakeConnection
from broker.cluster.client import Client, ClientError
from broker.cluster.registration import Registration
from broker.cluster.several_stores import describe_names, folder_of, options_of_stores, settle_names
from broker.config import RegisterOptions, ServeOptions
from broker.endpoint import Endpoint
from broker.service.broker_service import BrokerService
from broker.service.dispatcher import handles
from broker.service.served_brokers import ServedBrokers
from broker_harness import FakeStore, service_of, serving
from frame_garbage import encode_frame_prefix
from name_server import NameServer
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.errors import ConfigError
from protocol.headers import GetRouteInfoRequestHeader
from storage.store.message_store import MessageStore
from storage.store.store_state import StoreIdentity
from store_writer import appended, closed_store

ADDRESS = Endpoint("127.0.0.1", 10911)
MASTER = (
    b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"%s},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":true,"zoneName":"z"}},"clusterAddrTable":{}}'
)


@asynccontextmanager
async def registered(store, monkeypatch, prepare=lambda _: None, **more):
    monkeypatch.setattr("broker.cluster.registration.REPEAT_SECONDS", 0.05)
    monkeypatch.setattr("broker.cluster.registration.RETRY_SECONDS", 0.01)
    name_server = NameServer()
    prepare(name_server)
    options = RegisterOptions((await name_server.start(),), **more)
    service = BrokerService.of(MessageStore.open(store), ServeOptions(store, register=options))
    registration = Registration(service, options, ADDRESS)
    registration.start()
    try:
        yield name_server, registration
    finally:
        await registration.stop()
        name_server.close()


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


async def test_a_replica_registers_again_and_again_without_topics_and_takes_itself_off(g1_store, monkeypatch) -> None:
    async with registered(g1_store, monkeypatch) as (name_server, _):
        await until(lambda: len(name_server.received(RequestCode.REGISTER_BROKER)) >= 3)
        fields, body = name_server.received(RequestCode.REGISTER_BROKER)[0]
    entry = {"brokerName": "broker-a", "brokerAddr": str(ADDRESS), "brokerId": "990001"}
    entry["clusterName"] = "DefaultCluster"
    more = {"haServerAddr": "127.0.0.1:10912", "heartbeatTimeoutMillis": "120000", "compressed": "false"}
    assert fields == entry | more | {"bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
    assert json.loads(body)["topicConfigSerializeWrapper"]["topicConfigTable"] == {}
    assert [fields for fields, _ in name_server.received(RequestCode.UNREGISTER_BROKER)] == [entry]
    assert name_server.heard[-1][0] == RequestCode.UNREGISTER_BROKER


@pytest.mark.parametrize("is_alone", [True, False])
async def test_one_that_may_stand_in_for_the_master_only_says_that_it_lives(g1_store, monkeypatch, is_alone) -> None:
    """With the master too, which may go at any time."""

    def listed(name_server: NameServer) -> None:
        name_server.cluster = MASTER % b',990001:"127.0.0.1:10911"'
        if is_alone:
            name_server.cluster = name_server.cluster.replace(b'0:"10.0.0.1:10911",', b"")

    async with registered(g1_store, monkeypatch, listed) as (name_server, registration):
        await until(lambda: len(name_server.received(RequestCode.QUERY_DATA_VERSION)) >= 2)
        assert name_server.received(RequestCode.REGISTER_BROKER) == []
        fields, _ = name_server.received(RequestCode.QUERY_DATA_VERSION)[0]
        assert fields == registration.entry.fields()
        # The name server has forgotten us.
        name_server.cluster = MASTER % b""
        await until(lambda: bool(name_server.received(RequestCode.REGISTER_BROKER)))
    assert name_server.received(RequestCode.UNREGISTER_BROKER)


async def test_an_id_that_somebody_has_is_left_to_him_and_taken_when_he_goes(g1_store, monkeypatch, caplog) -> None:
    def taken(name_server: NameServer) -> None:
        name_server.cluster = MASTER % b',990001:"10.0.0.9:10911"'

    with caplog.at_level(logging.INFO):
        async with registered(g1_store, monkeypatch, taken) as (name_server, _):
            await until(lambda: len(name_server.received(RequestCode.GET_BROKER_CLUSTER_INFO)) >= 3)
            assert name_server.received(RequestCode.REGISTER_BROKER) == []
            warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
            (warning,) = warnings
            assert "has 10.0.0.9:10911 as broker broker-a with id 990001 already" in warning
            name_server.cluster = MASTER % b""
            registered_as = "as broker broker-a with id 990001 at 127.0.0.1:10911"
            await until(lambda: any(registered_as in record.message for record in caplog.records))
    assert name_server.received(RequestCode.REGISTER_BROKER)


async def test_a_name_server_that_comes_back_is_told_at_once(g1_store, monkeypatch) -> None:
    async with registered(g1_store, monkeypatch) as (name_server, registration):
        monkeypatch.setattr("broker.cluster.registration.REPEAT_SECONDS", 3600.0)
        await until(lambda: registration.count == 1)
        name_server.register_code = ResponseCode.SYSTEM_ERROR
        name_server.heard.clear()
        for writer in name_server.writers:
            writer.transport.abort()
        await until(lambda: bool(name_server.received(RequestCode.REGISTER_BROKER)))
        assert registration.count == 0
        name_server.register_code = ResponseCode.SUCCESS
        await until(lambda: registration.count == 1)


async def test_a_broker_of_its_own_has_the_stores_topics_to_be_read(g1_store, monkeypatch) -> None:
    async with registered(g1_store, monkeypatch, is_replica=False) as (name_server, _):
        await until(lambda: bool(name_server.received(RequestCode.REGISTER_BROKER)))
        fields, body = name_server.received(RequestCode.REGISTER_BROKER)[0]
    topics = json.loads(body)["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert fields["brokerId"] == "0"
    assert {"BulkTopic", "TopicTest", "broker-a", "DefaultCluster"} <= topics.keys()
    assert "TBW102" not in topics
    assert {topic["perm"] for topic in topics.values()} == {4}
    recorded = json.loads((g1_store / "config" / "topics.json").read_text())["topicConfigTable"]
    assert {**topics["BulkTopic"], "perm": recorded["BulkTopic"]["perm"]} == recorded["BulkTopic"]


def topics_of(store, **names) -> dict[str, dict[str, object]]:
    options = RegisterOptions((ADDRESS,), is_replica=False)
    service = BrokerService.of(MessageStore.open(store), ServeOptions(store, register=options, **names))
    body = Registration(service, options, ADDRESS)._encoded_body()
    topics: dict[str, dict[str, object]] = json.loads(body)["topicConfigSerializeWrapper"]["topicConfigTable"]
    return topics


def test_one_topic_alone_is_never_registered(tmp_path) -> None:
    """A name server refuses a broker that it does not know and that has but one (remoting-protocol §5.3)."""
    writer = closed_store(tmp_path / "store", appended("same"))
    (writer.root / "config" / "topics.json").unlink()
    topics = topics_of(writer.root, broker_name="same", cluster="same")
    assert topics.keys() == {"same", "same_REPLY_TOPIC", "DefaultHeartBeatSyncerTopic"}
    assert {topic["perm"] for topic in topics.values()} == {4}


@pytest.mark.parametrize(
    ("options", "more", "says"),
    [
        (RegisterOptions((ADDRESS,), broker_id=1), {}, "--register-id 1: expected 100 or more"),
        (RegisterOptions((ADDRESS,), is_replica=False), {}, "needs a --broker-name of its own"),
        (RegisterOptions((ADDRESS,)), {"listen": (Endpoint("0.0.0.0", 1),)}, "clients cannot connect to 0.0.0.0:1"),
        (RegisterOptions((ADDRESS,)), {"listen": (Endpoint("::", 1),)}, "clients cannot connect to [::]:1"),
        (RegisterOptions((Endpoint("h", 0),)), {}, "no name server listens on port 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, more, says) -> None:
    with pytest.raises(ConfigError) as raised:
        ServeOptions(tmp_path, register=options, **more).check()
    assert says in str(raised.value)


class Routed:
    def __init__(self, route: bytes) -> None:
        self._route = route

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader)
    def route_info(self, header: GetRouteInfoRequestHeader) -> Response:
        return Response(body=self._route)


async def test_a_route_that_is_none_is_an_error_that_names_the_server() -> None:
    wrong = b'{"brokerDatas":[{"brokerAddrs":{"0":"x"},"brokerName":"a","cluster":"c"}]}'
    for route in (b"", b"[]", b"{", b'{"brokerDatas":5}', wrong):
        async with serving(service_of(FakeStore()), [Routed(route)]) as server, Client() as client:
            with pytest.raises(ClientError, match=f"{server.addresses[0]} answered "):
                await client.brokers_of(server.addresses[0], "T")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (None, r"did not answer within 0\.5 s"),
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the remoting protocol: an answer by HTTP"),
        (encode_frame_prefix(0, 2, 0) + b"[]", "does not speak the remoting protocol"),
        (b"\x7f\xff\xff\xff" + bytes(60), "does not speak the remoting protocol"),
        (b"\0\0\0\x01" + bytes(4), "does not speak the remoting protocol"),
        (
            encode_frame_prefix(0, 64, 0) + b'{"code":0,"flag":1,"opaque":0,"language":1180591620717411303424}',
            "does not speak the remoting protocol",
        ),
    ],
)
async def test_a_server_that_says_nothing_or_something_else_is_an_error_that_says_so(said, reason) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        if said is None:
            await reader.read()
        else:
            writer.write(said)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    endpoint = Endpoint.of_socket(server.sockets[0].getsockname())
    async with server, Client(timeout_seconds=0.5 if said is None else 60) as client:
        with pytest.raises(ClientError, match=f"{endpoint} {reason}"):
            await client.view(endpoint, 0)


A, B, C = Path("/data/a/store"), Path("/data/b/store"), Path("/data/c/store")
NAME_SERVER = Endpoint("10.0.0.1", 9876)


def options_of(*stores, names=(), **options) -> tuple[ServeOptions, ...]:
    return options_of_stores(stores, names, ServeOptions(stores[0], **options))


def named(*brokers, **options) -> list[tuple[str | None, str | None]]:
    identities = [StoreIdentity(cluster, name) for name, cluster in brokers]
    settled = settle_names(options_of(*(A, B, C)[: len(brokers)], **options), identities)
    return [(each.broker_name, each.cluster) for each in settled]


def test_a_stores_folder_depends_neither_on_the_stores_beside_it_nor_on_their_order() -> None:
    first, second = options_of(A, B, state_directory=Path("/state"))
    assert first.state_directory == Path("/state") / folder_of(A)
    assert folder_of(A).startswith("a-store-")
    turned = options_of(C, B, A, state_directory=Path("/state"))[1:]
    assert [each.state_directory for each in turned] == [second.state_directory, first.state_directory]


@pytest.mark.parametrize(
    ("stores", "options", "problem"),
    [
        ((A, A), {}, "/data/a/store and /data/a/store are one store: give it once"),
        ((A, A / ".." / "store"), {}, "are one store"),
        ((A, B), {"names": ("one", "one")}, "--broker-name one is given twice"),
        ((A, B), {"names": ("only-one",)}, "1 name for 2 stores; give one each"),
        ((A,), {"names": ("one", "two")}, "2 names for 1 store;"),
        ((A, B), {"commit_log_directories": (Path("/log"),)}, "--commit-log is for one store"),
        ((A, B), {"state_directory": B / "state"}, "lies inside /data/b/store"),
        ((A, B), {"listen": (Endpoint("h", 65530),)}, "store 2 would need port 65540"),
        ((A, B), {"listen": (Endpoint("h", 100), Endpoint("h", 110))}, "would both be at h:110"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_sentence(stores, options, problem) -> None:
    with pytest.raises(ConfigError, match=problem):
        options_of(*stores, **options)


def test_of_two_brokers_with_one_name_the_later_gets_a_number_unless_names_are_told() -> None:
    found = named(("broker-a", "C"), ("broker-a", "C"), ("broker-a-2", "C"))
    assert [name for name, _ in found] == ["broker-a", "broker-a-3", "broker-a-2"]
    found = named(("broker-a", "C"), ("broker-a", "C"), names=("today", "yesterday"))
    assert [name for name, _ in found] == ["today", "yesterday"]


def test_a_line_says_what_each_store_is_called_and_what_its_own_names_are() -> None:
    identities = [StoreIdentity("East", "broker-a"), StoreIdentity("West", "broker-a")]
    described = list(describe_names(settle_names(options_of(A, B), identities), identities))
    its_own = "(its own name is broker-a, its own cluster is West)"
    assert described == [
        f"{A} is broker broker-a of cluster East",
        f"{B} is broker broker-a-2 of cluster East {its_own}",
    ]


def test_real_name_servers_are_told_no_name_that_was_made_up() -> None:
    register = RegisterOptions((NAME_SERVER,))
    with pytest.raises(ConfigError, match=r"/data/b/store is not the only store of broker broker-a; give each a"):
        named(("broker-a", "C"), ("broker-a", "C"), register=register)
    with pytest.raises(ConfigError, match=r"/data/b/store is of cluster West, not of East"):
        named(("broker-a", "East"), ("broker-b", "West"), register=register)
    assert len(named(("broker-a", "C"), ("broker-b", "C"), register=register)) == 2


def test_another_store_is_where_its_port_is_as_the_client_reached_this_one(tmp_path: Path) -> None:
    roots = []
    for name in ("First", "Second"):
        writer = closed_store(tmp_path / name, appended(name), appended("Shared"))
        roots.append(writer.root)
    advertised, ports = {"advertise": Endpoint("broker.example", 40911)}, ((10911,), (10921,))
    cases = [
        ({}, ports, Endpoint("10.0.0.7", 10921), "10.0.0.7:10911"),
        ({}, ports, Endpoint("::1", 10921), "[::1]:10911"),
        ({}, ports, Endpoint("proxy", 30921), "proxy:30911"),  # one that keeps the distances
        (advertised, ports, Endpoint("10.0.0.7", 10921), "broker.example:40911"),
        ({}, ((40001, 40002), (50001, 50007)), Endpoint("127.0.0.1", 50007), "127.0.0.1:40002"),  # free ones
    ]
    for options, each, reached, told in cases:
        first, second = Asker(roots[0], broker_name="a", **options), Asker(roots[1], broker_name="b")
        second.serve_with(ServedBrokers([first.service, second.service], each))
        second.connection = FakeConnection(reached)
        for topic, brokers in (("First", {"a": told}), ("Shared", {"a": told, "b": str(reached)})):
            route = second.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            assert {one["brokerName"]: one["brokerAddrs"]["0"] for one in route["brokerDatas"]} == brokers
