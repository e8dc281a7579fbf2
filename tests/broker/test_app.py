"""The server's life: start, serve, refresh, finish what is in flight, stop; how long a request may be unfinished."""

import asyncio
import threading

import pytest

from broker.app import build_server
from broker.config import CannotListen
from broker.limits import Limits
from broker.net.budget import ConnectionBudget
from broker.net.listeners import bind_listeners
from broker.service.dispatcher import Dispatcher, handles
from broker_harness import LOOPBACK, FakeStore, connected, service_of, serving, until
from draining import pull_of
from heartbeats import consumer, heartbeat, subscription
from lane_requests import FOREVER, LaneConnections
from protocol.codes import RequestCode
from protocol.command import Response, encode_request
from protocol.frame import FrameDecoder
from protocol.headers import EmptyRequestHeader
from still_clock import StillClock
from storage.files.waiting import Wait
from storage.store.message_store import MessageStore
from store_writer import appended, closed_store

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


SECONDS = 5
"""The limit here."""

GROUP, TOPIC = "Group", "TopicTest"
QUEUE = {"topic": TOPIC, "queueId": "0"}
TIMES = {"beginTimestamp": "0", "endTimestamp": str(FOREVER)}
UNIQUE_KEY = "7F0000011234000000000000000000000001"
FAMILIES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "view": (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0", "topic": TOPIC}, b""),
    "key": (RequestCode.QUERY_MESSAGE, {"topic": TOPIC, "key": "k0", "maxNum": "32", **TIMES}, b""),
    "unique key": (
        RequestCode.QUERY_MESSAGE,
        {"topic": TOPIC, "key": UNIQUE_KEY, "maxNum": "32", "_UNIQUE_KEY_QUERY": "true", **TIMES},
        b"",
    ),
    "pull": (RequestCode.PULL_MESSAGE, pull_of(TOPIC, consumerGroup=GROUP, subVersion=1), b""),
    "heartbeat": (RequestCode.HEART_BEAT, {}, heartbeat("client", consumer(GROUP, subscription(TOPIC)))),
    "query offset": (
        RequestCode.QUERY_CONSUMER_OFFSET,
        {"consumerGroup": GROUP, "setZeroIfNotFound": "false", **QUEUE},
        b"",
    ),
    "update offset": (RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": GROUP, "commitOffset": "1", **QUEUE}, b""),
    "route": (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, b""),
    "unknown": (9999, {"topic": TOPIC}, b""),
}
JSON, BINARY = 0, 1
FORMS = {"json": JSON, "binary": BINARY}
LONG = encode_request(RequestCode.HEART_BEAT, opaque=1, body=heartbeat("client", producers=("P" * 200,) * 40))
"""A frame whose beginning is too long for the fast lane."""


def frame_of(family: str, form: int = JSON) -> bytes:
    code, fields, body = FAMILIES[family]
    return encode_request(code, fields, opaque=1, body=body, serialize_type=form)


class Roads:
    """Connections with the lane and without, all on one clock that stands still until it is put forward."""

    def __init__(self, store: MessageStore) -> None:
        self.clock = StillClock()
        self.budget = ConnectionBudget(Limits(frame_seconds=SECONDS), self.clock)
        service = service_of(store)
        self._roads = {each: LaneConnections(service, has_lane=each, budget=self.budget) for each in (True, False)}

    def connect(self, *, has_lane):
        return self._roads[has_lane].connect()

    def taken(self) -> int:
        return self._roads[True].taken

    def wait(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.budget.sweep({})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    keys = (f"7F0000011234{number:024X}" for number in range(3))
    messages = (appended(TOPIC, b"body", keys="k0", unique_key=key) for key in keys)
    writer = closed_store(tmp_path_factory.mktemp("store") / "store", *messages)
    return MessageStore.open(writer.root)


@pytest.fixture
def roads(store: MessageStore) -> Roads:
    return Roads(store)


def answers_in(wire) -> int:
    return len(FrameDecoder().feed(bytes(wire.written)))


def pairs(frame, step):
    for cut in range(1, len(frame), step):
        yield frame[:cut], frame[cut:]


@pytest.mark.parametrize("has_lane", [True, False], ids=["lane", "no lane"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_whoever_sends_a_request_in_two_pieces_owes_nothing_afterwards(form, has_lane, roads) -> None:
    for family in FAMILIES:
        frame, taken = frame_of(family, form), roads.taken()
        connection, wire = roads.connect(has_lane=has_lane)
        number, step = 0, 3 if has_lane and form == JSON else 19
        for number, (first, second) in enumerate(pairs(frame, step), 1):
            connection.data_received(first)
            roads.wait(SECONDS - 1)
            assert (connection.owes_rest, roads.budget.received) == (True, len(first)), family
            connection.data_received(second)
            # Most answers leave at once; the others are not what is waited for here.
            await until(lambda: not connection.session.pending)  # noqa: B023 - called at once
            assert (connection.owes_rest, roads.budget.received, roads.budget._senders) == (False, 0, {}), family
            roads.wait(SECONDS * 3)
            assert (wire.is_closed, answers_in(wire)) == (False, number), family
        plain = form == JSON and family in ("view", "key", "unique key")
        assert not (has_lane and plain) or roads.taken() - taken == number, family


async def test_a_request_that_begins_behind_one_that_was_completed_has_its_own_time(roads: Roads) -> None:
    """The lane completes the first, the beginning of the second goes to the decoder."""
    connection, wire = roads.connect(has_lane=True)
    first = frame_of("view")
    connection.data_received(first[:50])
    roads.wait(SECONDS - 1)
    connection.data_received(first[50:] + LONG[:5_000])
    roads.wait(SECONDS - 1)
    assert not wire.is_closed
    connection.data_received(LONG[5_000:] + first[:50])
    roads.wait(SECONDS - 1)
    assert (wire.is_closed, answers_in(wire)) == (False, 2)
    roads.wait(1)
    assert wire.is_closed


@pytest.mark.parametrize("has_lane", [True, False], ids=["lane", "no lane"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_whoever_sends_part_of_a_request_and_stops_is_closed(form: int, has_lane: bool, roads: Roads) -> None:
    for family in FAMILIES:
        before, frame = frame_of("view"), frame_of(family, form)
        some = [1, 4, 7, 8, 9, len(frame) // 2, len(frame) - 1]
        for start in (b"", before):
            opened = [roads.connect(has_lane=has_lane) for _ in some]
            for (connection, _), cut in zip(opened, some, strict=True):
                connection.data_received(start + frame[:cut])
            roads.wait(SECONDS - 1)
            assert not any(wire.is_closed for _, wire in opened), family
            roads.wait(1)
            assert all(wire.is_closed for _, wire in opened), family
        assert (roads.budget.received, roads.budget._senders) == (0, {}), family


async def test_over_a_socket_with_a_limit_of_seconds(store: MessageStore) -> None:
    """The real clock, the real sweep: of two clients, one trickles and is closed, the other has paid and is served."""
    frame = frame_of("view")
    async with (
        serving(service_of(store, limits=Limits(frame_seconds=1))) as server,
        connected(server.addresses[0]) as good,
        connected(server.addresses[0]) as bad,
    ):
        for piece in (frame[:30], frame[30:]):
            good.writer.write(piece)
            await good.writer.drain()
            await asyncio.sleep(0)
        await good.answer()
        bad.writer.write(frame[:30])
        closed = asyncio.ensure_future(bad.is_closed_by_the_server())
        for byte in frame[30:-1]:
            if not closed.done():
                bad.writer.write(bytes([byte]))
                await asyncio.wait({closed}, timeout=0.1)
        assert await closed
        good.writer.write(frame)
        assert (await good.answer()).code == 0
