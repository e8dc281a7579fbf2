"""The fast lane answers as the ordinary way does, byte for byte, or not at all; and it really is taken."""

import asyncio
import json
import random
import shutil
from collections.abc import Callable
from functools import cache
from itertools import product

import pytest

from broker.lane.fast_lane import FastLane
from broker.limits import Limits
from broker.net.budget import ConnectionBudget
from broker.net.scheduler import TURN_BYTES, TURN_FRAMES
from broker.net.session_settings import LEFT_OVER, NOT_TAKEN, TURN_OVER, WANTS_MORE
from broker.service.broker_service import BrokerService
from broker_harness import service_of, serving, until
from golden_frames import Session
from golden_store import GOLDEN, unpack
from heartbeats import heartbeat
from kernel_memory import Guarded
from lane_requests import (
    FOREVER,
    LITE_PULL,
    PULL,
    QUERY,
    VIEW,
    LaneConnections,
    RequestMaker,
    compare,
    frame_of,
    query,
    request,
    view,
)
from protocol.codes import RequestCode
from protocol.command import decode_command, encode_request, ext_fields_of
from protocol.frame import FrameDecoder
from protocol.message import decode_message
from protocol.question import Question
from still_clock import StillClock
from storage.query.lookup_call import STEPS_AT_ONCE
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

pytestmark = pytest.mark.lane

TOPICS = ("TopicTest", "Grüße", "%RETRY%" + "g" * 130)
KEYS = ("k0", "k1", "k2", "hot", "schlüssel", "\U0001f600", "ka kb", "", "a\ufffd", "none", 'q"uote', "TagA", "TagB")
UNIQUE = "7F0000010000{:020X}"
"""Unique keys whose pid is a multiple of 65536, which may be offset ids as well; ORDINARY ones may not."""
ORDINARY = "7F0000011234{:020X}"


def ordinary(writer: StoreWriter) -> None:
    """Messages of every form; in the first segment, whose end nobody looks for, every seventh lies about itself."""
    for number in range(160):
        topic = TOPICS[number % 3]
        hosts = ("::1", 10911) if number % 5 == 0 else ("127.0.0.1", 10911)
        keys = ["hot" if number % 2 else "k0", f"k{number % 4}", "schlüssel" if number % 3 else "\U0001f600"]
        key, tag = (UNIQUE if number % 4 == 0 else ORDINARY).format(number), "TagA" if number % 2 else "TagB"
        lies = {"body_crc": 1 if number % 7 == 3 and number < 20 else None}
        lies |= {"own_offset": 5 if number % 7 == 5 and number < 20 else None, "property_crc": number % 6 == 0}
        body = bytes([number]) * (number * 7 % 400)
        writer.append(topic, body, keys=keys, unique_key=key, tags=tag, store_host=hosts, **lies)


def with_a_hole(writer: StoreWriter) -> None:
    ordinary(writer)
    writer.skip_segments()
    ordinary(writer)


def long_answers(writer: StoreWriter) -> None:
    for number in range(12):
        writer.append("TopicTest", bytes(40_000), keys=["hot", f"k{number}"], unique_key=ORDINARY.format(number))
    writer.append("TopicTest", bytes(300_000), keys="k0", unique_key=ORDINARY.format(99))


STORES: dict[str, tuple[Callable[[StoreWriter], None], dict[str, object]]] = {
    "ordinary": (ordinary, {"segment_size": 16384}),
    "one large index file": (ordinary, {"index_slots": 5, "index_entries": 5_000, "segment_size": 16384}),
    "without an index": (ordinary, {"segment_size": 32768}),
    "without tag entries": (ordinary, {"profile": "5.3", "segment_size": 16384}),
    "with a hole": (with_a_hole, {"segment_size": 16384}),
    "long answers": (long_answers, {"segment_size": 1 << 20}),
}


EXAMPLES = 60
"""Requests by store and seed; each is answered twice."""

FUZZED = 2_000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[BrokerService, RequestMaker]]:
    @cache
    def open_store(name: str) -> tuple[BrokerService, RequestMaker]:
        write, options = STORES[name]
        writer = StoreWriter(tmp_path_factory.mktemp("store") / "store", **options)
        write(writer)
        writer.close()
        if name == "without an index":
            shutil.rmtree(writer.root / "index")
        keys = [*KEYS, *(form.format(number) for form in (UNIQUE, ORDINARY) for number in (0, 1, 4, 5, 9))]
        keys += [writer.written[0].offset_message_id, writer.written[-1].offset_message_id.lower()]
        offsets = [message.physical_offset for message in writer.written]
        times = [message.store_timestamp for message in writer.written]
        service = service_of(MessageStore.open(writer.root))
        stored_topics = [message.topic for message in writer.written]
        return service, RequestMaker(random.Random(0), TOPICS, keys, offsets, times, stored_topics)

    return open_store


Written = Callable[[str], tuple[BrokerService, RequestMaker]]


# ------------------------ the same answers


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 8))])
@pytest.mark.parametrize("name", STORES)
def test_a_connection_answers_alike_with_and_without_the_lane(name: str, seed: int, written: Written) -> None:
    service, traveller = written(name)
    traveller.generator.seed(seed)
    streams = [[traveller.frame()] for _ in range(EXAMPLES)]
    taken = asyncio.run(compare(service, streams))
    assert taken > EXAMPLES // 10, "the lane declines nearly everything"


def test_reads_of_many_frames_and_of_parts_are_answered_alike(written: Written) -> None:
    service, traveller = written("ordinary")
    generator = traveller.generator
    generator.seed(5)
    streams = []
    for _ in range(60):
        data = b"".join(traveller.frame() for _ in range(generator.randint(1, 40)))
        cuts = sorted(generator.randrange(len(data) + 1) for _ in range(generator.choice((0, 0, 1, 3))))
        streams.append([data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)])
    assert asyncio.run(compare(service, streams)) > 150


# ------------------------ what is taken, and what is not


@pytest.fixture(scope="module")
def lane(written: Written) -> FastLane:
    service = written("ordinary")[0]
    for topic in TOPICS:  # asked once on the ordinary way, what is damaged is known to be
        for key in ("hot", "k0", "k1", "k2", "k3"):
            service.store.query(Question(topic, key))
    return FastLane(service, 16 * 1024 * 1024)


PLAIN = {
    "a view": view(0),
    "a view of no topic": request(VIEW, {"offset": "0"}),
    "a view by a number": request(VIEW, {"offset": 0}),
    "a view in another order": frame_of(b'{"version":1,"opaque":-5,"extFields":{"offset":"0"},"flag":0,"code":33}'),
    "a key": query("TopicTest", "k0", maxNum="64", indexType="K"),
    "a key of no kind": query("TopicTest", "k0", lastKey="", _UNIQUE_KEY_QUERY="false", nsd="false", bname="b", lo="x"),
    "a key in UTF-8": query("Grüße", "schlüssel", maxNum="8"),  # more would come to a damaged one, which is said
    "a key beyond the basic plane": query("TopicTest", "\U0001f600", maxNum="8"),
    "a unique key": query("TopicTest", ORDINARY.format(9), _UNIQUE_KEY_QUERY="true", maxNum="0"),
    "a unique key by its kind": query("TopicTest", ORDINARY.format(9), indexType="U"),
    "a tag": query("TopicTest", "TagB", indexType="T"),
    "more than were asked for": query("TopicTest", "k0", maxNum="1"),
    "numbers that are no texts": query("TopicTest", "k0", maxNum=64, beginTimestamp=-1, endTimestamp=FOREVER),
    "white space": frame_of(b'{"code":33, "extFields":{"offset":"0"},"flag":0,"opaque":1}'),
    "white space behind": frame_of(b'{"code":33,"extFields":{"offset":"0"},"flag":0,"opaque":1}\r\n\t '),
    "an opaque that is a text": view(0, opaque="1"),
}

NOT_PLAIN = {
    "no record": view(10**9),
    "inside a record": view(1),
    "before the log": view(-1),
    "another topic": view(0, "TopicTesT"),
    "a longer topic": view(0, "TopicTest2"),
    "a shorter topic": view(0, "TopicTes"),
    "a topic that is empty": view(0, ""),
    "a topic of white space": view(0, " "),
    "an offset that is none": view("x"),
    "an offset of twenty digits": view("9" * 20),
    "a leading zero": view("00"),
    "a plus": view("+0"),
    "an offset out of range": view(2**63),
    "a damaged record": query("TopicTest", ORDINARY.format(3), indexType="U"),
    "no such key": query("TopicTest", "none"),
    "none asked for": query("TopicTest", "k0", maxNum="0"),
    "fewer than none": query("TopicTest", "k0", maxNum="-1"),
    "too many": query("TopicTest", "k0", maxNum=str(2**31)),
    "a later page": query("TopicTest", "k0", lastKey="k0@99999"),
    "what may be an offset id": query("TopicTest", UNIQUE.format(0), indexType="U"),
    "a replacement character": query("TopicTest", "a\ufffd"),
    "an escape": frame_of(b'{"code":33,"extFields":{"offset":"\\u0030"},"flag":0,"opaque":1}'),
    "bytes that are no UTF-8": frame_of(b'{"code":33,"extFields":{"offset":"0","topic":"\xff"},"flag":0,"opaque":1}'),
    "an unknown field": request(VIEW, {"offset": "0", "other": "1"}),
    "an unknown member": request(VIEW, {"offset": "0"}, other=1),
    "a field twice": frame_of(b'{"code":33,"extFields":{"offset":"9","offset":"0"},"flag":0,"opaque":1}'),
    "something behind": frame_of(b'{"code":33,"extFields":{"offset":"0"},"flag":0,"opaque":1}x'),
    "no opaque": frame_of(b'{"code":33,"extFields":{"offset":"0"},"flag":0}'),
    "an opaque out of range": view(0, opaque=2**31),
    "an opaque that is no integer": view(0, opaque=1.5),
    "no fields": frame_of(b'{"code":33,"flag":0,"opaque":1}'),
    "fields that are none": frame_of(b'{"code":33,"extFields":{},"flag":0,"opaque":1}'),
    "a field missing": request(QUERY, {"topic": "TopicTest", "key": "k0", "maxNum": "1"}),
    "another code": request(RequestCode.HEART_BEAT, {"offset": "0"}),
    "a oneway request": view(0, flag=2),
    "a response": view(0, flag=1),
    "a body": frame_of(view(0)[8:], b"x"),
    "a binary header": encode_request(VIEW, {"offset": "0"}, opaque=1, serialize_type=1),
    "a type that is none": frame_of(view(0)[8:], serialize_type=7),
    "an empty header": frame_of(b""),
}


def test_a_plain_hit_is_taken_and_anything_else_is_left_to_the_ordinary_way(lane: FastLane, written: Written) -> None:
    for name, frame in PLAIN.items():
        answers, consumed, reason = lane.answer(frame)
        assert (consumed, reason) == (len(frame), LEFT_OVER), name
        assert int.from_bytes(answers[:4]) == len(answers) - 4, name
    for name, frame in NOT_PLAIN.items():
        assert lane.answer(frame + view(0)) == (b"", 0, NOT_TAKEN), name
    frames = [*PLAIN.values(), *NOT_PLAIN.values()]
    streams = [reads for frame in frames for reads in ([frame, frame], [view(0) + frame + view(0)])]
    asyncio.run(compare(written("ordinary")[0], streams))


# ------------------------ hostile bytes


def test_no_bytes_make_the_kernel_read_or_write_outside(written: Written) -> None:
    service, traveller = written("ordinary")
    lane, guarded = FastLane(service, 16 * 1024 * 1024), Guarded(65536)
    generator = traveller.generator
    generator.seed(11)
    frames = [traveller.frame() for _ in range(200)]
    taken = 0
    for number in range(FUZZED):
        data = traveller.mutated(generator.choice(frames))
        if number % 4 == 0:
            data = data[: generator.randrange(len(data) + 1)]
        answers, consumed, reason = lane.answer(guarded.put(data))
        assert 0 <= consumed <= len(data)
        assert reason in (LEFT_OVER, NOT_TAKEN, WANTS_MORE)
        assert (len(answers) > 0) == (consumed > 0)
        taken += consumed > 0
    assert taken > FUZZED // 200
    for _ in range(FUZZED // 10):
        data = generator.randbytes(generator.randrange(64))
        assert lane.answer(guarded.put(data))[2] in (LEFT_OVER, NOT_TAKEN, WANTS_MORE)


# ------------------------ the rest of a request


@pytest.mark.parametrize("has_lane", [True, False], ids=["lane", "no lane"])
async def test_whoever_has_sent_a_request_in_pieces_owes_nothing_and_else_is_closed(has_lane, written) -> None:
    """A client has `frame_seconds` for the rest of a request, be it the lane or the decoder that gets it."""
    clock = StillClock()
    budget = ConnectionBudget(Limits(frame_seconds=5), clock)
    road = LaneConnections(written("ordinary")[0], has_lane=has_lane, budget=budget)
    long = encode_request(RequestCode.HEART_BEAT, opaque=1, body=heartbeat("client", producers=("P" * 200,) * 40))
    for frame in (view(0), query("TopicTest", "k0"), long, encode_request(9999, {"topic": "T"}, opaque=1)):
        connection, wire = road.connect()
        for cut in range(1, len(frame), 1 + len(frame) // 40):
            connection.data_received(frame[:cut])
            clock.seconds += 4
            budget.sweep({})
            assert (connection.owes_rest, budget.received, wire.is_closed) == (True, cut, False)
            # The rest, and the beginning of the next one, which has its own time.
            connection.data_received(frame[cut:] + frame[:9])
            await until(lambda: not connection.session.pending)  # noqa: B023 - called at once
            clock.seconds += 4
            budget.sweep({})
            assert (connection.owes_rest, budget.received, wire.is_closed) == (True, 9, False)
            connection.data_received(frame[9:])
            await until(lambda: not connection.session.pending)  # noqa: B023 - called at once
            clock.seconds += 20
            budget.sweep({})
            assert (connection.owes_rest, budget.received, budget._senders, wire.is_closed) == (False, 0, {}, False)
        connection.data_received(frame[:9])
        clock.seconds += 5
        budget.sweep({})
        assert wire.is_closed


def is_asked_as_stored(service: BrokerService, fields: dict[str, str]) -> bool:
    record = service.store.record_at(int(fields["offset"])) if "offset" in fields else None
    return record is None or fields.get("topic") in (None, decode_message(record).topic)


def test_views_by_all_kinds_of_topics_are_answered_alike(tmp_path) -> None:
    """In the lane are those that name no topic, or the one under which the record is stored."""
    folder = GOLDEN / "g2" / "g2-queues-5.5.1"
    session = Session(folder.name, folder / "views.jsonl.xz", folder / "store.tar.xz")
    service = service_of(MessageStore.open(unpack("store", tmp_path, archives=folder)))
    found = [exchange for exchange in session.exchanges() if exchange.code in (VIEW, QUERY)]
    headers = (json.dumps(each.header, ensure_ascii=False, separators=(",", ":")).encode() for each in found)
    requests = [(each.ext_fields, frame_of(header)) for each, header in zip(found, headers, strict=True)]
    taken = asyncio.run(compare(service, [[frame] for _, frame in requests]))
    records = {fields["offset"] for fields, _ in requests}
    assert len(records) > 10
    assert taken == sum(is_asked_as_stored(service, fields) for fields, _ in requests) == 2 * len(records)


@pytest.mark.parametrize("frame_limit", [1 << 24, 65_536], ids=["cut by number", "cut by bytes"])
def test_answers_that_leave_out_older_matches_are_alike_and_in_the_lane(frame_limit, tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 20)
    for number in range(200):
        named = {"keys": ["hot", f"k{number % 3}"], "unique_key": ORDINARY.format(number % 4), "tags": "AB"[number % 2]}
        writer.append("TopicTest", bytes(1_000), **named)
    writer.close()
    service = service_of(MessageStore.open(writer.root), frame_limit=frame_limit)
    asked = [("hot", "K"), ("k0", "K"), ("k1", ""), (ORDINARY.format(1), "U"), (ORDINARY.format(2), ""), ("A", "T")]
    asked = product(asked, (1, 2, 31, 32, 33, 63, 64, 65, 2**31 - 1), (0, -(2**31)))
    frames = [
        query("TopicTest", key, maxNum=most, indexType=kind, opaque=opaque) for (key, kind), most, opaque in asked
    ]
    frames += [query("TopicTest", ORDINARY.format(1), _UNIQUE_KEY_QUERY="true", maxNum=maximum) for maximum in (0, 50)]
    assert asyncio.run(compare(service, [[frame] for frame in frames])) == len(frames)
    road = LaneConnections(service, has_lane=True)
    answer, _ = asyncio.run(road.answer([query("TopicTest", "hot", maxNum=32)]))
    fields = ext_fields_of(decode_command(FrameDecoder().feed(answer)[0]))
    assert (road.taken, fields["rocketlensTruncated"]) == (1, "true")
    assert int(fields["rocketlensCursor"]) == writer.written[168].physical_offset


def test_a_key_at_the_end_of_a_long_chain_is_answered_alike_and_from_the_second_time_on_in_the_lane(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 20, index_slots=1, index_entries=20_000)
    for number in range(3):
        writer.append("TopicTest", b"%d" % number, keys=f"k{number} early")
    for _ in range(STEPS_AT_ONCE + 1000):
        writer.append("TopicTest", b"", tags="hot")
    writer.close()
    service = service_of(MessageStore.open(writer.root))
    frames = [query("TopicTest", key, maxNum=32) for key in ("k0", "k1", "k2", "early")]
    ordinary, lane = LaneConnections(service, has_lane=False), LaneConnections(service, has_lane=True)
    first, _ = asyncio.run(lane.answer(frames[:1]))
    assert lane.taken == 0
    assert asyncio.run(lane.answer(frames))[0] == asyncio.run(ordinary.answer(frames))[0]
    assert lane.taken == len(frames)
    assert asyncio.run(lane.answer(frames[:1]))[0] == first


def test_a_read_is_taken_up_to_the_first_frame_that_is_not_whole_plain_or_of_a_length(lane: FastLane) -> None:
    frame = view(0)
    for data in (
        b"", b"\xff\xff\xff\xff" + frame[4:], b"\x7f\xff\xff\xff" + frame[4:], b"\0\0\0\3\0\0\0\0" + frame,
        frame[:4] + b"\0\xff\xff\xff" + frame[8:]
    ):  # fmt: skip
        assert lane.answer(data) == (b"", 0, LEFT_OVER)
    for length in (1, 7, 8, 9, len(frame) - 1):
        assert lane.answer(frame + frame[:length])[1:] == (len(frame), WANTS_MORE)
    answers, consumed, reason = lane.answer(frame * 3 + view(1) + frame)
    assert (answers, consumed, reason) == (lane.answer(frame * 3)[0], 3 * len(frame), NOT_TAKEN)


def test_a_frame_or_an_answer_beyond_the_limit_is_not_taken(written: Written) -> None:
    frame = view(0)
    service, _ = written("ordinary")
    assert FastLane(service, len(frame)).answer(frame)[2] == NOT_TAKEN, "no body fits"
    assert FastLane(service, len(frame) - 1).answer(frame)[2] == LEFT_OVER
    service, traveller = written("long answers")
    roomy, short = FastLane(service, 16 * 1024 * 1024), view(traveller.offsets[0])
    for long in (view(traveller.offsets[-1]), query("TopicTest", "hot")):
        assert roomy.answer(long)[2] == NOT_TAKEN
    assert (roomy.answer(short)[2], FastLane(service, 40_000).answer(short)[2]) == (LEFT_OVER, NOT_TAKEN)


def test_a_store_that_may_lack_something_or_has_no_tags_is_asked_on_the_ordinary_way(written: Written) -> None:
    lane = FastLane(written("with a hole")[0], 16 * 1024 * 1024)
    assert lane.answer(query("TopicTest", "k0"))[2] == NOT_TAKEN
    assert lane.answer(view(0))[2] == LEFT_OVER
    service, by_key = written("without tag entries")[0], query("TopicTest", "k0", indexType="K")
    assert asyncio.run(compare(service, [[by_key]] * 2)) > 0
    lane = FastLane(service, 16 * 1024 * 1024)
    assert lane.answer(query("TopicTest", "TagB", indexType="T"))[2] == NOT_TAKEN
    assert lane.answer(by_key)[2] == LEFT_OVER


def test_a_turn_ends_after_some_frames_or_bytes(written: Written) -> None:
    service, traveller = written("long answers")
    lane = FastLane(service, 16 * 1024 * 1024)
    frame = view(traveller.offsets[0])
    answers, consumed, reason = lane.answer(frame * 20)
    assert reason == TURN_OVER
    assert TURN_BYTES <= len(answers) < TURN_BYTES + 41_000
    assert consumed == len(frame) * (len(answers) // 40_000)
    service, _ = written("ordinary")
    frames = view(0) * (TURN_FRAMES + 1)
    lane = FastLane(service, 16 * 1024 * 1024)
    assert lane.answer(frames)[1:] == (len(view(0)) * TURN_FRAMES, TURN_OVER)
    assert lane.answered == {VIEW: TURN_FRAMES, QUERY: 0, PULL: 0, LITE_PULL: 0}


def test_the_lane_follows_a_store_that_is_read_anew(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("TopicTest", b"one", keys="k0")
    writer.flush()
    service = service_of(MessageStore.open(writer.root))
    with_lane, without = LaneConnections(service, has_lane=True), LaneConnections(service, has_lane=False)

    async def check() -> bytes:
        answer = await with_lane.answer([query("TopicTest", "k0")])
        assert answer == await without.answer([query("TopicTest", "k0")])
        return answer[0]

    first = asyncio.run(check())
    writer.append("TopicTest", b"two", keys="k0")
    writer.close()
    service.store.refresh()
    assert len(asyncio.run(check())) > len(first)
    assert with_lane.taken == 2


async def test_records_with_our_own_address_take_the_ordinary_way(written: Written) -> None:
    service, _ = written("ordinary")
    rewriting = service_of(service.store, rewrite_store_host=True)
    async with serving(rewriting) as server:
        assert server.lane is None
