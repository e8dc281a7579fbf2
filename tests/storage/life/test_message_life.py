"""The life of a message: recorded cases, transactions, and what the checks say."""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from damaged_units import damage_queues
from examples import examples
from golden_store import CASES, G1, GOLDEN, unpack
from protocol.message import decode_message
from protocol.system_topics import Stage
from protocol.trace import TraceKind
from storage.life.message_life import find_life
from storage.life.pending import Pending, PendingState
from storage.life.transactions import endings
from storage.life.verdicts import LONGEST_FILTER, Ending, KnownFilter, Passage
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter

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


def said(life):
    return [(each.group, each.ending, each.text) for each in life.verdicts]


def stages(events):
    return [event.stage for event in events]


def test_a_failed_message_was_delivered_waited_and_came_back(g1: MessageStore) -> None:
    for row in FAILED:
        life = find_life(g1, row[4])
        assert life.incomplete is None
        assert stages(life.events) == [Stage.DELIVERED, Stage.SCHEDULED, Stage.RETRY]
        assert [event.message.reconsume_times for event in life.events] == [0, 1, 1]
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
        (Stage.DELIVERED, 0), (Stage.SCHEDULED, 1), (Stage.RETRY, 1), (Stage.SCHEDULED, 2), (Stage.RETRY, 2),
        (Stage.DEAD_LETTER, 3),
    ]  # fmt: skip
    passed = [[group.has_passed for group in event.groups] for event in life.events]
    assert passed == [[True], [], [True], [], [True], []]
    # Its group tried again twice, and the broker counted the last failure too.
    (failed,) = life.events[0].groups
    assert failed.has_passed
    assert said(life) == [(failed.group, Ending.GAVE_UP, "gave up after 2 retries → DLQ")]
    assert life.events[-1].note == f"{failed.group} gave up after 2 retries → DLQ"
    times = [event.timestamp for event in life.events]
    assert times == sorted(times)


@pytest.mark.parametrize(("copies", "offsets", "expected"), [
    ([], {"T@G": 0}, "not yet"),
    ([], {"T@G": 1}, "is beyond it"),
    ([("SCHEDULE_TOPIC_XXXX", 1)], {"T@G": 1}, "failed, retry 1 waits"),
    ([("%RETRY%G", 1)], {"T@G": 1, "%RETRY%G@G": 1}, "has passed it at retry 1"),
    ([("%RETRY%G", 1), ("SCHEDULE_TOPIC_XXXX", 2)], {"T@G": 1, "%RETRY%G@G": 1}, "failed, retry 2 waits"),
    ([("%DLQ%G", 17)], {"T@G": 1, "%DLQ%G@G": 1}, "gave up after 16 retries → DLQ"),
    ([("%RETRY%G", 1), ("%DLQ%G", 2)], {"T@G": 1, "%RETRY%G@G": 1}, "gave up after 1 retry → DLQ"),
    ([("%DLQ%G", 17), ("T", 0)], {"T@G": 1}, "not yet"),
    ([("%RETRY%G", 16), ("%RETRY%other", 1)], {"T@G": 1, "%RETRY%G@G": 1}, "has passed it at retry 16"),
])  # fmt: skip
def test_what_was_stored_last_says_how_a_message_ended_for_a_group(tmp_path, copies, offsets, expected) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        writer.append("T", unique_key="U")
        for topic, times in copies:
            properties = {} if topic == "T" else {"RETRY_TOPIC": "T", "REAL_TOPIC": "%RETRY%G"}
            writer.append(topic, unique_key="U", properties=properties, reconsume_times=times)
        writer.consumer_offsets = {name: {0: offset} for name, offset in offsets.items()}
    verdicts = find_life(MessageStore.open(tmp_path / "store"), "U").verdicts
    assert {each.group: each.text for each in verdicts}["G"] == expected


def test_traces_stand_among_the_records_in_order_of_time(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        writer.append("T", unique_key=TRACED, store_timestamp=1795243506438)
        for kind, success, outcome, keys, data in VECTORS:
            if (kind, success, outcome) in (("Pub", "true", "SUCCESS"), ("SubBefore", "true", "SUCCESS")):
                writer.append("RMQ_SYS_TRACE_TOPIC", bytes.fromhex(data), keys=keys, store_timestamp=1795243506440)
            if (kind, success, outcome) == ("SubAfter", "false", "TIME_OUT"):
                writer.append("my_traces", bytes.fromhex(data), keys=keys, store_timestamp=1795243506450)
        # Of another message, under a key that this one has too.
        other = b"Recall\x011\x01r\x01g\x01T\x01OTHER\x01true\x02"
        writer.append("RMQ_SYS_TRACE_TOPIC", other, keys=TRACED, store_timestamp=1795243506450)
    store = MessageStore.open(tmp_path / "store")
    sent, begun, stored = find_life(store, TRACED).events
    assert [sent.trace.kind, begun.trace.kind, stored.stage] == [TraceKind.SENT, TraceKind.CONSUMING, Stage.DELIVERED]
    assert sent.timestamp == begun.timestamp == 1795243506437
    with_own = find_life(store, TRACED, trace_topics=["my_traces"]).events
    assert [event.trace.outcome for event in with_own if event.trace and event.trace.outcome] == ["TIME_OUT"]


def test_an_end_without_a_time_takes_it_from_its_beginning(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        begun = next(data for kind, _, _, _, data in VECTORS if kind == "SubBefore")
        ended = b"SubAfter\x01request-1\x01" + TRACED.encode() + b"\x0125\x01true\x01k\x020"
        writer.append("RMQ_SYS_TRACE_TOPIC", bytes.fromhex(begun) + ended, keys=TRACED, born_timestamp=9)
    _, end = find_life(MessageStore.open(tmp_path / "store"), TRACED).events
    assert (end.timestamp, end.note) == (1795243506437 + 25, "by group group-1")


def test_half_messages_in_topics_of_their_own_end_like_others(tmp_path: Path) -> None:
    store = MessageStore.open(unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-rocksdb-killed"))
    entries = store.queues.queue("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", 0).entries(0, 2)
    halves = [decode_message(store.record_at(entry.physical_offset) or b"") for entry in entries]
    committed, rolled_back = (find_life(store, half.properties["UNIQ_KEY"], "LedgerTransactions") for half in halves)
    assert stages(committed.events) == [Stage.HALF, Stage.DELIVERED]
    assert committed.events[0].note == "committed"
    (half,) = rolled_back.events
    assert (half.message.topic, half.note) == ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "rolled back")


HALF, OPERATIONS, DISCARDED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"


@dataclass
class Half:
    """A half message that was written, and what became of it, in order."""

    physical_offset: int
    queue_offset: int
    checks: int
    done: list[str] = field(default_factory=list)
    commits: int = 0
    is_rolled_back: bool = False


class Broker:
    def __init__(self, writer: StoreWriter) -> None:
        self.writer, self.halves = writer, {}

    def _append(self, topic: str, key: str, checks: int, **more: int) -> tuple[int, int]:
        properties = {"TRANSACTION_CHECK_TIMES": str(checks)} if checks else {}
        properties |= {} if topic == "T" else {"REAL_TOPIC": "T"}
        more |= {"unique_key": key, "properties": properties, "born_timestamp": 1_700_000_000_500 + sum(map(ord, key))}
        written = self.writer.append(topic, key.encode(), **more)
        return written.physical_offset, written.queue_offset

    def prepare(self, key: str, checks: int = 0) -> None:
        half = Half(*self._append(HALF, key, checks), checks)
        self.halves.setdefault(key, []).append(half)

    def put_back(self, key: str) -> None:
        last = self.halves[key][-1]
        self.prepare(key, last.checks + 1)
        last.done.append(f"put back for check {last.checks + 1} ({self.halves[key][-1].physical_offset})")

    def commit(self, key: str, half: Half) -> None:
        self._append("T", key, half.checks, sys_flag=8, prepared_transaction_offset=half.physical_offset)
        self._operate(half)
        half.commits += 1

    def roll_back(self, half: Half) -> None:
        self._operate(half)
        half.is_rolled_back = True

    def _operate(self, half: Half) -> None:
        self.writer.append(OPERATIONS, f"{half.queue_offset},".encode(), tags="d")

    def discard(self, key: str) -> None:
        last = self.halves[key][-1]
        place, _ = self._append(DISCARDED, key, last.checks)
        times = f"checked {last.checks} time{'s' * (last.checks != 1)}, " if last.checks else ""
        last.done.append(f"{times}given up ({place})")


STEPS = st.lists(
    st.tuples(
        st.sampled_from("AB"), st.sampled_from(["put back", "commit", "roll back", "discard"]), st.integers(0, 9)
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=examples(8))
@given(STEPS, st.sets(st.integers(0, 9)), st.none() | st.integers(0, 2))
@example([("A", "roll back", 0), ("B", "roll back", 0)], {0}, None)
@example([("A", "roll back", 0)] * 6, set(), 0)
def test_a_half_message_says_all_that_became_of_it(
    steps: list[tuple[str, str, int]], broken: set[int], lost: int | None
) -> None:
    """The producer may answer for a half that was put back since, commit twice, or come when it was given up.

    Units of operations may be broken, or a file of them lost.
    """
    with tempfile.TemporaryDirectory() as directory:
        with StoreWriter(Path(directory) / "store", queue_file_size=80) as writer:
            broker = Broker(writer)
            for key in "AB":
                broker.prepare(key)
            given_up = set()
            for key, step, number in steps:
                half = broker.halves[key][number % len(broker.halves[key])]
                if step == "commit":
                    broker.commit(key, half)
                elif step == "roll back" and not half.commits:
                    broker.roll_back(half)
                elif step == "put back" and key not in given_up:
                    broker.put_back(key)
                elif step == "discard" and key not in given_up:
                    broker.discard(key)
                    given_up.add(key)
        damage_queues(writer.root, broken, lost, OPERATIONS)
        store = MessageStore.open(Path(directory) / "store")
        for key in "AB":
            life = find_life(store, key)
            notes = {event.message.physical_offset: event.note for event in life.events if event.message}
            for half in broker.halves[key]:
                assert sorted(notes[half.physical_offset].split(", ")) == sorted(expected(half))
            said = life.stories[0].transaction or ""
            commits = sum(half.commits for half in broker.halves[key])
            words = {0: "", 1: "committed", **{count: f"committed {count} times" for count in range(2, 20)}}[commits]
            assert said.split(", ")[0] == words or not commits
            assert ("discarded" in said) == (key in given_up)
            is_rolled_back = any(each.is_rolled_back and not each.commits for each in broker.halves[key])
            assert ("rolled back" in said) == is_rolled_back


def expected(half: Half) -> list[str]:
    committed = ["committed" if half.commits == 1 else f"committed {half.commits} times"] * bool(half.commits)
    ended = committed or ["rolled back"] * half.is_rolled_back
    return [piece for said in half.done for piece in said.split(", ")] + ended or ["not ended"]


def test_it_is_said_where_not_all_operations_were_searched(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        broker = Broker(writer)
        broker.prepare("A")
        for number in range(1, 5):
            writer.append(OPERATIONS, f"{number},".encode(), tags="d")
        broker.roll_back(broker.halves["A"][0])
    store = MessageStore.open(tmp_path / "store")
    records = [event.message for event in find_life(store, "A").events if event.message]
    for most, said in ((4, "how it ended is not known: 4 operations were searched"), (5, "rolled back")):
        assert [each.text for each in endings(store, records, most).values()] == [said]


STORED = START_TIMESTAMP + 1


def written(directory: Path, filters: dict[str, dict[str, object]], **more: object) -> MessageStore:
    """A store with one message, and the groups `filtering` and `other` beyond it."""
    with StoreWriter(directory / "store") as writer:
        writer.append("T", b"body", unique_key="U", **more)  # type: ignore[arg-type]
        writer.consumer_offsets = {"T@filtering": {0: 1}, "T@other": {0: 1}, "T@late": {0: 0}}
    kind = {"topic": "T", "expressionType": "SQL92"}
    data = {group: {"consumerGroup": group, **kind, **each} for group, each in filters.items()}
    writer.write_config("consumerFilter.json", {"filterDataByTopic": {"T": {"topic": "T", "groupFilterData": data}}})
    return MessageStore.open(writer.root)


@pytest.mark.parametrize(
    ("registered", "ending", "passage", "text"),
    [
        ({"expression": "a > 5"}, Ending.SKIPPED, Passage.SKIPPED, "skipped by its filter"),
        ({"expression": "a > 2"}, Ending.PASSED, Passage.CONSUMED, "has passed it"),
        ({"expression": "a > 5", "bornTime": STORED}, Ending.SKIPPED, Passage.SKIPPED, "skipped by its filter"),
        # The group may have had another filter when it came to the message.
        ({"expression": "a > 5", "bornTime": STORED + 1}, Ending.PASSED, Passage.BEYOND, "is beyond it"),
        ({"expression": "a > 5", "deadTime": STORED - 1}, Ending.PASSED, Passage.BEYOND, "is beyond it"),
        ({"expression": "a >"}, Ending.PASSED, Passage.BEYOND, "is beyond it"),
    ],
)
def test_a_registered_filter_says_who_was_skipped(tmp_path, registered, ending, passage, text) -> None:
    store = written(tmp_path, {"filtering": registered}, properties={"a": "3"})
    verdicts = {each.group: each for each in find_life(store, "U").verdicts}
    said = verdicts["filtering"]
    assert (said.ending, said.passage, said.text, said.is_certain) == (ending, passage, text, passage != Passage.BEYOND)
    assert (verdicts["other"].text, verdicts["other"].is_certain) == ("is beyond it", False)
    assert verdicts["late"].text == "not yet"


def message(tag, directory):
    with StoreWriter(directory) as writer:
        writer.append("T", b"", tags=tag)
    return decode_message(writer.written[0].record)


def test_a_filter_that_is_too_long_is_not_applied(tmp_path: Path) -> None:
    long = "a > 5 OR " * (LONGEST_FILTER // 9 + 1) + "a > 5"
    assert KnownFilter(long, "SQL92").lets_through(message("A", tmp_path)) is None
    assert KnownFilter("true", "OTHER").lets_through(message("A", tmp_path)) is None


POP, TRANSACTIONS = "A1-A2-B1-pop", "A3-A4-transactions"


def opened(name, directory):
    return MessageStore.open(unpack("store", directory, archives=CASES / name))


def truth_of(name):
    lines = (CASES / name / "truth.jsonl").read_text("utf-8").splitlines()
    return {row["key"]: row for row in map(json.loads, lines)}


@pytest.fixture(scope="module")
def popped(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    return opened(POP, tmp_path_factory.mktemp("pop"))


@pytest.fixture(scope="module")
def transactions(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    return opened(TRANSACTIONS, tmp_path_factory.mktemp("transactions"))


def life_of(store, row):
    life = find_life(store, row["uniqueKey"])
    assert life.incomplete is None
    assert [
        (event.message.topic, event.message.physical_offset, event.stage.value, event.origin.topic)
        for event in life.events
        if event.message and event.stage and event.origin
    ] == [(each["topic"], each["physicalOffset"], each["stage"], each["origin"]) for each in row["records"]]
    return life


@pytest.mark.parametrize("key", truth_of(POP))
def test_the_verdict_of_a_popped_message_is_what_its_client_saw(popped: MessageStore, key: str) -> None:
    row = truth_of(POP)[key]
    life = life_of(popped, row)
    (verdict,) = life.verdicts  # none of g1_orders, which is no group
    expected: dict[str, tuple[Ending, int, Passage | None, int | None]] = {
        "acknowledged": (Ending.PASSED, 0, Passage.ACKNOWLEDGED, None),
        "passed at retry 1": (Ending.PASSED, 1, Passage.ACKNOWLEDGED, None),
        # The client got two attempts, so one retry.
        "gave up": (Ending.GAVE_UP, 1, None, None),
    }
    said = row["groups"]["g1"]
    popped_until = 1795696102653
    assert (str(popped_until) in said) == (key == "k-popped")
    ending = expected.get(said, (Ending.POPPED, 0, Passage.POPPED, popped_until))
    assert (verdict.group, verdict.ending, verdict.retries, verdict.passage, verdict.until_timestamp) == ("g1", *ending)
    assert verdict.is_certain


@pytest.mark.parametrize("key", truth_of(TRANSACTIONS))
def test_every_half_message_says_what_became_of_it(transactions: MessageStore, key: str) -> None:
    row = truth_of(TRANSACTIONS)[key]
    life = life_of(transactions, row)
    for event, record in zip(life.events, row["records"], strict=True):
        assert event.note.startswith(record["means"])
        assert "not ended" not in event.note
        assert event.stage is not Stage.HALF or event.until_timestamp is not None
    outcome = {"tx-never-ended": "discarded"}.get(key, "committed" if "commit" in key else "rolled back")
    assert [story.transaction for story in life.stories] == [outcome]
    assert life.verdicts == ()


def test_two_messages_of_one_id_have_a_story_each(tmp_path) -> None:
    life = find_life(opened("B6-two-messages-one-id", tmp_path), "7F000001000130946E09000000000001")
    first, second = life.stories
    assert [(story.topic, len(story.events)) for story in life.stories] == [("T", 1), ("T2", 3)]
    assert [(each.ending, each.number) for each in first.verdicts] == [(Ending.PASSED, 1)]
    assert [(each.text, each.number) for each in second.verdicts] == [("gave up after 1 retry → DLQ", 2)]
    assert life.verdicts == (*first.verdicts, *second.verdicts)
    assert first.born_timestamp + 899_000 == second.born_timestamp


def test_a_checkpoint_is_no_message_of_the_revive_topic_but_one_that_is_popped(popped: MessageStore) -> None:
    with Pending(popped) as pending:
        (topic,) = pending.topics()
        assert (topic.topic, topic.popped, topic.waiting, topic.overdue) == ("orders", 1, 0, 0)
        (waiting,) = pending.messages()
    place = waiting.message.topic, waiting.message.queue_id, waiting.message.queue_offset
    assert (waiting.state, waiting.group, waiting.due_timestamp) == (PendingState.POPPED, "g1", 1795696102653)
    assert place == ("orders", 0, 3)


@pytest.mark.parametrize(
    ("name", "overdue", "said"),
    [("B11-delay-offset-ahead", 5, ("ends at 5", "169171")), ("B17-timercheck-ahead", 60, ("ends at 60", "100"))],
)
def test_what_waits_behind_a_number_that_is_ahead_is_overdue(tmp_path, name, overdue, said) -> None:
    with Pending(opened(name, tmp_path)) as pending:
        assert sum(topic.overdue for topic in pending.topics()) == overdue  # the log has no record of a delivery
        assert all(each in (pending.incomplete or "") for each in said)


def test_messages_of_batches_have_their_trace_and_a_life_of_their_own(tmp_path) -> None:
    batches = opened("B2-B3-batches", tmp_path)
    # What the producer printed: the id of each message by its key, and those of the batches in one record.
    lines = [line.split("\t") for line in (CASES / "B2-B3-batches" / "ids.txt").read_text("utf-8").splitlines()]
    ids = {line[1]: line[2] for line in lines if line[0] in ("ID", "SENT")}
    # It has traced the batch once, by the three ids with commas between them.
    life = find_life(batches, ids["batch-3"])
    sent = [event.trace for event in life.events if event.trace is not None and event.trace.kind is TraceKind.SENT]
    assert [(trace.success, trace.group, len(trace.message_id.split(","))) for trace in sent] == [(True, "PG_BATCH", 3)]
    (event,) = find_life(batches, ids["inner-3"]).events
    assert (event.message.keys, event.message.queue_offset, event.stage) == (["inner-3"], 2, Stage.DELIVERED)
    assert event.message.body == b"inner body 3"
