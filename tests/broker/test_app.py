"""The server's life: start, serve, refresh, finish what is in flight, stop."""

import asyncio
import threading

import pytest

from broker.app import build_server
from broker.config import CannotListen
from broker.limits import Limits
from broker.net.listeners import bind_listeners
from broker.service.dispatcher import Dispatcher, handles
from broker_harness import LOOPBACK, FakeStore, connected, service_of, serving, until
from protocol.codes import RequestCode
from protocol.command import Response
from protocol.headers import EmptyRequestHeader
from storage.files.waiting import Wait

HELLO = RequestCode.HEART_BEAT
COLD = RequestCode.GET_MAX_OFFSET


class Greeter:
    def __init__(self) -> None:
        self.release = threading.Event()
        self.entered = threading.Event()

    @handles(HELLO, EmptyRequestHeader)
    def hello(self, header, request) -> Response:
        return Response(body=str(request.connection.local_address).encode())

    @handles(COLD, EmptyRequestHeader)
    def cold(self, header):
        yield Wait("page")
        self.entered.set()
        assert self.release.wait(60)
        return Response(body=b"done")


async def test_a_client_of_the_vip_port_is_told_the_main_port() -> None:
    async with serving(service_of(FakeStore(), vip=True), [Greeter()]) as server:
        main, vip = server.addresses
        assert vip.port == main.port - 2
        async with connected(vip) as client:
            assert (await client.ask(HELLO)).body.decode() == str(main)


async def test_a_port_lost_between_binding_and_listening_is_refused() -> None:
    first = bind_listeners([LOOPBACK])
    # SO_REUSEADDR lets a second socket bind while neither listens.
    second = bind_listeners([first[0].endpoint])
    first[0].socket.listen()
    service = service_of(FakeStore(), listen=(first[0].endpoint,))
    server = build_server(service, second, Dispatcher([]))
    with pytest.raises(CannotListen, match="another process listens there"):
        await server.start()
    await server.stop()
    for listener in (*first, *second):
        listener.socket.close()


async def test_what_is_in_flight_is_finished_before_the_server_stops() -> None:
    greeter = Greeter()
    service = service_of(FakeStore(), stop_timeout_seconds=60)
    async with serving(service, [greeter]) as server, connected(server.addresses[0]) as client:
        client.send(COLD)
        await until(greeter.entered.is_set)
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        greeter.release.set()
        assert (await client.answer()).body == b"done"
        await stopping
        assert server.is_idle


async def test_a_lookup_that_cannot_be_interrupted_does_not_keep_the_server_alive() -> None:
    greeter = Greeter()
    service = service_of(FakeStore(), stop_timeout_seconds=0.05)
    async with serving(service, [greeter]) as server, connected(server.addresses[0]) as client:
        client.send(COLD)
        await until(greeter.entered.is_set)
        await server.stop()
        assert not server.is_idle
        greeter.release.set()
        await until(lambda: server.is_idle)


async def test_a_refresh_looks_at_the_store_anew_and_never_twice_at_once() -> None:
    release = threading.Event()

    class Slow(FakeStore):
        def refresh(self) -> None:
            assert release.wait(60)
            super().refresh()

    store = Slow()
    async with serving(service_of(store), [Greeter()]) as server:
        server.refresh()
        server.refresh()
        release.set()
        await until(lambda: server._refresher is not None and not server._refresher.is_alive())
        assert store.refreshed == 1
        server.refresh()
        await until(lambda: store.refreshed == 2)


async def test_a_refresh_that_fails_leaves_the_server_serving(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeStore):
        def refresh(self) -> None:
            raise OSError("the disk is gone")

    async with serving(service_of(Broken()), [Greeter()]) as server, connected(server.addresses[0]) as client:
        server.refresh()
        await until(lambda: "the disk is gone" in caplog.text)
        assert (await client.ask(HELLO)).body


async def test_idle_connections_are_closed_after_the_idle_timeout() -> None:
    service = service_of(FakeStore(), limits=Limits(idle_seconds=1))
    async with serving(service, [Greeter()]) as server, connected(server.addresses[0]) as client:
        assert await client.is_closed_by_the_server()
