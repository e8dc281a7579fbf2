"""Pulls that the fast lane answers: as the ordinary way does, byte for byte, as long as nothing has changed."""

import asyncio
import gc
import random
import shutil
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from asking import FakeConnection
from broker.kernels import lane as kernel
from broker.lane import _known_pulls
from broker.lane._known_pulls import KEPT
from broker.lane.fast_lane import FastLane
from broker.net.session_settings import LEFT_OVER, NOT_TAKEN, WANTS_MORE
from broker.service.broker_service import BrokerService
from broker_harness import connected, service_of, serving
from examples import examples
from heartbeats import consumer, heartbeat, subscription
from kernel_memory import Guarded, HeldFile
from lane_requests import (
    LITE_PULL,
    PULL,
    SUBSCRIPTION_FLAG,
    LaneConnections,
    Puller,
    compare,
    frame_of,
    mutated,
    pull,
    request,
    template_with,
)
from protocol.bodies import ConsumerData, HeartbeatData
from protocol.codes import RequestCode, ResponseCode
from protocol.command import decode_command, encode_request, ext_fields_of
from protocol.errors import StoreError
from protocol.frame import FrameDecoder
from queue_stores import unit_bytes
from storage.files.waiting import Wait
from storage.kernels.pulls import EVERYTHING, Choice
from storage.store.message_store import MessageStore
from store_kinds import with_rocksdb_queues
from store_writer import StoreWriter, appended, closed_store

pytestmark = pytest.mark.lane

EXAMPLES = 120
FUZZED = 1_500
GROUP = "Group"
COMMIT_FLAG = 1

TAGS = ("*", "*", "*", "*", "*", "TagA", "TagA || Aa", "价", "TagC", "", "||")
EXPRESSIONS = ("a < 5 AND region = 'hz'", "a > 50", "b > 0.5 OR a = 3", "a = b", "a < 0", "a >")
SUBSCRIPTIONS = (*((tags, "TAG") for tags in TAGS), *((text, "SQL92") for text in EXPRESSIONS))

# ------------------------ stores


VALUES = ("0.1", "0.9", "1e0", "x", "", "-1", "0.700000000000000001")


def plain(writer: StoreWriter) -> None:
    """Several files a queue; tags of equal hash, none, and a body that alone fills an answer.

    Property b is a number that the kernel decides, or asks about, or none.
    """
    tags = ("TagA", "TagB", "Aa", "BB", None, "价")
    for number in range(600):
        properties = {"a": str(number % 100), "region": ("hz", "sh")[number // 3 % 2], "b": VALUES[number % 7]}
        more = {"queue_id": number % 2, "tags": tags[number // 6 % 6], "property_crc": number % 5 == 0}
        more["store_host"] = ("::1", 10911) if number % 4 == 0 else ("127.0.0.1", 10911)
        topic, body = "TopicTest" if number % 3 else "Grüße", bytes([number % 256]) * (number * 7 % 400)
        writer.append(topic, body, properties=properties, **more)
    writer.append("TopicTest", bytes(300_000))
    writer.append("TopicTest", b"behind")


def damaged(writer: StoreWriter) -> None:
    """Records that lie about themselves, in a segment whose end nobody looks for."""
    for number in range(200):
        lies = {"body_crc": 1 if number % 17 == 3 else None, "own_offset": 5 if number % 23 == 5 else None}
        writer.append("TopicTest", b"%d" % number, tags="TagA" if number % 2 else "TagB", **lies)
    writer.roll()
    plain(writer)


def with_extensions(writer: StoreWriter) -> None:
    plain(writer)


def expired(writer: StoreWriter) -> None:
    for number in range(100, 300):
        writer.append("TopicTest", b"%d" % number, queue_offset=number, tags="TagA")
    writer.skip_segments()
    plain(writer)


def batches(writer: StoreWriter) -> None:
    for number in range(300):
        writer.append_inner_batch("TopicTest", [(b"%d" % number, {"TAGS": "TagA"})] * 3)
    for number in range(100):
        writer.append("Grüße", b"%d" % number)


STORES: dict[str, tuple[Callable[[StoreWriter], None], dict[str, object]]] = {
    "plain": (plain, {"segment_size": 1 << 20, "queue_file_size": 2_000}),
    "one file a queue": (plain, {"segment_size": 1 << 20, "queue_file_size": 200_000}),
    "damaged": (damaged, {"segment_size": 1 << 20, "queue_file_size": 200_000}),
    "with extensions": (with_extensions, {"segment_size": 1 << 20, "ext_bit_map": b"\xff"}),
    "expired": (expired, {"segment_size": 1 << 20, "queue_file_size": 4_000}),
    "batches": (batches, {"segment_size": 1 << 20}),
    "derived": (plain, {"segment_size": 1 << 20}),
}
LIKE_OTHERS = ("one file a queue", "with extensions")
"""Stores that only `make soak` compares, since they are much like the first one."""

TAKEN_AT_LEAST = {"with extensions": EXAMPLES // 20, "batches": EXAMPLES // 20}
"""Fewer than elsewhere: batches, and tags in an extension, are for the ordinary way."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[BrokerService, Puller]]:
    @cache
    def open_store(name: str) -> tuple[BrokerService, Puller]:
        write, options = STORES[name]
        writer = StoreWriter(tmp_path_factory.mktemp("store") / "store", **options)
        write(writer)
        writer.close()
        if name == "derived":  # all queues lie in one file, one behind the other
            with_rocksdb_queues(writer.root)
        service = service_of(MessageStore.open(writer.root))
        queues = [(topic, number, queue.max_offset) for topic in ("TopicTest", "Grüße") for number in (0, 1)
                  if (queue := service.store.queues.queue(topic, number)) is not None]  # fmt: skip
        return service, Puller(random.Random(0), queues, SUBSCRIPTIONS)

    return open_store


Written = Callable[[str], tuple[BrokerService, Puller]]


@pytest.fixture
def service(tmp_path: Path) -> BrokerService:
    """A store of one queue with 100 messages, tag A and B in turn."""
    messages = (appended("T", b"%d" % number, tags="AB"[number % 2]) for number in range(100))
    writer = closed_store(tmp_path / "store", *messages, queue_file_size=20_000)
    return service_of(MessageStore.open(writer.root))


def taught(service: BrokerService, frame: bytes) -> LaneConnections:
    road = LaneConnections(service, has_lane=True)
    for _ in range(3):
        asyncio.run(road.answer([frame]))
    assert road.taken == 1, "a third pull is taken"
    return road


def told(answer: tuple[bytes, bool]) -> tuple[int, dict[str, str]]:
    command = decode_command(FrameDecoder(1 << 24).feed(answer[0])[-1])
    return command.code, ext_fields_of(command)


# ------------------------ the same answers


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 4))])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] if name in LIKE_OTHERS else []) for name in STORES]
)
def test_pulls_are_answered_alike_with_and_without_the_lane(name: str, seed: int, written: Written) -> None:
    service, puller = written(name)
    puller.generator.seed(seed)
    taken = asyncio.run(compare(service, [[puller.frame()] for _ in range(EXAMPLES)]))
    assert taken > TAKEN_AT_LEAST.get(name, EXAMPLES // 8), "the lane declines nearly everything"


# ------------------------ what is known, and for how long

OF_ITS_OWN_KIND = {
    "another group": pull("T", consumerGroup="Other"),
    "another queue": pull("T", 1),
    "another topic": pull("U"),
    "another number": pull("T", maxMsgNums=31),
    "other bytes": pull("T", maxMsgBytes=1000),
    "no bytes": pull("T", maxMsgBytes=None),
    "another flag": pull("T", sysFlag=SUBSCRIPTION_FLAG | COMMIT_FLAG),
    "another version": pull("T", subVersion=2),
    "another subscription": pull("T", subscription="A"),
    "no subscription": pull("T", subscription=None),
    "an empty subscription": pull("T", subscription=""),
    "another type": pull("T", expressionType="SQL92"),
    "no type": pull("T", expressionType=None),
    "a lite pull": pull("T", code=LITE_PULL),
    "an offset before the queue": pull("T", 0, -1),
    "an offset behind the queue": pull("T", 0, 100),
    "a far offset": pull("T", 0, 2**62),
    "a field missing": request(PULL, {"topic": "T", "queueId": "0", "queueOffset": "0"}),
    "a oneway pull": frame_of(pull("T")[8:].replace(b'"flag":0', b'"flag":2')),
    "a body": frame_of(pull("T")[8:], b"x"),
    "a binary header": encode_request(PULL, {}, opaque=1, serialize_type=1),
}


def test_a_pull_of_its_own_kind_is_not_taken_for_a_known_one(service: BrokerService) -> None:
    road = taught(service, pull("T"))
    for name, frame in OF_ITS_OWN_KIND.items():
        assert road.lane.answer(frame + pull("T")) == (b"", 0, NOT_TAKEN), name
        asyncio.run(compare(service, [[frame], [frame], [frame], [frame + pull("T")]]))


def test_what_is_known_is_forgotten_when_the_store_is_read_anew(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", queue_file_size=200)
    for number in range(25):
        writer.append("T", b"%d" % number)
    writer.flush()
    service = service_of(MessageStore.open(writer.root))
    road = taught(service, pull("T", 0, 20))
    before = told(asyncio.run(road.answer([pull("T", 0, 20)])))
    writer.append("T", b"more")
    writer.close()
    service.store.refresh()
    assert before[1]["maxOffset"] == "25"
    assert told(asyncio.run(road.answer([pull("T", 0, 20)])))[1]["maxOffset"] == "26"
    assert road.taken == 2
    assert asyncio.run(compare(service, [[pull("T", 0, 20)]] * 5)) > 2


@pytest.mark.parametrize("is_cold", [True, False])
def test_a_row_that_would_have_to_wait_is_not_made(is_cold, service, monkeypatch) -> None:
    """The row of a pull at a file's start looks at the file before it, which may be cold, or expired by then."""

    def fail(*_):
        if is_cold:
            yield Wait("a cold page")
        raise StoreError(Path("0"), what="cannot be opened")

    road = LaneConnections(service, has_lane=True)
    with monkeypatch.context() as patch:
        patch.setattr(_known_pulls.KnownPulls, "_known_pull", fail)
        for _ in range(4):
            answer, is_closed = asyncio.run(road.answer([pull("T")]))
            assert told((answer, is_closed))[0] == 0
            assert not is_closed
        assert road.taken == 0
    asyncio.run(road.answer([pull("T")]))
    asyncio.run(road.answer([pull("T")]))
    assert road.taken == 1, "it is learned once that is possible"


@pytest.mark.parametrize("seed", range(examples(12)))
def test_pulls_beside_the_edge_of_a_damaged_file_are_answered_alike(seed, tmp_path) -> None:
    """The kernel sees no unit before the first one of a file, nor behind the last one."""
    generator = random.Random(seed)
    writer = StoreWriter(tmp_path / "store", queue_file_size=200)
    written = [writer.append("T", b"x", tags="ABC"[number % 3]) for number in range(30)]
    writer.close()
    first, stop = sorted((generator.randrange(140, 201), generator.randrange(200, 260)))
    elsewhere = generator.choice(written)
    content = {
        "zeros": bytes(stop - first),
        "anything": generator.randbytes(stop - first),
        "another message": unit_bytes(elsewhere.physical_offset, elsewhere.size, 7) * 6,
    }[("zeros", "anything", "another message")[seed % 3]]
    if seed % 3 == 2:
        first -= first % 20
    files = [tmp_path / f"store/consumequeue/T/0/{start:020d}" for start in (0, 200)]
    both = bytearray(b"".join(file.read_bytes() for file in files))
    both[first:stop] = content[: stop - first]
    for number, file in enumerate(files):
        file.write_bytes(both[200 * number : 200 * number + 200])
    service = service_of(MessageStore.open(tmp_path / "store"))
    asked = [pull("T", 0, offset, subscription=tags) for offset in range(4, 16) for tags in ("*", "A", "B", "C")] * 3
    generator.shuffle(asked)
    asyncio.run(compare(service, [[frame] for frame in asked]))


@pytest.mark.parametrize("limits", [{"ROWS": 5, "SLOTS": 64}, {"most_queue_files": lambda: 3}, {"SEEN": 4}])
def test_when_too_much_is_known_everything_is_forgotten(limits, written, monkeypatch) -> None:
    for name, limit in limits.items():
        monkeypatch.setattr(_known_pulls, name, limit)
    service, puller = written("plain")
    puller.generator.seed(3)
    assert asyncio.run(compare(service, [[puller.frame()] for _ in range(150)])) > 2


# ------------------------ groups

HEART_BEAT, UNREGISTER = 34, 35


def beat(*subscriptions: dict[str, object]) -> bytes:
    return frame_of(request(HEART_BEAT, {})[8:], heartbeat("c1", consumer(GROUP, *subscriptions)))


LEAVE = request(UNREGISTER, {"clientID": "c1", "consumerGroup": GROUP})

OF_GROUP = pull("T", sysFlag=0, subscription=None, subVersion=5)


@pytest.mark.parametrize(
    ("then", "code"),
    [
        (beat(subscription("T", "B", 5)), 0),
        (beat(subscription("T", "B", 6)), 0),
        (beat(subscription("T", "A", 4)), 0),
        (beat(subscription("T", "a > 5", 6, "SQL92")), ResponseCode.PULL_RETRY_IMMEDIATELY),
        (beat(subscription("U", "A", 5)), ResponseCode.SUBSCRIPTION_NOT_EXIST),
        (beat(), ResponseCode.SUBSCRIPTION_NOT_EXIST),
        (LEAVE, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    ],
    ids=["as old", "newer", "older", "an expression", "another topic", "no topic", "gone"],
)
def test_what_a_group_subscribes_to_holds_until_it_says_otherwise(then, code, service) -> None:
    """One connection tells, pulls three times, tells something else and pulls on; with and without the lane."""
    reads = [beat(subscription("T", "A", 5)), *[OF_GROUP] * 4, then, *[OF_GROUP] * 4]
    with_lane, without = LaneConnections(service, has_lane=True), LaneConnections(service, has_lane=False)
    answers = asyncio.run(with_lane.answer(reads))
    assert answers == asyncio.run(without.answer(reads))
    assert told(answers)[0] == code
    assert with_lane.taken >= 2


# ------------------------ commits


def test_the_offsets_that_pulls_commit_are_handed_on(service: BrokerService) -> None:
    committing = {"sysFlag": SUBSCRIPTION_FLAG | COMMIT_FLAG}
    member, stranger = FakeConnection(), FakeConnection()
    joining = HeartbeatData(client_id="c1", consumer_data_set=[ConsumerData(group_name=GROUP)])
    assert service.clients.heartbeat(member, joining, "JAVA", 0)
    road = taught(service, pull("T", **committing))
    assert service.offsets.committed(GROUP, "T", 0) is None
    for offset, expected in ((5, 5), (0, 5), (-3, 5), (9, 9), (2**40, 2**40), (7, 7)):
        assert road.lane.answer(pull("T", commitOffset=offset, **committing), connection=member)[0]
        assert service.offsets.committed(GROUP, "T", 0) == expected
    for number in range(1, 300):
        road.lane.answer(pull("T", commitOffset=number, **committing), connection=member)
    assert service.offsets.committed(GROUP, "T", 0) == 299
    assert road.taken == 1 + 6 + 299
    for connection in (stranger, None):
        assert road.lane.answer(pull("T", commitOffset=5, **committing), connection=connection)[0]
        assert service.offsets.committed(GROUP, "T", 0) == 299, "its client is no member"
    asyncio.run(road.answer([pull("T", commitOffset=5)]))
    assert service.offsets.committed(GROUP, "T", 0) == 299, "it did not ask for it"


def test_a_connection_hands_its_pulls_to_the_lane_as_its_own(service: BrokerService) -> None:
    road = taught(service, pull("T", sysFlag=SUBSCRIPTION_FLAG | COMMIT_FLAG))
    committing = pull("T", sysFlag=SUBSCRIPTION_FLAG | COMMIT_FLAG, commitOffset=6)
    taken = road.taken
    asyncio.run(road.answer([committing, beat()]))
    assert road.taken == taken + 1
    assert service.offsets.committed(GROUP, "T", 0) == 6, "it was held until the client joined"


# ------------------------ limits, and the end


def test_no_bytes_make_the_kernel_read_or_write_outside(written: Written) -> None:
    service, puller = written("one file a queue")
    puller.generator.seed(5)
    road = LaneConnections(service, has_lane=True)
    frames = [puller.frame() for _ in range(60)]
    for frame in frames * 3:
        asyncio.run(road.answer([frame]))
    lane, guarded = road.lane, Guarded(65536)
    for number in range(FUZZED):
        data = mutated(puller.generator, puller.generator.choice(frames))
        if number % 4 == 0:
            data = data[: puller.generator.randrange(len(data) + 1)]
        _, consumed, reason = lane.answer(guarded.put(data))
        assert 0 <= consumed <= len(data)
        assert reason in (LEFT_OVER, NOT_TAKEN, WANTS_MORE)


def test_reads_of_many_pulls_are_answered_alike(written: Written) -> None:
    service, puller = written("plain")
    generator = puller.generator
    generator.seed(7)
    streams = []
    for _ in range(60):
        data = b"".join(puller.frame() for _ in range(generator.randint(1, 40)))
        cuts = sorted(generator.randrange(len(data) + 1) for _ in range(generator.choice((0, 0, 1, 3))))
        streams.append([data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)])
    assert asyncio.run(compare(service, streams)) > 200


@pytest.mark.parametrize(
    "frame",
    [
        pull("T", 0, 50),
        pull("T", 0, 99, opaque=-5),
        pull("T", commitOffset=7),
        pull("T", suspendTimeoutMillis=1, bname="other", lo="false", ns="", requestSource=5, liteTopic="x"),
        request(PULL, {"consumerGroup": GROUP, "topic": "T", "subscription": "*", "queueId": 0, "queueOffset": 3,
                       "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 1,
                       "expressionType": "TAG", "maxMsgBytes": 262144}),
    ],
)  # fmt: skip
def test_one_more_of_a_known_kind_is_taken(frame: bytes, service: BrokerService) -> None:
    road = taught(service, pull("T"))
    assert road.lane.answer(frame)[1:] == (len(frame), LEFT_OVER)
    codes = RequestCode
    assert road.lane.answered == {codes.VIEW_MESSAGE_BY_ID: 0, codes.QUERY_MESSAGE: 0, PULL: 2, LITE_PULL: 0}


def test_a_known_pull_that_finds_nothing_is_for_the_ordinary_way(service: BrokerService) -> None:
    road = taught(service, pull("T", subscription="A"))
    assert road.lane.answer(pull("T", 0, 99, subscription="A"))[2] == NOT_TAKEN
    assert road.lane.answer(pull("T", 0, 98, subscription="A"))[2] == LEFT_OVER


@pytest.mark.parametrize("is_older", [False, True])
def test_a_pull_found_in_an_older_snapshot_teaches_nothing(is_older: bool, service: BrokerService) -> None:
    road = taught(service, pull("T"))
    without = LaneConnections(service, has_lane=False, learn=road.lane.learn)
    for _ in range(2):
        asyncio.run(without.answer([pull("T", maxMsgNums=5)]))
    if is_older:
        service.store._current.change(replace)
    asyncio.run(road.answer([pull("T", maxMsgNums=5)]))
    assert road.taken == (1 if is_older else 2)


def test_files_that_are_gone_do_not_wait_for_a_request_to_be_let_go(service: BrokerService) -> None:
    road = taught(service, pull("T"))
    (held,) = map(weakref.ref, road.lane._known._files)
    queues = service.store.layout.root / "consumequeue" / "T"
    shutil.copytree(queues, queues.with_name("U"))
    shutil.rmtree(queues)
    service.store.refresh()
    gc.collect()
    assert held() is None
    assert road.taken == 1


def test_a_row_keeps_its_file_until_it_is_released() -> None:
    """A kernel reads the file, so the row holds it even if the store and all others have let it go."""
    file = HeldFile(bytes(2_000))
    kind = kernel.PullKind(RequestCode.PULL_MESSAGE, b"T", b"G", b"*", None, 0, 32, None, 0, 0)
    choice, template = Choice(EVERYTHING), template_with(2)
    known = kernel.KnownPulls(1, 4)
    known.add(kernel.KnownPull(kind, file, 0, 0, 100, 0, 100, 32, 32, 1 << 20, choice, 0, template), 0)
    held = weakref.ref(file)
    del file
    gc.collect()
    assert held() is not None
    known.release()
    gc.collect()
    assert held() is None
    assert (len(known), known.pulled()) == (1, [(0, 0)])


def test_no_more_found_pulls_are_kept_than_a_few(service: BrokerService) -> None:
    road = LaneConnections(service, has_lane=False, learn=(lane := FastLane(service)).learn)
    for _ in range(2 * KEPT):
        asyncio.run(road.answer([pull("T")]))
    assert len(lane._known.found) == KEPT


def test_rows_whose_hashes_meet_are_told_apart(monkeypatch: pytest.MonkeyPatch, written: Written) -> None:
    monkeypatch.setattr(_known_pulls, "SLOTS", 8)
    monkeypatch.setattr(_known_pulls, "ROWS", 7)
    service, puller = written("one file a queue")
    frames = [pull(topic, queue_id, subscription=chosen) for topic, queue_id, _ in puller.queues for chosen in "*A"]
    assert asyncio.run(compare(service, [[frame] for _ in range(10) for frame in frames[:6]])) > 20


def test_a_group_without_members_is_no_group(service: BrokerService) -> None:
    road = LaneConnections(service, has_lane=True)
    asyncio.run(road.answer([beat(subscription("T", "A", 5)), *[OF_GROUP] * 4]))
    assert road.taken == 2
    (code, _) = told(asyncio.run(road.answer([OF_GROUP])))
    assert code == ResponseCode.SUBSCRIPTION_NOT_EXIST, "the connection is gone"


def test_answers_keep_to_the_frame_limit(tmp_path: Path) -> None:
    writer = closed_store(tmp_path / "store", *(appended("T", bytes(30_000)) for _ in range(60)), segment_size=1 << 20)
    for limit in (65_536, 1 << 24):
        service = service_of(MessageStore.open(writer.root), frame_limit=limit)
        frames = [pull("T", maxMsgBytes=size) for size in (262144, 1 << 20) for _ in range(4)]
        assert asyncio.run(compare(service, [[frame] for frame in frames])) == 6


async def test_a_server_that_stops_refuses_known_pulls_too(service: BrokerService) -> None:
    async with serving(service) as server, connected(server.addresses[0]) as client:
        lane = server.lane

        async def code() -> int:
            client.writer.write(pull("T"))
            return (await client.answer()).code

        codes = [await code() for _ in range(50)]
        taken = lane.answered[RequestCode.PULL_MESSAGE]
        assert taken > 5, "a start may forget some"
        assert set(codes) == {0}
        service.polls.stop()
        assert await code() != 0
        assert lane.answered[RequestCode.PULL_MESSAGE] == taken
