"""Frames in, answers out, and what one connection may cost."""

import asyncio
import gc
import socket
import struct
import time
import weakref

import pytest

from broker.limits import Limits
from broker.net.writing import LINGER_SECONDS, close_gently
from broker.service.dispatcher import handles
from broker_harness import LOOPBACK, FakeStore, connected, service_of, serving, until
from lane_requests import LaneConnections, pull
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response, encode_request
from protocol.headers import EmptyRequestHeader, ViewMessageRequestHeader
from storage.files.waiting import Wait
from storage.store.message_store import MessageStore
from store_writer import appended, closed_store

VIEW = RequestCode.VIEW_MESSAGE_BY_ID
COLD = RequestCode.GET_MAX_OFFSET
BROKEN = RequestCode.UNREGISTER_CLIENT


class Echo:
    """Answers a view with its offset as text, or with as many bytes as a negative offset says; others cannot answer."""

    answered = 0

    @handles(VIEW, ViewMessageRequestHeader)
    def view(self, header: ViewMessageRequestHeader) -> Response:
        self.answered += 1
        return Response(body=memoryview(bytes(-header.offset)) if header.offset < 0 else b"%d" % header.offset)

    @handles(COLD, EmptyRequestHeader)
    def lookup(self, header):
        yield Wait("page")
        return Response(body=b"cold")

    @handles(BROKEN, EmptyRequestHeader)
    def broken(self, header: EmptyRequestHeader) -> Response:
        return Response(body=None)

    @handles(RequestCode.CHECK_CLIENT_CONFIG, EmptyRequestHeader)
    def broken_later(self, header):
        return self._fail()

    async def _fail(self) -> Response:
        await asyncio.sleep(0)
        raise ZeroDivisionError


def view(offset: int, opaque: int = 0, **options: bool) -> bytes:
    return encode_request(VIEW, {"offset": str(offset)}, opaque=opaque, **options)


class Held:
    """Stands for the snapshot that a look-up read from."""


async def test_a_cold_request_leaves_nothing_behind_for_a_collection() -> None:
    held: list[weakref.ref[Held]] = []

    class Reader:
        @handles(COLD, EmptyRequestHeader)
        def lookup(self, header):
            snapshot = Held()
            held.append(weakref.ref(snapshot))
            yield Wait("page")
            return Response()

    gc.collect()
    gc.disable()
    try:
        async with serving(service_of(FakeStore()), [Reader()]) as server, connected(server.addresses[0]) as client:
            await client.ask(COLD)
            await client.ask(COLD)
            assert len(held) == 2, "each went on where it waited"
            assert [snapshot() for snapshot in held] == [None] * 2
    finally:
        gc.enable()


async def test_oneway_requests_are_never_answered() -> None:
    echo = Echo()
    async with serving(service_of(FakeStore()), [echo]) as server, connected(server.addresses[0]) as client:
        for code in (RequestCode.CHECK_CLIENT_CONFIG, COLD, 999, RequestCode.SEND_MESSAGE, BROKEN):
            client.send(code, oneway=True)
        client.send(VIEW, {"offset": "x"}, oneway=True)
        client.send(VIEW, {"offset": "8"}, oneway=True)
        last = client.send(VIEW, {"offset": "9"})
        answer = await client.answer()
        assert (answer.opaque, answer.body) == (last, b"9")
        client.send(VIEW, {"offset": "10"})
        assert (await client.answer()).body == b"10"


@pytest.mark.parametrize("port", [None, 9180])
async def test_a_request_by_http_is_answered_400_with_the_port_that_speaks_it(port: int | None) -> None:
    http = None if port is None else LOOPBACK._replace(port=port)
    service = service_of(FakeStore(), http=http)
    async with serving(service, [Echo()]) as server, connected(server.addresses[0]) as client:
        client.writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000))
        answer = await client.reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert (b"--http" if port is None else b"HTTP is %d\n" % port) in answer


async def test_a_header_that_is_no_command_is_answered_and_the_connection_lives() -> None:
    not_a_command = b'{"code":1,"flag":[],"opaque":-9}'
    headers = {b"": 0, b"[]": 0, b'{"code":"x","opaque":9}': 9, not_a_command: -9, b"[" * 10**5: 0}
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        for header, opaque in headers.items():
            client.writer.write(struct.pack(">ii", 4 + len(header), len(header)) + header)
            answer = await client.answer()
            assert (answer.code, answer.opaque, bool(answer.remark)) == (ResponseCode.SYSTEM_ERROR, opaque, True)
        assert (await client.ask(VIEW, {"offset": "1"})).body == b"1"


async def test_a_client_that_does_not_read_costs_a_bounded_amount() -> None:
    echo = Echo()
    async with serving(service_of(FakeStore()), [echo]) as server, connected(server.addresses[0]) as client:
        client.writer.transport.pause_reading()
        wanted = 80
        client.writer.write(b"".join(view(-500_000, opaque=number) for number in range(wanted)))
        (connection,) = await _connections(server)
        await until(lambda: connection.session.is_held)
        # What lies in the two sockets, and one turn beyond the write buffer's limit.
        assert echo.answered < 50
        assert connection._transport.get_write_buffer_size() < 8_000_000
        client.writer.transport.resume_reading()
        for number in range(wanted):
            answer = await client.answer()
            assert (answer.opaque, len(answer.body)) == (number, 500_000)


async def _connections(server):
    await until(lambda: bool(len(server.connections)))
    return list(server.connections)


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_a_request_of_too_many_fields_is_answered_and_the_connection_lives(serialize_type: int) -> None:
    service = service_of(FakeStore(), limits=Limits(ext_fields=40))
    async with serving(service, [Echo()]) as server, connected(server.addresses[0]) as client:
        fields = {"offset": "-1"} | {f"f{number}": "x" for number in range(39)}
        assert (await client.ask(VIEW, fields, serialize_type=serialize_type)).body == b"\0"
        answer = await client.ask(VIEW, fields | {"one more": "x"}, serialize_type=serialize_type)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "41 fields, more than the limit of 40")
        assert (await client.ask(VIEW, {"offset": "-1"})).body == b"\0"


ANSWER = b"what was asked for" * 100_000
"""More than the client's socket takes, so that its end does not arrive before the client reads."""
UNREAD = bytes(1 << 20)
"""More than a loop reads at once."""


class Closing(asyncio.Protocol):
    """Answers the first bytes, reads nothing further, and closes gently."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._transport.pause_reading()
            self._transport.write(ANSWER)
            asyncio.get_running_loop().call_later(0.2, self._end)

    def _end(self) -> None:
        close_gently(self._transport, may_be_half_closed=True)
        # Another process has the core.
        time.sleep(self._seconds)


@pytest.mark.parametrize("seconds", [0, LINGER_SECONDS + 0.1])
async def test_an_answer_arrives_though_requests_are_left_unread(seconds: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Closing(seconds), "127.0.0.1", 0)

    def ask() -> bytes:
        with socket.create_connection(server.sockets[0].getsockname()) as connection:
            connection.settimeout(60)
            connection.sendall(UNREAD)
            time.sleep(LINGER_SECONDS + 1)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    async with server:
        assert await asyncio.to_thread(ask) == ANSWER


async def test_who_reads_late_gets_what_was_written_for_him(tmp_path, lane_is_off) -> None:
    """Two clients pull different messages, 200 KB each time; one reads only when the other has all of his."""
    messages = (appended("T", bytes([number]) * 50_000) for number in range(40))
    writer = closed_store(tmp_path / "store", *messages, segment_size=1 << 22)
    service = service_of(MessageStore.open(writer.root))
    frames = [pull("T", 0, number, maxMsgNums=4) for number in range(36)]
    plain = LaneConnections(service, has_lane=False)
    expected = [(await plain.answer([frame]))[0] for frame in frames]
    async with (
        serving(service) as server,
        connected(server.addresses[0]) as late,
        connected(server.addresses[0]) as quick,
    ):
        late.writer.transport.pause_reading()
        for _ in range(6):
            late.writer.write(b"".join(frames[:18]))
        await until(lambda: any(connection.session.is_held for connection in server.connections))
        for _ in range(4):
            quick.writer.write(b"".join(frames[18:]))
            for wanted in expected[18:]:
                assert await quick.reader.readexactly(len(wanted)) == wanted
        late.writer.transport.resume_reading()
        for _ in range(6):
            for wanted in expected[:18]:
                assert await asyncio.wait_for(late.reader.readexactly(len(wanted)), 60) == wanted
        if not lane_is_off:
            assert sum(server.lane.answered.values()) > 100
