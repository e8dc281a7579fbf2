"""What a server tells name servers, and when; the official ones are asked in tests/interop/test_registration.py."""

import asyncio
import json
import logging
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.broker_service import BrokerService
from broker.cluster.registration import Registration
from broker.config import Endpoint, RegisterOptions, ServeOptions
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, decode_command, encode_response, ext_fields_of
from protocol.errors import ConfigError
from protocol.frame import FrameDecoder
from storage.message_store import MessageStore

ADDRESS = Endpoint("127.0.0.1", 10911)
NOBODY = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
MASTER = (
    b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"%s},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":true,"zoneName":"z"}},"clusterAddrTable":{}}'
)


class NameServer:
    """Notes what it is told, and answers as it is set to."""

    def __init__(self) -> None:
        self.cluster = NOBODY
        self.register_code = ResponseCode.SUCCESS
        self.heard: list[tuple[int, dict[str, str], bytes]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> Endpoint:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return Endpoint.of_socket(self._server.sockets[0].getsockname())

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self.writers:
            writer.transport.abort()

    def told(self, code: int) -> list[tuple[dict[str, str], bytes]]:
        return [(fields, body) for heard, fields, body in self.heard if heard == code]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        self.writers.append(writer)
        while data := await reader.read(65536):
            for frame in decoder.feed(data):
                command = decode_command(frame)
                self.heard.append((command.code, ext_fields_of(command), bytes(command.body)))
                answer = self._answer(command)
                writer.write(encode_response(command, answer) + bytes(answer.body))

    def _answer(self, command: Command) -> Response:
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return Response(body=self.cluster)
        if command.code == RequestCode.REGISTER_BROKER:
            return Response(self.register_code, "register broker failed")
        return Response()


@asynccontextmanager
async def registered(
    store: Path, monkeypatch: pytest.MonkeyPatch, prepare: Callable[[NameServer], None] = lambda _: None, **more: object
) -> AsyncIterator[tuple[NameServer, Registration]]:
    """A registration with a name server, its pauses made short."""
    monkeypatch.setattr("broker.cluster.registration.REPEAT_SECONDS", 0.05)
    monkeypatch.setattr("broker.cluster.registration.RETRY_SECONDS", 0.01)
    name_server = NameServer()
    prepare(name_server)
    options = RegisterOptions((await name_server.start(),), **more)  # type: ignore[arg-type]
    service = BrokerService.of(MessageStore.open(store), ServeOptions(store, register=options))
    registration = Registration(service, options, ADDRESS)
    registration.start()
    try:
        yield name_server, registration
    finally:
        await registration.stop()
        name_server.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


@pytest.mark.asyncio
async def test_a_replica_registers_again_and_again_without_topics_and_takes_itself_off(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with registered(g1_store, monkeypatch) as (name_server, _):
        await until(lambda: len(name_server.told(RequestCode.REGISTER_BROKER)) >= 3)
        fields, body = name_server.told(RequestCode.REGISTER_BROKER)[0]
    entry = {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:10911",
        "clusterName": "DefaultCluster",
        "brokerId": "990001",
    }
    assert fields == entry | {
        "haServerAddr": "127.0.0.1:10912",
        "heartbeatTimeoutMillis": "120000",
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        "enableActingMaster": "false",
    }
    assert json.loads(body)["topicConfigSerializeWrapper"]["topicConfigTable"] == {}
    assert [fields for fields, _ in name_server.told(RequestCode.UNREGISTER_BROKER)] == [entry]
    assert name_server.heard[-1][0] == RequestCode.UNREGISTER_BROKER


@pytest.mark.asyncio
async def test_what_the_master_set_for_all_is_set_again(g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_master(name_server: NameServer) -> None:
        name_server.cluster = MASTER % b""

    async with registered(g1_store, monkeypatch, with_master) as (name_server, _):
        await until(lambda: bool(name_server.told(RequestCode.REGISTER_BROKER)))
        fields, _ = name_server.told(RequestCode.REGISTER_BROKER)[0]
        assert (fields["enableActingMaster"], fields["__ZONE_NAME"]) == ("true", "z")


@pytest.mark.asyncio
async def test_an_id_that_somebody_has_is_left_to_him_and_taken_when_he_goes(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def taken(name_server: NameServer) -> None:
        name_server.cluster = MASTER % b',990001:"10.0.0.9:10911"'

    with caplog.at_level(logging.INFO):
        async with registered(g1_store, monkeypatch, taken) as (name_server, _):
            await until(lambda: len(name_server.told(RequestCode.GET_BROKER_CLUSTER_INFO)) >= 3)
            assert name_server.told(RequestCode.REGISTER_BROKER) == []
            warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
            (warning,) = warnings
            assert "has 10.0.0.9:10911 as broker broker-a with id 990001 already" in warning
            name_server.cluster = MASTER % b',990001:"127.0.0.1:10911"'
            registered_as = "as broker broker-a with id 990001 at 127.0.0.1:10911"
            await until(lambda: any(registered_as in record.message for record in caplog.records))
    assert name_server.told(RequestCode.REGISTER_BROKER)


@pytest.mark.asyncio
async def test_one_that_was_never_registered_takes_nothing_off(g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(name_server: NameServer) -> None:
        name_server.register_code = ResponseCode.SYSTEM_ERROR

    async with registered(g1_store, monkeypatch, refusing) as (name_server, _):
        await until(lambda: len(name_server.told(RequestCode.REGISTER_BROKER)) >= 2)
    assert name_server.told(RequestCode.UNREGISTER_BROKER) == []


@pytest.mark.parametrize("answer", [b"", b"nonsense", b"[]", b'{"brokerAddrTable":3}'])
@pytest.mark.asyncio
async def test_an_answer_that_is_none_is_asked_for_again(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    def confused(name_server: NameServer) -> None:
        name_server.cluster = answer

    async with registered(g1_store, monkeypatch, confused) as (name_server, _):
        await until(lambda: len(name_server.told(RequestCode.GET_BROKER_CLUSTER_INFO)) >= 2)
        assert name_server.told(RequestCode.REGISTER_BROKER) == []
        name_server.cluster = NOBODY
        await until(lambda: bool(name_server.told(RequestCode.REGISTER_BROKER)))


@pytest.mark.asyncio
async def test_a_name_server_that_comes_back_is_told_at_once(g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with registered(g1_store, monkeypatch) as (name_server, registration):
        monkeypatch.setattr("broker.cluster.registration.REPEAT_SECONDS", 3600.0)
        await until(lambda: bool(name_server.told(RequestCode.REGISTER_BROKER)))
        name_server.heard.clear()
        for writer in name_server.writers:
            writer.transport.abort()
        await until(lambda: bool(name_server.told(RequestCode.REGISTER_BROKER)))
        assert registration.entry.broker_id == 990001


@pytest.mark.asyncio
async def test_a_broker_of_its_own_has_the_stores_topics_to_be_read(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with registered(g1_store, monkeypatch, is_replica=False) as (name_server, _):
        await until(lambda: bool(name_server.told(RequestCode.REGISTER_BROKER)))
        fields, body = name_server.told(RequestCode.REGISTER_BROKER)[0]
    topics = json.loads(body)["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert fields["brokerId"] == "0"
    assert {"BulkTopic", "TopicTest", "broker-a", "DefaultCluster"} <= topics.keys()
    assert "TBW102" not in topics
    assert {topic["perm"] for topic in topics.values()} == {4}
    recorded = json.loads((g1_store / "config" / "topics.json").read_text())["topicConfigTable"]
    assert {**topics["BulkTopic"], "perm": recorded["BulkTopic"]["perm"]} == recorded["BulkTopic"]


@pytest.mark.parametrize(
    ("options", "more", "says"),
    [
        (RegisterOptions((ADDRESS,), broker_id=1), {}, "--register-id 1: expected 100 or more"),
        (RegisterOptions((ADDRESS,), is_replica=False), {}, "needs a --broker-name of its own"),
        (RegisterOptions((ADDRESS,)), {"listen": (Endpoint("0.0.0.0", 1),)}, "clients cannot dial 0.0.0.0:1"),
        (RegisterOptions((ADDRESS,)), {"listen": (Endpoint("::", 1),)}, "clients cannot dial [::]:1"),
        (RegisterOptions((Endpoint("h", 0),)), {}, "no name server listens on port 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, options: RegisterOptions, more: dict[str, tuple[Endpoint, ...]], says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        ServeOptions(tmp_path, register=options, **more).check()  # type: ignore[arg-type]
    assert says in str(raised.value)


def test_a_wildcard_is_no_matter_where_an_address_is_told(tmp_path: Path) -> None:
    listen = (Endpoint("0.0.0.0", 1),)
    ServeOptions(tmp_path, listen=listen, advertise=ADDRESS, register=RegisterOptions((ADDRESS,))).check()
    ServeOptions(tmp_path, listen=listen).check()
