"""A message's life: g1's as recorded, and what g1 lacks as the layouts have it."""

import json
from pathlib import Path

import pytest

from golden_store import G1, GOLDEN, unpack
from protocol.message import decode_message
from protocol.system_topics import Stage
from protocol.trace import TraceKind
from storage.life.message_life import Event, MessageLife, find_life
from storage.life.verdicts import Ending
from storage.queue.consume_queue import ConsumeQueueEntry
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

FAILED = [line.split("\t") for line in (G1 / "consumed-fail.tsv").read_text("utf-8").splitlines()[1:]]
assert FAILED
VECTORS = [line.split("\t") for line in (G1.parent / "trace-vectors.tsv").read_text("utf-8").splitlines()]
TRACED = "7F0000010007"


@pytest.fixture(scope="module")
def g1(g1_store: Path) -> MessageStore:
    return MessageStore.open(g1_store)


@pytest.fixture(scope="module")
def g2(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    """A broker with light queues and a timer, and a group that failed until messages were given up."""
    return MessageStore.open(unpack("store", tmp_path_factory.mktemp("g2"), archives=GOLDEN / "g2" / "g2-queues"))


def unique_key_of(label: str) -> str:
    """The id that the producer of g2-queues gave the message with a label."""
    lines = (GOLDEN / "g2" / "g2-queues" / "produced.tsv").read_text("utf-8").splitlines()
    return next(fields[2] for fields in (line.split("\t") for line in lines) if fields[0] == label)


def said(life: MessageLife) -> list[tuple[str, Ending, str]]:
    return [(each.group, each.ending, each.text) for each in life.verdicts]


def stages(events: tuple[Event, ...]) -> list[Stage | None]:
    return [event.stage for event in events]


@pytest.mark.parametrize("topic", [None, "TopicBatch"])
def test_a_failed_message_was_delivered_waited_and_came_back(g1: MessageStore, topic: str | None) -> None:
    for row in FAILED:
        life = find_life(g1, row[4], topic)
        assert life.incomplete is None
        assert stages(life.events) == [Stage.DELIVERED, Stage.SCHEDULED, Stage.RETRY]
        delivered, waiting, back = (event.message for event in life.events)
        assert delivered is not None
        assert waiting is not None
        assert back is not None
        assert (delivered.reconsume_times, waiting.reconsume_times, back.reconsume_times) == (0, 1, 1)
        # The group read on behind it: consumerOffset.json has TopicBatch@CG_FAIL {1: 10}.
        (progress,) = life.events[0].groups
        assert (progress.group, progress.next_offset, progress.has_passed) == ("CG_FAIL", 10, True)
        # delayOffset.json has {1: 1, 3: 10}; level 3 are ten seconds.
        assert life.events[1].note == "delay level 3, delivered"
        assert life.events[1].until_timestamp == life.events[1].timestamp + 10_000
        assert life.events[2].timestamp >= life.events[1].until_timestamp


def test_a_message_that_a_group_failed_on_to_the_end_came_to_its_dead_letters(g2: MessageStore) -> None:
    life = find_life(g2, unique_key_of("light-0"), "LightParent")
    assert [(event.stage, event.message.reconsume_times) for event in life.events if event.message] == [
        (Stage.DELIVERED, 0),
        (Stage.SCHEDULED, 1),
        (Stage.RETRY, 1),
        (Stage.SCHEDULED, 2),
        (Stage.RETRY, 2),
        (Stage.DEAD_LETTER, 3),
    ]
    passed = [[group.has_passed for group in event.groups] for event in life.events]
    assert passed == [[True], [], [True], [], [True], []]
    # Its group tried again twice, and the broker counted the last failure too.
    (failed,) = life.events[0].groups
    assert failed.has_passed
    assert said(life) == [(failed.group, Ending.GAVE_UP, "gave up after 2 retries → DLQ")]
    assert life.events[-1].note == f"{failed.group} gave up after 2 retries → DLQ"
    times = [event.timestamp for event in life.events]
    assert times == sorted(times)


@pytest.mark.parametrize("label", ["timer-delay-sec", "timer-deliver-ms"])
def test_a_timed_message_waited_until_the_moment_that_its_sender_set(g2: MessageStore, label: str) -> None:
    waiting, delivered = find_life(g2, unique_key_of(label)).events
    assert (waiting.stage, delivered.stage) == (Stage.TIMER, Stage.DELIVERED)
    assert waiting.until_timestamp is not None
    assert waiting.timestamp < waiting.until_timestamp <= delivered.timestamp
    assert [(each.group, each.has_passed) for each in delivered.groups] == [("CG_TIMER", True)]


@pytest.mark.parametrize(
    ("copies", "offsets", "expected"),
    [
        ([], {"T@G": 0}, "not yet"),
        ([], {"T@G": 1}, "is beyond it"),
        ([("SCHEDULE_TOPIC_XXXX", 1)], {"T@G": 1}, "failed, retry 1 waits"),
        ([("SCHEDULE_TOPIC_XXXX", 1)], {"T@G": 0}, "failed, retry 1 waits"),
        ([("%RETRY%G", 1)], {"T@G": 1}, "failed, retry 1 waits"),
        ([("%RETRY%G", 1)], {"T@G": 1, "%RETRY%G@G": 1}, "has passed it at retry 1"),
        ([("%RETRY%G", 1), ("SCHEDULE_TOPIC_XXXX", 2)], {"T@G": 1, "%RETRY%G@G": 1}, "failed, retry 2 waits"),
        ([("%DLQ%G", 17)], {"T@G": 1, "%DLQ%G@G": 1}, "gave up after 16 retries → DLQ"),
        ([("%RETRY%G", 1), ("%DLQ%G", 2)], {"T@G": 1, "%RETRY%G@G": 1}, "gave up after 1 retry → DLQ"),
        ([("%DLQ%G", 1)], {"T@G": 1}, "gave up after 0 retries → DLQ"),
        ([("%DLQ%G", 17), ("T", 0)], {"T@G": 1}, "not yet"),
        ([("%DLQ%G", 17), ("T", 0)], {"T@G": 2}, "is beyond it"),
        ([("%RETRY%G", 16), ("%RETRY%other", 1)], {"T@G": 1, "%RETRY%G@G": 1}, "has passed it at retry 16"),
    ],
)
def test_what_was_stored_last_says_how_a_message_ended_for_a_group(
    tmp_path: Path, copies: list[tuple[str, int]], offsets: dict[str, int], expected: str
) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("T", unique_key="U")
    for topic, times in copies:
        properties = {} if topic == "T" else {"RETRY_TOPIC": "T", "REAL_TOPIC": "%RETRY%G"}
        writer.append(topic, unique_key="U", properties=properties, reconsume_times=times)
    writer.close()
    config = tmp_path / "store" / "config"
    config.mkdir(exist_ok=True)
    table = {name: {"0": offset} for name, offset in offsets.items()}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    verdicts = find_life(MessageStore.open(tmp_path / "store"), "U").verdicts
    assert {each.group: each.text for each in verdicts}["G"] == expected


def test_traces_stand_among_the_records_in_order_of_time(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("T", unique_key=TRACED, store_timestamp=1795243506438)
    for kind, success, outcome, keys, data in VECTORS:
        if (kind, success, outcome) in (("Pub", "true", "SUCCESS"), ("SubBefore", "true", "SUCCESS")):
            writer.append("RMQ_SYS_TRACE_TOPIC", bytes.fromhex(data), keys=keys, store_timestamp=1795243506440)
        if (kind, success, outcome) == ("SubAfter", "false", "TIME_OUT"):
            writer.append("my_traces", bytes.fromhex(data), keys=keys, store_timestamp=1795243506450)
    # Of another message, under a key that this one has too.
    other = b"Recall\x011\x01r\x01g\x01T\x01OTHER\x01true\x02"
    writer.append("RMQ_SYS_TRACE_TOPIC", other, keys=TRACED, store_timestamp=1795243506450)
    writer.close()
    store = MessageStore.open(tmp_path / "store")
    sent, begun, stored = find_life(store, TRACED).events
    assert sent.trace is not None
    assert begun.trace is not None
    assert [sent.trace.kind, begun.trace.kind, stored.stage] == [TraceKind.SENT, TraceKind.CONSUMING, Stage.DELIVERED]
    assert sent.timestamp == begun.timestamp == 1795243506437
    with_own = find_life(store, TRACED, trace_topics=["my_traces"]).events
    assert [event.trace.outcome for event in with_own if event.trace and event.trace.outcome] == ["TIME_OUT"]


def test_an_end_without_a_time_takes_it_from_its_beginning(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    begun = next(data for kind, _, _, _, data in VECTORS if kind == "SubBefore")
    ended = b"SubAfter\x01request-1\x01" + TRACED.encode() + b"\x0125\x01true\x01k\x020"
    writer.append("RMQ_SYS_TRACE_TOPIC", bytes.fromhex(begun) + ended, keys=TRACED, born_timestamp=9)
    writer.close()
    _, end = find_life(MessageStore.open(tmp_path / "store"), TRACED).events
    assert (end.timestamp, end.note) == (1795243506437 + 25, "by group group-1")


def test_half_messages_in_topics_of_their_own_end_like_others(tmp_path: Path) -> None:
    store = MessageStore.open(unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-rocksdb-killed"))
    halves = [decode_message(store.record_at(entry.physical_offset) or b"") for entry in entries_of(store)]
    committed, rolled_back = (find_life(store, half.properties["UNIQ_KEY"], "LedgerTransactions") for half in halves)
    assert stages(committed.events) == [Stage.HALF, Stage.DELIVERED]
    assert committed.events[0].note == "committed"
    (half,) = rolled_back.events
    assert (half.message.topic, half.note) == ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "rolled back")


def entries_of(store: MessageStore) -> list[ConsumeQueueEntry]:
    queue = store.queues.queue("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", 0)
    assert queue is not None
    return queue.entries(0, 2)
