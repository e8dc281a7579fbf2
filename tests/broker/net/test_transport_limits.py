"""What a client may cost: long headers, many fields, half frames, slow readers, many connections."""

import asyncio
import struct
from collections.abc import Awaitable
from contextlib import AsyncExitStack

import pytest

from broker.limits import MIB, Limits
from broker.net.transport import SessionTransport
from broker.server import Server
from broker.service.dispatcher import handles
from broker_harness import FakeStore, connected, service_of, serving, until
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response, encode_request
from protocol.headers import EmptyRequestHeader, ViewMessageRequestHeader

pytestmark = pytest.mark.asyncio

VIEW = RequestCode.VIEW_MESSAGE_BY_ID
SLOW = RequestCode.HEART_BEAT


class Echo:
    """Answers a view with as many bytes as its offset says; heartbeats only when released."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    @handles(VIEW, ViewMessageRequestHeader)
    def view(self, header: ViewMessageRequestHeader) -> Response:
        return Response(body=bytes(header.offset))

    @handles(SLOW, EmptyRequestHeader)
    def slow(self, header: EmptyRequestHeader) -> Awaitable[Response]:
        return self._when_released()

    async def _when_released(self) -> Response:
        await self.release.wait()
        return Response(body=b"slow")


async def _connections(server: Server, count: int = 1) -> list[SessionTransport]:
    await until(lambda: len(server.connections) == count)
    return list(server.connections)


async def test_a_header_beyond_the_limit_is_refused_before_it_arrives() -> None:
    service = service_of(FakeStore(), limits=Limits(header_bytes=4096))
    async with serving(service, [Echo()]) as server, connected(server.addresses[0]) as client:
        assert (await client.ask(VIEW, {"offset": "1", "more": "x" * 3000})).body == b"\0"
        client.writer.write(struct.pack(">ii", 10_000_000, 4097))
        assert await client.is_closed_by_the_server()


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_a_request_of_too_many_fields_is_answered_and_the_connection_lives(serialize_type: int) -> None:
    service = service_of(FakeStore(), limits=Limits(ext_fields=40))
    async with serving(service, [Echo()]) as server, connected(server.addresses[0]) as client:
        fields = {"offset": "1"} | {f"f{number}": "x" for number in range(39)}
        assert (await client.ask(VIEW, fields, serialize_type=serialize_type)).body == b"\0"
        answer = await client.ask(VIEW, fields | {"one more": "x"}, serialize_type=serialize_type)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "41 fields, more than the limit of 40")
        assert (await client.ask(VIEW, {"offset": "1"})).body == b"\0"


async def test_connections_beyond_the_limit_are_closed_and_the_others_served() -> None:
    service = service_of(FakeStore(), limits=Limits(connections=2))
    async with serving(service, [Echo()]) as server:
        async with connected(server.addresses[0]) as first, connected(server.addresses[0]) as second:
            await _connections(server, 2)
            async with connected(server.addresses[0]) as third:
                assert await third.is_closed_by_the_server()
            for client in (first, second):
                assert (await client.ask(VIEW, {"offset": "2"})).body == bytes(2)
        await _connections(server, 0)
        async with connected(server.addresses[0]) as again:
            assert (await again.ask(VIEW, {"offset": "3"})).body == bytes(3)


async def test_half_frames_of_many_clients_hold_no_more_than_the_limit_and_an_honest_one_is_served() -> None:
    service = service_of(FakeStore(), limits=Limits(received_bytes=20 * MIB))
    beginning = struct.pack(">ii", 15 * MIB, 100) + bytes(4 * MIB)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(service, [Echo()]))
        budget = server.budget
        honest = await stack.enter_async_context(connected(server.addresses[0]))
        most = 0
        for _ in range(12):
            attacker = await stack.enter_async_context(connected(server.addresses[0]))
            attacker.writer.write(beginning)
            with_drain = asyncio.ensure_future(attacker.writer.drain())
            await asyncio.wait([with_drain], timeout=60)
            assert (await honest.ask(VIEW, {"offset": "9"})).body == bytes(9)
            most = max(most, budget.received)
        assert 10 * MIB < most <= 20 * MIB
        await until(lambda: len(server.connections) <= 6)
        assert budget.received == sum(connection.session._reader._decoder.buffered for connection in server.connections)
    assert budget.received == 0


async def test_a_request_sent_byte_by_byte_is_given_up_and_quick_ones_in_pieces_are_not() -> None:
    now = 1000.0
    service = service_of(FakeStore())
    async with serving(service, [Echo()]) as server:
        budget = server.budget
        budget._clock_seconds = lambda: now
        async with connected(server.addresses[0]) as slow, connected(server.addresses[0]) as quick:
            await _connections(server, 2)
            frame = encode_request(VIEW, {"offset": "1"}, opaque=1)
            for part in range(3):
                slow.writer.write(frame[part : part + 1])
                quick.writer.write(frame[10:] + frame[:10] if part else frame[:10])
                if part:
                    assert (await quick.answer()).body == b"\0"
                await until(lambda: len(budget._senders) == 2)
                now += 25
                budget.sweep(server.connections.unsent)
            assert await slow.is_closed_by_the_server()
            quick.writer.write(frame[10:])
            assert (await quick.answer()).body == b"\0"


async def test_a_client_that_reads_nothing_for_too_long_is_closed() -> None:
    now = 1000.0
    service = service_of(FakeStore(), limits=Limits(unsent_bytes_per_connection=MIB))
    async with serving(service, [Echo()]) as server, connected(server.addresses[0]) as client:
        budget = server.budget
        budget._clock_seconds = lambda: now
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(b"".join(encode_request(VIEW, {"offset": "1000000"}, opaque=n) for n in range(60)))
        (connection,) = await _connections(server)
        await until(lambda: connection.session.is_held)
        budget.sweep(server.connections.unsent)
        assert connection.is_open
        now += 61
        budget.sweep(server.connections.unsent)
        await until(lambda: not connection.is_open)


async def test_bytes_that_nobody_reads_are_bounded_over_all_connections() -> None:
    service = service_of(FakeStore(), limits=Limits(unsent_bytes=6 * MIB, unsent_bytes_per_connection=MIB))
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(service, [Echo()]))
        clients = [await stack.enter_async_context(connected(server.addresses[0])) for _ in range(8)]
        for client in clients:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.writer.write(b"".join(encode_request(VIEW, {"offset": "2000000"}, opaque=n) for n in range(8)))
        await until(lambda: 0 < len(server.connections) < 8)
        server._sweep_budget()
        assert server.budget.unsent <= 6 * MIB


async def test_waiting_requests_hold_a_connection_by_their_bytes() -> None:
    service = service_of(FakeStore(), limits=Limits(in_flight_bytes_per_connection=65_536))
    echo = Echo()
    async with serving(service, [echo]) as server, connected(server.addresses[0]) as client:
        opaques = {client.send(SLOW, body=bytes(20_000)) for _ in range(8)}
        (connection,) = await _connections(server)
        await until(lambda: connection.session.is_held)
        assert len(connection.session.pending) == 3
        echo.release.set()
        assert {(await client.answer()).opaque for _ in opaques} == opaques
        assert server.budget.in_flight == 0


async def test_requests_that_would_wait_are_busy_when_those_of_all_clients_hold_too_much() -> None:
    service = service_of(FakeStore(), limits=Limits(in_flight_bytes=MIB))
    echo = Echo()
    async with (
        serving(service, [echo]) as server,
        connected(server.addresses[0]) as greedy,
        connected(server.addresses[0]) as other,
    ):
        held = {greedy.send(SLOW, body=bytes(600_000)) for _ in range(2)}
        await until(lambda: server.budget.in_flight > MIB)
        assert (await other.ask(SLOW)).code == ResponseCode.SYSTEM_BUSY
        assert (await other.ask(VIEW, {"offset": "1"})).body == b"\0"
        echo.release.set()
        assert {(await greedy.answer()).opaque for _ in held} == held
        assert (await other.ask(SLOW)).body == b"slow"


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
