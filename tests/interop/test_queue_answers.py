"""The official store classes and ours asked the same about the same queues, and the broker; and about new groups."""

import itertools
import random
import shutil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from asking import Asker
from examples import examples
from golden_frames import value_of
from interop.official_broker import official_broker
from interop.recovery_oracle import Sizes
from interop.wire import ask
from oracles import signed
from protocol.codes import RequestCode, ResponseCode
from queue_stores import open_queues
from storage.filter.tag import TagFilter, parse_tag_expression
from storage.query.get_message import get_message
from storage.queue.queue import TimeBoundary
from store_writer import START_TIMESTAMP, StoreWriter

pytestmark = pytest.mark.interop

PROPERTIES = {
    "mappedFileSizeCommitLog": "4096", "mappedFileSizeConsumeQueue": "400", "mapperFileSizeBatchConsumeQueue": "920",
    "maxHashSlotNum": "97", "maxIndexNum": "150", "fileReservedTime": "100000"
}  # fmt: skip
QUEUES = [("Plain", 0), ("Plain", 1), ("Late", 0), ("Batch", 0), ("Gone", 0), ("nosuch", 0)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("queues") / "store"
    numbers = random.Random(7)
    writer = StoreWriter(root, segment_size=4096, queue_file_size=400, batch_queue_file_size=920)
    for _ in range(10):
        writer.append("Gone", bytes(300))
    for _ in range(70):
        stamp = writer.last_store_timestamp + numbers.choice([0, 0, 1, 3])
        tag = numbers.choice(["TagA", "TagB", "Aa", "BB", None])
        writer.append("Plain", bytes(numbers.randrange(200)), queue_id=0, tags=tag, store_timestamp=stamp)
        writer.append("Plain", b"short", queue_id=1, tags=tag, store_timestamp=stamp)
        late = max(writer.next_queue_offset["Late", 0], 23)
        writer.append("Late", b"late", queue_offset=late, store_timestamp=stamp)
        batch = [(b"%d" % number, {}) for number in range(numbers.randrange(1, 5))]
        writer.append_inner_batch("Batch", batch, store_timestamp=stamp)
    writer.close()
    for path in sorted((root / "commitlog").iterdir())[:2]:
        path.unlink()
    return root


@pytest.fixture(scope="module")
def broker(store, tmp_path_factory):
    work = tmp_path_factory.mktemp("official")
    shutil.copytree(store, work / "store")
    with official_broker(work / "store", work, properties=PROPERTIES) as running:
        yield running


def queue_of(store, topic, queue_id):
    return open_queues(store)[0].queue(topic, queue_id)


def offset_asked(broker, code, topic, queue_id, **more) -> int:
    answer = ask(broker.address, code, {"topic": topic, "queueId": str(queue_id), **more})
    assert answer.code == 0, answer.header
    return int(answer.header["extFields"]["offset"])


@pytest.mark.untraced
@pytest.mark.parametrize("version", ["5.5.0"], indirect=True)  # 4.9 finds no minimum among expired messages
def test_bounds_times_and_pulls_are_those_of_the_store_classes(store, oracle, tmp_path) -> None:
    shutil.copytree(store, tmp_path / "store")
    assert oracle.load(tmp_path / "store", Sizes(4096, 400, 920, 97)).is_loaded
    queues, pulled = open_queues(store)[0], 0
    for topic, queue_id in QUEUES[:-1]:
        queue = queue_of(store, topic, queue_id)
        times = range(START_TIMESTAMP, START_TIMESTAMP + 110, 2)
        for boundary in TimeBoundary if queue_id or topic != "Batch" else ():
            ours = [queue.offset_by_timestamp(each, boundary) for each in times]
            assert ours == oracle.offsets_by_time(topic, queue_id, boundary.name, times), (topic, boundary)
        for offset, maximum in itertools.product(range(0, queue.max_offset + 3, 5), (1, 32)):
            found = get_message(queues, topic, queue_id, offset, maximum, 100000)
            places = [signed(bytes(record), 28, 8) for record in found.records]
            outcome = (found.status.name, found.next_begin_offset, found.min_offset, found.max_offset, places)
            assert outcome == oracle.pull(topic, queue_id, offset, maximum), (topic, queue_id, offset, maximum)
            pulled += len(places)
    assert pulled > 500


@pytest.mark.soak
@pytest.mark.parametrize(("topic", "queue_id"), QUEUES)
def test_bounds_are_the_brokers(topic, queue_id, store, broker) -> None:
    queue = queue_of(store, topic, queue_id)
    found = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
    codes = RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET
    assert found == tuple(offset_asked(broker, code, topic, queue_id) for code in codes)


def searched(broker, queue, timestamp, boundary) -> tuple[int, int]:
    more = {"timestamp": str(timestamp), "boundaryType": boundary.value}
    theirs = offset_asked(broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue.topic, queue.queue_id, **more)
    return theirs, queue.offset_by_timestamp(timestamp, boundary)


@pytest.mark.soak
@pytest.mark.parametrize(("topic", "queue_id"), QUEUES[:3])
@pytest.mark.parametrize("boundary", TimeBoundary)
def test_searches_for_a_time_are_the_brokers(topic, queue_id, boundary, store, broker) -> None:
    queue = queue_of(store, topic, queue_id)
    assert queue is not None
    for timestamp in range(START_TIMESTAMP, START_TIMESTAMP + 110, 2):
        theirs, ours = searched(broker, queue, timestamp, boundary)
        assert ours == theirs, timestamp - START_TIMESTAMP


@pytest.mark.soak
@pytest.mark.parametrize(("topic", "queue_id"), QUEUES)
@pytest.mark.parametrize("tags", ["*", "Aa || TagB"])
def test_pulls_are_the_brokers(topic, queue_id, tags, store, broker) -> None:
    queues, _ = open_queues(store)
    queue = queues.queue(topic, queue_id)
    for queue_offset in range(0, (0 if queue is None else queue.max_offset) + 3, 5):
        for maximum in (1, 32):
            fields = {
                "topic": topic, "queueId": str(queue_id), "queueOffset": str(queue_offset), "maxMsgNums": str(maximum),
                "consumerGroup": "SELF_TEST_C_GROUP", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                "subscription": tags, "subVersion": "0", "expressionType": "TAG", "maxMsgBytes": "100000",
            }  # fmt: skip
            theirs = ask(broker.address, RequestCode.PULL_MESSAGE, fields)
            chosen = TagFilter(parse_tag_expression(tags))
            ours = get_message(queues, topic, queue_id, queue_offset, maximum, 100000, chosen)
            if topic == "nosuch":
                assert theirs.code == ResponseCode.TOPIC_NOT_EXIST
                continue
            ext = theirs.header["extFields"]
            expected = (theirs.header["remark"], *(int(ext[n]) for n in ("nextBeginOffset", "minOffset", "maxOffset")))
            found = (ours.status.name, ours.next_begin_offset, ours.min_offset, ours.max_offset)
            assert found == expected, (queue_offset, maximum)
            assert b"".join(ours.records) == theirs.body, (queue_offset, maximum)


@pytest.mark.soak
@pytest.mark.parametrize(("topic", "queue_id"), QUEUES[:4])
def test_units_are_the_brokers(topic, queue_id, store, broker) -> None:
    queue = queue_of(store, topic, queue_id)
    for queue_offset in range(queue.min_offset, queue.max_offset, 7):
        fields = {"topic": topic, "queueId": str(queue_id), "index": str(queue_offset), "count": "5"}
        body = value_of(ask(broker.address, RequestCode.QUERY_CONSUME_QUEUE, fields).body)
        theirs = [(unit["physicOffset"], unit["physicSize"], unit["tagsCode"]) for unit in body["queueData"]]
        entries = queue.entries(queue_offset, 5)
        ours = [(entry.physical_offset, entry.size, entry.tags_code) for entry in entries]
        assert ours[: len(theirs)] == theirs
        assert theirs


GROUP_NAMES = st.one_of(
    st.text(st.sampled_from("abzAZ019_-%|"), min_size=1, max_size=20),
    st.text(max_size=20),
    st.integers(118, 122).map("g".__mul__),
)


@pytest.fixture(scope="module")
def asker(store) -> Asker:
    return Asker(store)


@settings(max_examples=examples(8))
@given(name=GROUP_NAMES)
@example(name="%RETRY%g")
@example(name="g.h")
@example(name="g\n")
def test_a_group_of_which_nobody_has_heard_is_as_the_broker_makes_it(name, asker, stock) -> None:
    """The broker keeps it from then on; we do not."""
    fields = {"group": name}
    theirs = ask(stock.pair.broker.address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, fields)
    ours = asker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, fields)
    assert (ours.code, ours.remark) == (theirs.code, theirs.header.get("remark"))
    assert value_of(bytes(ours.body)) == value_of(theirs.body)
    assert not asker.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
