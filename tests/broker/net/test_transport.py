"""Frames in, answers out, and what one connection may cost."""

import asyncio
import gc
import logging
import struct
import threading
import weakref
from collections.abc import Awaitable
from contextlib import AsyncExitStack

import httpx
import pytest

from broker.limits import MIB, Limits
from broker.net.transport import SessionTransport
from broker.server import Server
from broker.service.dispatcher import handles
from broker_harness import LOOPBACK, FakeStore, connected, service_of, serving, until
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response, encode_request, ext_fields_of
from protocol.headers import EmptyRequestHeader, ViewMessageRequestHeader
from storage.files.waiting import Lookup, Wait

pytestmark = pytest.mark.asyncio

VIEW = RequestCode.VIEW_MESSAGE_BY_ID
SLOW = RequestCode.HEART_BEAT
COLD = RequestCode.GET_MAX_OFFSET
BROKEN = RequestCode.UNREGISTER_CLIENT


class Echo:
    """Answers a view with its offset as text, or with as many bytes as a negative offset says."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.cold = threading.Event()
        self.answered = 0
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()

    @handles(VIEW, ViewMessageRequestHeader)
    def view(self, header: ViewMessageRequestHeader) -> Response:
        self.answered += 1
        return Response(body=memoryview(bytes(-header.offset)) if header.offset < 0 else b"%d" % header.offset)

    @handles(SLOW, EmptyRequestHeader)
    def slow(self, header: EmptyRequestHeader) -> Awaitable[Response]:
        return self._when_released()

    async def _when_released(self) -> Response:
        await self.release.wait()
        self.answered += 1
        return Response(body=b"slow")

    @handles(COLD, EmptyRequestHeader)
    def lookup(self, header: EmptyRequestHeader) -> Lookup[Response]:
        yield Wait("page")
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        assert self.cold.wait(60)
        with self._lock:
            self.at_once -= 1
        return Response(body=b"cold")

    @handles(BROKEN, EmptyRequestHeader)
    def broken(self, header: EmptyRequestHeader) -> Response:
        return Response(body=None)  # type: ignore[arg-type]

    @handles(RequestCode.CHECK_CLIENT_CONFIG, EmptyRequestHeader)
    def broken_later(self, header: EmptyRequestHeader) -> Awaitable[Response]:
        return self._fail()

    async def _fail(self) -> Response:
        await asyncio.sleep(0)
        raise ZeroDivisionError


def view(offset: int, opaque: int = 0, **options: bool) -> bytes:
    return encode_request(VIEW, {"offset": str(offset)}, opaque=opaque, **options)  # type: ignore[arg-type]


class Held:
    """Stands for the snapshot that a look-up read from."""


async def test_a_cold_request_leaves_nothing_behind_for_a_collection() -> None:
    held: list[weakref.ref[Held]] = []

    class Reader:
        @handles(COLD, EmptyRequestHeader)
        def lookup(self, header: EmptyRequestHeader) -> Lookup[Response]:
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
    echo.release.set()
    echo.cold.set()
    async with serving(service_of(FakeStore()), [echo]) as server, connected(server.addresses[0]) as client:
        for code in (SLOW, COLD, 999, RequestCode.SEND_MESSAGE, BROKEN):
            client.send(code, oneway=True)
        client.send(VIEW, {"offset": "x"}, oneway=True)
        client.send(VIEW, {"offset": "8"}, oneway=True)
        last = client.send(VIEW, {"offset": "9"})
        answer = await client.answer()
        assert (answer.opaque, answer.body) == (last, b"9")
        client.send(VIEW, {"offset": "10"})
        assert (await client.answer()).body == b"10"


async def test_responses_from_a_client_are_ignored() -> None:
    header = b'{"code":33,"extFields":{"offset":"1"},"flag":1,"opaque":77}'
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        client.writer.write(struct.pack(">ii", 4 + len(header), len(header)) + header)
        assert (await client.ask(VIEW, {"offset": "2"})).body == b"2"


async def test_answers_before_a_bad_frame_go_out_then_the_connection_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        with caplog.at_level(logging.WARNING):
            client.writer.write(view(1, opaque=1) + view(2, opaque=2) + b"GET / HTTP/1.1\r\n\r\n" + view(3, opaque=3))
            assert [(await client.answer()).opaque for _ in range(2)] == [1, 2]
            assert await client.is_closed_by_the_server()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert lines[0].startswith("127.0.0.1:")
    assert "a request by HTTP, and this is the remoting port" in lines[0]


@pytest.mark.parametrize("port", [None, 9180])
async def test_a_request_by_http_is_answered_400_with_the_port_that_speaks_it(port: int | None) -> None:
    http = None if port is None else LOOPBACK._replace(port=port)
    async with serving(service_of(FakeStore(), http=http), [Echo()]) as server, httpx.AsyncClient() as client:
        answer = await client.post(f"http://{server.addresses[0]}/", content=bytes(1_000_000))
        assert answer.status_code == 400
        assert ("--http" if port is None else f"HTTP is {port}\n") in answer.text


async def test_a_header_that_is_no_command_is_answered_and_the_connection_lives() -> None:
    headers = {
        b"": 0,
        b"[]": 0,
        b'{"code":"x","opaque":9}': 9,
        b'{"code":1,"flag":[],"opaque":-9}': -9,
        b"[" * 10**5: 0,
    }
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        for header, opaque in headers.items():
            client.writer.write(struct.pack(">ii", 4 + len(header), len(header)) + header)
            answer = await client.answer()
            assert (answer.code, answer.opaque, bool(answer.remark)) == (ResponseCode.SYSTEM_ERROR, opaque, True)
        assert (await client.ask(VIEW, {"offset": "1"})).body == b"1"


async def test_an_answer_that_fails_is_answered_as_an_error() -> None:
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        for code in (BROKEN, RequestCode.CHECK_CLIENT_CONFIG):
            answer = await client.ask(code)
            assert (answer.code, ext_fields_of(answer)) == (ResponseCode.SYSTEM_ERROR, {})
        assert (await client.ask(VIEW, {"offset": "1"})).body == b"1"


async def test_a_client_that_does_not_read_costs_a_bounded_amount() -> None:
    echo = Echo()
    async with serving(service_of(FakeStore()), [echo]) as server, connected(server.addresses[0]) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        wanted = 150
        client.writer.write(b"".join(view(-1_000_000, opaque=number) for number in range(wanted)))
        (connection,) = await _connections(server)
        await until(lambda: connection.session.is_held)
        # What lies in the two sockets, and one turn beyond the write buffer's limit.
        assert echo.answered < 50
        assert connection._transport.get_write_buffer_size() < 8_000_000
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(wanted):
            answer = await client.answer()
            assert (answer.opaque, len(answer.body)) == (number, 1_000_000)


async def _connections(server: Server) -> list[SessionTransport]:
    await until(lambda: bool(len(server.connections)))
    return list(server.connections)


async def _connected(server: Server, count: int) -> None:
    await until(lambda: len(server.connections) == count)


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_a_request_of_too_many_fields_is_answered_and_the_connection_lives(serialize_type: int) -> None:
    service = service_of(FakeStore(), limits=Limits(ext_fields=40))
    async with serving(service, [Echo()]) as server, connected(server.addresses[0]) as client:
        fields = {"offset": "-1"} | {f"f{number}": "x" for number in range(39)}
        assert (await client.ask(VIEW, fields, serialize_type=serialize_type)).body == b"\0"
        answer = await client.ask(VIEW, fields | {"one more": "x"}, serialize_type=serialize_type)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "41 fields, more than the limit of 40")
        assert (await client.ask(VIEW, {"offset": "-1"})).body == b"\0"


async def test_connections_beyond_the_limit_are_closed_and_the_others_served() -> None:
    service = service_of(FakeStore(), limits=Limits(connections=2))
    async with serving(service, [Echo()]) as server:
        async with connected(server.addresses[0]) as first, connected(server.addresses[0]) as second:
            await _connected(server, 2)
            async with connected(server.addresses[0]) as third:
                assert await third.is_closed_by_the_server()
            for client in (first, second):
                assert (await client.ask(VIEW, {"offset": "-2"})).body == bytes(2)
        await _connected(server, 0)
        async with connected(server.addresses[0]) as again:
            assert (await again.ask(VIEW, {"offset": "-3"})).body == bytes(3)


async def test_clients_that_read_nothing_are_closed_when_they_are_too_many_bytes_or_too_slow() -> None:
    now = 1000.0
    service = service_of(FakeStore(), limits=Limits(unsent_bytes=6 * MIB, unsent_bytes_per_connection=MIB))
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(service, [Echo()]))
        server.budget._clock_seconds = lambda: now
        clients = [await stack.enter_async_context(connected(server.addresses[0])) for _ in range(8)]
        for client in clients:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.writer.write(b"".join(encode_request(VIEW, {"offset": "-2000000"}, opaque=n) for n in range(8)))
        await until(lambda: 0 < len(server.connections) < 8)
        server._sweep_budget()
        assert server.budget.unsent <= 6 * MIB
        await until(lambda: any(each.session.is_held for each in server.connections))
        now += 61
        server._sweep_budget()
        await until(lambda: not any(each.is_open and each.session.is_held for each in server.connections))


async def test_a_client_that_is_gone_gives_back_what_it_held() -> None:
    async with serving(service_of(FakeStore()), [Echo()]) as server:
        budget = server.budget
        for _ in range(3):
            async with connected(server.addresses[0]) as client:
                client.send(SLOW, body=bytes(1000))
                client.writer.write(struct.pack(">ii", 100_000, 100) + bytes(50_000))
                await until(lambda: budget.in_flight > 0 and budget.received > 50_000)
                client.reset()
            await until(lambda: not server.connections)
            await until(lambda: budget.in_flight == 0)
            assert budget.received == 0
