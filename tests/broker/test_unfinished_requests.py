"""A client has `frame_seconds` for the rest of a request that it has begun, and one that owes nothing has for ever."""

import asyncio

import pytest

from broker.limits import Limits
from broker.net.budget import ConnectionBudget
from broker_harness import connected, service_of, serving, until
from draining import pull_of
from heartbeats import consumer, heartbeat, subscription
from lane_requests import FOREVER, LaneConnections
from protocol.codes import RequestCode
from protocol.command import encode_request
from protocol.frame import FrameDecoder
from still_clock import StillClock
from storage.store.message_store import MessageStore
from store_writer import appended, closed_store

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
