"""Frames in, answers out, and what one connection may cost."""

import asyncio
import gc
import logging
import struct
import threading
import weakref
from collections.abc import Awaitable

import httpx
import pytest

from broker.limits import Limits
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


async def test_all_answers_to_one_read_come_in_order() -> None:
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        client.writer.write(b"".join(view(number, opaque=number) for number in range(500)))
        for number in range(500):
            answer = await client.answer()
            assert (answer.opaque, answer.body, answer.flag, answer.version) == (number, b"%d" % number, 1, 479)


async def test_a_frame_may_come_byte_by_byte() -> None:
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        for byte in view(5):
            client.writer.write(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert (await client.answer()).body == b"5"


async def test_long_and_short_answers_of_one_read_keep_their_bytes() -> None:
    sizes = [10, 70_000, 3, 1_000_000, 65_536, 1]
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        client.writer.write(b"".join(view(-size) for size in sizes))
        assert [len((await client.answer()).body) for _ in sizes] == sizes


async def test_a_request_that_waits_does_not_delay_the_next() -> None:
    echo = Echo()
    async with serving(service_of(FakeStore()), [echo]) as server, connected(server.addresses[0]) as client:
        slow = client.send(SLOW)
        quick = client.send(VIEW, {"offset": "1"})
        assert (await client.answer()).opaque == quick
        echo.release.set()
        answer = await client.answer()
        assert (answer.opaque, answer.body) == (slow, b"slow")


async def test_a_cold_request_does_not_delay_the_next() -> None:
    echo = Echo()
    async with serving(service_of(FakeStore()), [echo]) as server, connected(server.addresses[0]) as client:
        cold = client.send(COLD)
        quick = client.send(VIEW, {"offset": "1"})
        assert (await client.answer()).opaque == quick
        echo.cold.set()
        answer = await client.answer()
        assert (answer.opaque, answer.body) == (cold, b"cold")


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


async def test_a_binary_request_is_answered_in_binary() -> None:
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        answer = await client.ask(VIEW, {"offset": "3"}, serialize_type=1)
        assert (answer.serialize_type, answer.body) == (1, b"3")
        assert (await client.ask(VIEW, {"offset": "4"})).serialize_type == 0


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


async def test_what_waits_is_answered_before_a_bad_frame_closes_the_connection() -> None:
    echo = Echo()
    async with serving(service_of(FakeStore()), [echo]) as server, connected(server.addresses[0]) as client:
        client.send(COLD)
        client.writer.write(b"\x7f" * 8)
        await until(lambda: echo.at_once == 1)
        echo.cold.set()
        assert (await client.answer()).body == b"cold"
        assert await client.is_closed_by_the_server()


@pytest.mark.parametrize(
    ("header", "opaque"),
    [
        (b"", 0),
        (b"{", 0),
        (b"[]", 0),
        (b'{"opaque":9}', 9),
        (b'{"code":"x","opaque":9}', 9),
        (b'{"code":1,"flag":[],"opaque":-9}', -9),
        (b'{"code":1,"opaque":99999999999}', 0),
        (b"\xff\xfe", 0),
        (b"[" * 100_000, 0),
    ],
)
async def test_a_header_that_is_no_command_is_answered_and_the_connection_lives(header: bytes, opaque: int) -> None:
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        client.writer.write(struct.pack(">ii", 4 + len(header), len(header)) + header)
        answer = await client.answer()
        assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, opaque)
        assert answer.remark
        assert (await client.ask(VIEW, {"offset": "1"})).body == b"1"


@pytest.mark.parametrize("serialize_type", [2, 127, 255])
async def test_an_unknown_serialize_type_is_answered(serialize_type: int) -> None:
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        client.writer.write(struct.pack(">iI", 6, serialize_type << 24 | 2) + b"{}")
        assert "serialize type" in ((await client.answer()).remark or "")


@pytest.mark.parametrize("code", [BROKEN, RequestCode.CHECK_CLIENT_CONFIG])
async def test_an_answer_that_fails_is_answered_as_an_error(code: int) -> None:
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
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


async def test_only_so_many_lookups_of_one_connection_run_at_once() -> None:
    echo = Echo()
    service = service_of(FakeStore(), lookup_threads=8, limits=Limits(lookups_per_connection=3))
    async with serving(service, [echo]) as server, connected(server.addresses[0]) as client:
        opaques = {client.send(COLD) for _ in range(20)} | {client.send(VIEW, {"offset": "1"})}
        await until(lambda: echo.at_once == 3)
        async with connected(server.addresses[0]) as other:
            assert (await other.ask(VIEW, {"offset": "7"})).body == b"7"
        echo.cold.set()
        assert {(await client.answer()).opaque for _ in opaques} == opaques
        assert echo.most_at_once == 3


async def test_only_so_many_requests_of_one_connection_wait() -> None:
    echo = Echo()
    service = service_of(FakeStore(), limits=Limits(requests_per_connection=4))
    async with serving(service, [echo]) as server, connected(server.addresses[0]) as client:
        opaques = {client.send(SLOW) for _ in range(10)}
        (connection,) = await _connections(server)
        await until(lambda: connection.session.is_held)
        assert len(connection.session.pending) == 4
        echo.release.set()
        assert {(await client.answer()).opaque for _ in opaques} == opaques


async def test_a_client_that_has_shut_down_its_side_still_gets_its_answers() -> None:
    echo = Echo()
    async with serving(service_of(FakeStore()), [echo]) as server, connected(server.addresses[0]) as client:
        client.send(COLD)
        client.send(VIEW, {"offset": "1"})
        client.writer.write_eof()
        await until(lambda: echo.at_once == 1)
        echo.cold.set()
        assert {(await client.answer()).body for _ in range(2)} == {b"cold", b"1"}
        assert await client.is_closed_by_the_server()


async def test_what_waits_is_cancelled_when_the_client_is_gone() -> None:
    echo = Echo()
    async with serving(service_of(FakeStore()), [echo]) as server:
        async with connected(server.addresses[0]) as client:
            client.send(SLOW)
            (connection,) = await _connections(server)
            await until(lambda: bool(connection.session.pending))
            assert connection.is_open
            client.reset()
        await until(lambda: not connection.is_open and not connection.session.pending)
        assert not echo.answered


async def test_a_connection_without_a_sign_of_life_is_closed_and_a_used_one_is_not() -> None:
    async with (
        serving(service_of(FakeStore()), [Echo()]) as server,
        connected(server.addresses[0]) as idle,
        connected(server.addresses[0]) as used,
    ):
        await until(lambda: len(server.connections) == 2)
        for _ in range(3):
            await used.ask(VIEW, {"offset": "1"})
            for connection in list(server.connections):
                connection.sweep()
        assert await idle.is_closed_by_the_server()
        assert (await used.ask(VIEW, {"offset": "1"})).body == b"1"


async def test_a_connection_that_waits_for_its_answer_is_not_idle() -> None:
    echo = Echo()
    async with serving(service_of(FakeStore()), [echo]) as server, connected(server.addresses[0]) as client:
        client.send(SLOW)
        (connection,) = await _connections(server)
        await until(lambda: bool(connection.session.pending))
        for _ in range(5):
            connection.sweep()
        echo.release.set()
        assert (await client.answer()).body == b"slow"


async def test_both_addresses_are_known_to_processors() -> None:
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        (connection,) = await _connections(server)
        assert connection.local_address == server.addresses[0]
        assert connection.peer_address == client.writer.get_extra_info("sockname")


async def _connections(server: Server) -> list[SessionTransport]:
    await until(lambda: bool(len(server.connections)))
    return list(server.connections)
