"""Our own client, against our server and against servers that misbehave."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from broker.cluster.client import Client, ClientError, ResponseError
from broker.endpoint import Endpoint
from broker.service.dispatcher import handles
from broker_harness import FakeStore, service_of, serving
from frame_garbage import encode_frame_prefix
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.headers import GetRouteInfoRequestHeader, QueryMessageRequestHeader, ViewMessageRequestHeader
from protocol.message import decode_message, decode_messages
from protocol.question import KeyKind, Question
from storage.store.message_store import MessageStore

pytestmark = pytest.mark.asyncio

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def talking(talk: Talk) -> AsyncIterator[Endpoint]:
    """A server that does what `talk` says with each connection."""

    tasks = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield Endpoint.of_socket(server.sockets[0].getsockname())
    finally:
        server.close()
        await asyncio.gather(*tasks)


class Scripted:
    """Answers by what it was given."""

    def __init__(self, route: bytes = b"", page: Response | None = None) -> None:
        self.route = route
        self.page = page or Response(ResponseCode.QUERY_NOT_FOUND, "nothing")
        self.asked: list[QueryMessageRequestHeader] = []

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader)
    def route_info(self, header: GetRouteInfoRequestHeader) -> Response:
        return Response(body=self.route)

    @handles(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader)
    def query(self, header: QueryMessageRequestHeader) -> Response:
        self.asked.append(header)
        return self.page

    @handles(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader)
    def view(self, header: ViewMessageRequestHeader) -> Response:
        return Response(body=b"%d" % header.offset)


async def test_it_views_queries_and_finds_brokers_on_the_recorded_store(g1_store: Path) -> None:
    async with serving(service_of(MessageStore.open(g1_store))) as server, Client() as client:
        (address,) = server.addresses
        record = await client.view(address, 6581)
        assert decode_message(record).keys == ["hotkey"]
        with pytest.raises(ResponseError, match="inside the record that starts at 6581"):
            await client.view(address, 6582, "TopicTest")
        page = await client.query(address, Question("TopicTest", "hotkey", KeyKind.KEY, maximum=5))
        assert len(list(decode_messages(page.records))) == 5
        assert page.cursor is not None
        older = await client.query(
            address, Question("TopicTest", "hotkey", KeyKind.KEY, before_physical_offset=page.cursor)
        )
        assert len(list(decode_messages(older.records))) == 35
        nothing = await client.query(address, Question("TopicTest", "nosuch", KeyKind.KEY))
        assert nothing.records == b""
        assert "searched" in nothing.remark
        assert await client.brokers_of(address, "TopicTest") == {"broker-a": address}
        with pytest.raises(ResponseError) as caught:
            await client.brokers_of(address, "NoSuchTopic")
        assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST
        assert "TopicTest" in await client.topics(address)


async def test_a_question_is_asked_in_the_words_of_every_client_version() -> None:
    scripted = Scripted()
    async with serving(service_of(FakeStore()), [scripted]) as server, Client() as client:
        await client.query(server.addresses[0], Question("T", "k", KeyKind.UNIQUE, 32, 5, 9, 77))
        (header,) = scripted.asked
    assert header == QueryMessageRequestHeader("T", "k", 32, 5, 9, "U", "77", True)


async def test_a_page_tells_what_the_server_discloses() -> None:
    fields = {"rocketlensTruncated": "true", "rocketlensCursor": "1234", "rocketlensIncomplete": "a hole"}
    scripted = Scripted(page=Response(remark="more", ext_fields=fields, body=b"records"))
    async with serving(service_of(FakeStore()), [scripted]) as server, Client() as client:
        page = await client.query(server.addresses[0], Question("T", "k", KeyKind.KEY))
    assert (page.records, page.remark, page.cursor, page.incomplete) == (b"records", "more", 1234, "a hole")


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        (b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:1","1":"10.0.0.2:2"},"brokerName":"a","cluster":"c"}]}',
         {"a": ("10.0.0.1", 1)}),
        # As fastjson writes it, and with the master gone.
        (b'{"brokerDatas":[{"brokerAddrs":{10:"10.0.0.3:3",2:"10.0.0.2:2"},"brokerName":"a","cluster":"c"},'
         b'{"brokerAddrs":{0:"[::1]:4"},"brokerName":"b","cluster":"c"}],"queueDatas":[]}',
         {"a": ("10.0.0.2", 2), "b": ("::1", 4)}),
        (b'{"brokerDatas":[{"brokerAddrs":{},"brokerName":"a","cluster":"c"}]}', {}),
        (b"{}", {}),
    ],
)  # fmt: skip
async def test_a_route_gives_each_brokers_master_or_else_its_first_slave(
    route: bytes, expected: dict[str, tuple[str, int]]
) -> None:
    async with serving(service_of(FakeStore()), [Scripted(route)]) as server, Client() as client:
        assert await client.brokers_of(server.addresses[0], "T") == expected


async def test_a_route_that_is_none_is_an_error_that_names_the_server() -> None:
    wrong = b'{"brokerDatas":[{"brokerAddrs":{"0":"x"},"brokerName":"a","cluster":"c"}]}'
    for route in (b"", b"[]", b"{", b'{"brokerDatas":5}', wrong):
        async with serving(service_of(FakeStore()), [Scripted(route)]) as server, Client() as client:
            with pytest.raises(ClientError, match=f"{server.addresses[0]} answered "):
                await client.brokers_of(server.addresses[0], "T")


async def test_nobody_listening_is_an_error_that_says_so() -> None:
    async with serving(service_of(FakeStore()), []) as server:
        (address,) = server.addresses
    async with Client() as client:
        with pytest.raises(ClientError, match=f"cannot connect to {address}: Connection refused"):
            await client.view(address, 0)


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with talking(silent) as endpoint, Client(timeout_seconds=0.05) as client:
        with pytest.raises(ClientError, match=r"did not answer within 0\.05 s"):
            await client.view(endpoint, 0)


async def test_a_server_that_hangs_up_is_an_error_and_the_next_call_connects_anew() -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)

    async with talking(rude) as endpoint, Client() as client:
        for _ in range(2):
            with pytest.raises(ClientError, match=f"{endpoint} closed the connection"):
                await client.view(endpoint, 0)


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an answer by HTTP: brokers listen on another port"),
        (encode_frame_prefix(0, 2, 0) + b"[]", ""),
        (b"\x7f\xff\xff\xff" + bytes(60), ""),
        (b"\0\0\0\x01" + bytes(4), ""),
        (encode_frame_prefix(0, 64, 0) + b'{"code":0,"flag":1,"opaque":0,"language":1180591620717411303424}', ""),
    ],
)
async def test_a_server_of_another_protocol_is_an_error_that_says_so(garbage: bytes, reason: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(garbage)
        await reader.read()

    async with talking(talk) as endpoint, Client() as client:
        with pytest.raises(ClientError, match=f"does not speak the remoting protocol: {reason}"):
            await client.view(endpoint, 0)


async def test_requests_and_answers_to_nobody_are_ignored() -> None:
    def frame(header: bytes) -> bytes:
        return encode_frame_prefix(0, len(header), 0) + header

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(frame(b'{"code":40,"opaque":0}') + frame(b'{"code":0,"flag":1,"opaque":999}'))
        writer.write(frame(b'{"code":1,"flag":1,"opaque":0,"remark":"this one"}'))
        await reader.read()

    async with talking(talk) as endpoint, Client() as client:
        with pytest.raises(ResponseError, match="this one"):
            await client.view(endpoint, 0)
