"""What a server tells name servers, and when; the official ones are asked in tests/interop/test_registration.py."""

import asyncio
import json
import logging
import zlib
from contextlib import asynccontextmanager

import pytest

from broker.cluster.registration import Registration
from broker.config import RegisterOptions, ServeOptions
from broker.endpoint import Endpoint
from broker.service.broker_service import BrokerService
from name_server import NameServer
from protocol.codes import RequestCode, ResponseCode
from protocol.errors import ConfigError
from storage.store.message_store import MessageStore
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
