"""What waits: as a recorded broker went on to deliver it, as an oracle sees random stores, and what lives say of it."""

import errno
import os
import shutil
import struct
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from damaged_units import damage_queues
from examples import examples
from golden_store import GOLDEN, unpack
from oracles import delay_milliseconds
from storage.life.message_life import find_life
from storage.life.pending import Pending, PendingState, PendingWindow
from storage.store.message_store import MessageStore, StoreOptions
from storage.times import LARGEST
from store_writer import START_TIMESTAMP, StoreWriter

TIMER, SCHEDULE = "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"


def opened(root: Path) -> MessageStore:
    return MessageStore.open(root, StoreOptions(scan_budget=0, check_budget=0, keeps_state=False))


def write_timer_check(root: Path, timestamp: int, queue_offset: int) -> None:
    (root / "config").mkdir(exist_ok=True)
    data = struct.pack(">7q", timestamp, 0, queue_offset, queue_offset, 0, timestamp, 1)
    (root / "config" / "timercheck").write_bytes(data.ljust(4096, b"\0"))


@pytest.fixture(params=["g2-queues", pytest.param("g2-queues-5.5.1", marks=pytest.mark.soak)])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, list[str]], set[str]]:
    """A store of a broker that has delivered all but one; what was produced by label, and the unique keys consumed."""
    folder = GOLDEN / "g2" / request.param
    lines = [line.split("\t") for line in (folder / "produced.tsv").read_text("utf-8").splitlines()]
    consumed = {line.split("\t")[0] for line in (folder / "consumed-CG_TIMER.tsv").read_text("utf-8").splitlines()[1:]}
    return unpack("store", tmp_path, archives=folder), {line[0]: line for line in lines}, consumed


def test_before_the_first_delivery_just_what_was_delivered_later_waits(recorded) -> None:
    """With the checkpoints of the moment of sending: the broker itself went on to say which are cancelled."""
    root, produced, consumed = recorded
    write_timer_check(root, 0x1000, 0)
    (root / "config" / "delayOffset.json").write_text('{"offsetTable":{}}')
    with Pending(opened(root)) as pending:
        found = list(pending.messages())
        by_state = {
            state: {each.message.unique_key for each in found if each.state is state and each.level is None}
            for state in PendingState
        }
        sent_at_once = produced["timer-past"][2]  # was due when it was sent, so it never waited
        assert by_state[PendingState.WAITING] == consumed - {sent_at_once} | {produced["timer-far"][2]}
        assert by_state[PendingState.CANCELLED] == {produced["timer-cancelled"][2]}
        topics = {topic.topic: topic for topic in pending.topics()}
        assert topics["TimerTopic"].cancel_requests == 1
        (delayed,) = (each for each in found if each.topic == "DelayTopic")
        assert (delayed.level, delayed.message.unique_key) == (1, produced["delay-level"][2])
        assert delayed.due_timestamp == delayed.message.store_timestamp + 1000


def test_a_directory_that_may_not_be_searched_is_a_sentence(recorded, monkeypatch) -> None:
    root, _, _ = recorded
    for name in ("timercheck", "delayOffset.json", "delayOffset.json.bak"):
        (root / "config" / name).unlink()
    store = opened(root)
    assert store.config.delay_offsets == {}
    refused = {str(root / "config" / name) for name in ("timercheck", "delayOffset.json")}

    def refusing(system_call):
        def call(path, *arguments, **keywords):
            if str(path) in refused:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return system_call(path, *arguments, **keywords)

        return call

    monkeypatch.setattr(os, "stat", refusing(os.stat))
    monkeypatch.setattr(os, "open", refusing(os.open))
    with Pending(store) as pending:
        assert ["Permission denied" in note for note in pending.as_of.notes] == [True, True]


@dataclass(frozen=True)
class Judged:
    """A record in one of these topics that is not delivered; `fate` as the product names it, or rolled, or cancel."""

    due: int
    physical_offset: int
    topic: str
    fate: str


def judge(records, timer_check, level_offsets):
    """Every record that waits, ascending by due time and place.

    `timer_check` is the time and queue offset of config/timercheck, `level_offsets` those of delayOffset.json; None for
    a file that is missing, so that the newest store time decides.
    """
    everything = list(records)
    last = max((record.store_timestamp for record in everything), default=0)
    left = []
    for record in everything:
        if record.topic == SCHEDULE:
            level = record.queue_id + 1
            due = record.store_timestamp + delay_milliseconds(level)
            next_offset = 0 if level_offsets is None else level_offsets.get(level, 0)
            end = sum((each.topic, each.queue_id) == (SCHEDULE, record.queue_id) for each in everything)
            is_missed = next_offset > end and is_undelivered(record, everything)
            if is_missed or (due > last if level_offsets is None else record.queue_offset >= next_offset):
                fate = "overdue" if due <= last or is_missed else "waiting"
                left.append(Judged(due, record.physical_offset, record.properties["REAL_TOPIC"], fate))
    timers = []
    for record in everything:
        if record.topic == TIMER:
            due = int(record.properties["TIMER_OUT_MS"])
            time, offset = timer_check or (last + 1, 1 << 62)
            is_ahead = timer_check is not None and offset > sum(each.topic == TIMER for each in everything)
            is_missed = is_ahead and ("TIMER_DEL_UNIQKEY" in record.properties or is_undelivered(record, everything))
            if due >= time or record.queue_offset >= offset or is_missed:
                timers.append((record, due, due < time))
    for record, due, is_late in timers:
        properties = record.properties
        key, rolls = properties.get("UNIQ_KEY"), int(properties.get("TIMER_ROLL_TIMES", "0"))
        fate = "overdue" if is_late else "waiting"
        for other, other_due, _ in timers:
            if other_due == due and key is not None:
                said = other.properties.get("TIMER_DEL_UNIQKEY")
                if said in (key, f"{properties['REAL_TOPIC']}+{key}"):
                    fate = "cancelled"
        if "TIMER_DEL_UNIQKEY" in properties:
            fate = "cancel"
        for other, other_due, _ in timers:
            is_same = key is not None and other.properties.get("UNIQ_KEY") == key and other_due == due
            if is_same and int(other.properties.get("TIMER_ROLL_TIMES", "0")) > rolls:
                fate = "rolled"
        left.append(Judged(due, record.physical_offset, properties["REAL_TOPIC"], fate))
    return sorted(left, key=lambda each: (each.due, each.physical_offset))


def is_undelivered(record, everything):
    """Whether a record that waits has a unique key, and no later record of its topic has that."""
    key, topic = record.properties.get("UNIQ_KEY"), record.properties["REAL_TOPIC"]
    return key is not None and not any(
        (each.topic, each.properties.get("UNIQ_KEY")) == (topic, key) and each.physical_offset > record.physical_offset
        for each in everything
    )


SECONDS = st.integers(0, 4)
TIMERS = st.fixed_dictionaries({
    "due": SECONDS, "key": st.sampled_from(["A", "B", "C", None]), "rolls": st.integers(0, 2),
    "cancels": st.sampled_from([None, None, None, "A", "B", "T+A", "U+A"]), "topic": st.sampled_from(["T", "U"]),
})  # fmt: skip
KEYS = st.sampled_from([None, "A", "B"])
LEVELS = st.fixed_dictionaries({"level": st.integers(1, 3), "topic": st.sampled_from(["T", "U"]), "key": KEYS})
DELIVERED = st.fixed_dictionaries({"delivered": KEYS, "topic": st.sampled_from(["T", "U"])})
CHECKS = st.one_of(st.none(), st.tuples(SECONDS, st.integers(0, 8)))
OFFSETS = st.one_of(st.none(), st.dictionaries(st.integers(1, 3), st.integers(0, 4)))


@settings(max_examples=examples(8))
@given(messages=st.lists(st.one_of(TIMERS, LEVELS, DELIVERED), max_size=14), check=CHECKS, offsets=OFFSETS)
def test_random_stores_are_judged_as_by_the_oracle(tmp_path_factory, messages, check, offsets) -> None:
    root = tmp_path_factory.mktemp("pending")
    base = START_TIMESTAMP + 60_000
    with StoreWriter(root, segment_size=4096) as writer:
        writer.append("Plain", b"one that never waits")
        for number, each in enumerate(messages):
            stamp, more = START_TIMESTAMP + number * 4_000, {"REAL_TOPIC": str(each["topic"]), "REAL_QID": "0"}
            key = each.get("key", each.get("delivered"))
            append = partial(writer.append, body=b"later", unique_key=key, store_timestamp=stamp)
            if "delivered" in each:
                append(each["topic"])
                continue
            if "level" in each:
                more["DELAY"] = str(each["level"])
                append(SCHEDULE, properties=more, queue_id=each["level"] - 1)
                continue
            more["TIMER_OUT_MS"] = str(base + 1000 * each["due"])
            more |= {"TIMER_ROLL_TIMES": str(each["rolls"])} if each["rolls"] else {}
            more |= {"TIMER_DEL_UNIQKEY": each["cancels"]} if each["cancels"] else {}
            append(TIMER, properties=more)
    moment = None if check is None else (base + 1000 * check[0], check[1])
    if moment is not None:
        write_timer_check(root, *moment)
    if offsets is not None:
        writer.write_config("delayOffset.json", {"offsetTable": offsets})
    expected = judge(writer.records, moment, offsets)
    with Pending(opened(root)) as pending:
        waiting = [(each, each.message.physical_offset) for each in pending.messages()]
        found = [Judged(each.due_timestamp, at, each.topic, each.state.value) for each, at in waiting]
        assert found == [each for each in expected if each.fate in {state.value for state in PendingState}]
        counted = Counter((each.topic, each.fate) for each in expected)
        for topic in pending.topics():
            counts = topic.waiting, topic.overdue, topic.cancelled, topic.rolled, topic.cancel_requests
            fates = "waiting", "overdue", "cancelled", "rolled", "cancel"
            assert counts == tuple(counted[topic.topic, fate] for fate in fates)
        assert {topic.topic for topic in pending.topics()} == {each.topic for each in expected}
        window = PendingWindow("T", base + 1000, base + 2000)
        within = [each for each in found if each.topic == "T" and base + 1000 <= each.due <= base + 2000]
        offsets = [each.physical_offset for each in within]
        assert [each.message.physical_offset for each in pending.messages(window, 2)] == offsets[:2]
        for number, each in enumerate(within):
            rest, _ = pending.page(window, len(within) + 1, (each.due, each.physical_offset, LARGEST))
            assert [each.message.physical_offset for each in rest] == offsets[number + 1 :]
        # The checkpoints may say that messages were read of queues that this store never had.
        known = ("has no queue of", "its broker delivered messages up to", "its broker read up")
        for each in pending.incomplete.split("; ") if pending.incomplete else ():
            assert any(said in each for said in known)
    shutil.rmtree(root)


def many_timers(root: Path, count: int) -> StoreWriter:
    writer = StoreWriter(root, segment_size=1 << 20, queue_file_size=20 * 4000)
    for number in range(count):
        due = {"TIMER_OUT_MS": str(START_TIMESTAMP + 10_000_000 + number % 7 * 1000), "REAL_TOPIC": f"T{number % 3}"}
        writer.append(TIMER, properties=due, unique_key=f"K{number}", index=False)
    return writer


def test_pages_go_on_behind_records_that_were_deleted_meanwhile(tmp_path, monkeypatch) -> None:
    writer = many_timers(tmp_path / "store", 10)
    writer.close()
    write_timer_check(tmp_path / "store", START_TIMESTAMP, 10)
    store = opened(tmp_path / "store")
    gone = {each.physical_offset for each in writer.written[:4]}
    record_at = store.record_at
    with Pending(store) as pending:
        monkeypatch.setattr(MessageStore, "record_at", lambda _, offset: None if offset in gone else record_at(offset))
        whole = [each.message.physical_offset for each in pending.messages()]
        assert len(whole) == 6
        for limit in (1, 3, 10):
            found, following = pending.page(PendingWindow(), limit)
            listed = [each.message.physical_offset for each in found]
            while following is not None:
                found, following = pending.page(PendingWindow(), limit, following)
                listed += [each.message.physical_offset for each in found]
            assert listed == whole


def test_properties_that_are_no_text_or_no_numbers_break_nothing(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        due = str(START_TIMESTAMP + 1_000_000).encode()
        for block in (
            b"TIMER_OUT_MS\x01" + due + b"\x02REAL_TOPIC\x01\xff\xed\xa0\x80T\x02UNIQ_KEY\x01\xed\xb0\x80\x02",
            b"TIMER_OUT_MS\x01" + due + b"\x02REAL_TOPIC\x01T\x02TIMER_ROLL_TIMES\x01-7\x02UNIQ_KEY\x01K\x02",
            b"TIMER_OUT_MS\x019999999999999999999999\x02REAL_TOPIC\x01T\x02",
            b"REAL_TOPIC\x01T\x02",
        ):
            writer.append(TIMER, properties=block)
        writer.append(SCHEDULE, properties=b"DELAY\x0131\x02", queue_id=30)
    write_timer_check(tmp_path / "store", START_TIMESTAMP, 0)
    writer.write_config("delayOffset.json", {"offsetTable": {}})
    with Pending(opened(tmp_path / "store")) as pending:
        assert len(list(pending.messages())) == 3
        assert {topic.topic for topic in pending.topics()} > {"T"}
        assert list(pending.messages(PendingWindow("\udcff"))) == []
        assert pending.incomplete == "2 records of rmq_sys_wheel_timer without a time to be delivered"


def test_reading_reports_how_far_it_is_and_can_be_ended(tmp_path: Path) -> None:
    many_timers(tmp_path / "store", 1100).close()
    counts: list[int] = []

    def report(count: int) -> None:
        counts.append(count)
        if count >= 500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pending(opened(tmp_path / "store"), report)
    assert counts[0] == 0
    assert 500 <= counts[-1] < 1100


def test_a_message_that_is_lost_is_said_to_be(tmp_path: Path) -> None:
    writer = many_timers(tmp_path / "store", 5)
    writer.close()
    write_timer_check(tmp_path / "store", START_TIMESTAMP, 5)
    writer.overwrite(writer.written[2].physical_offset + 20, b"\xee" * 40)
    with Pending(opened(tmp_path / "store")) as pending:
        assert {each.message.unique_key for each in pending.messages()} == {"K0", "K1", "K3", "K4"}
        assert "the records of 1 message of rmq_sys_wheel_timer, queue 0, are damaged or missing" in pending.incomplete


def test_one_topic_that_is_gone_is_missed_by_the_brokers_checkpoints(tmp_path: Path) -> None:
    writer = many_timers(tmp_path / "store", 5)
    writer.append(SCHEDULE, properties={"REAL_TOPIC": "T", "DELAY": "5"}, queue_id=4, unique_key="L")
    writer.close()
    write_timer_check(tmp_path / "store", START_TIMESTAMP, 5)
    writer.write_config("delayOffset.json", {"offsetTable": {5: 1}})
    shutil.rmtree(tmp_path / "store" / "consumequeue" / TIMER)
    with Pending(opened(tmp_path / "store")) as pending:
        assert "the store has no queue of" in pending.incomplete


COUNT = 4
DUE = START_TIMESTAMP + 5_000


def lives_of(delivered, configure, topic, queue_id, properties):
    """The first events of messages that waited in a topic, of which some were delivered."""
    with tempfile.TemporaryDirectory() as directory:
        with StoreWriter(Path(directory) / "store") as writer:
            for number in range(COUNT):
                writer.append(topic, unique_key=f"K{number}", properties=properties, queue_id=queue_id)
            for number in sorted(delivered):
                writer.append("T", unique_key=f"K{number}", born_timestamp=START_TIMESTAMP + number)
        configure(writer)
        store = MessageStore.open(writer.root)
        return [find_life(store, f"K{number}").events[0] for number in range(COUNT)]


@settings(deadline=None, max_examples=examples(6))
@given(
    delivered=st.sets(st.integers(0, COUNT - 1)),
    next_offset=st.none() | st.integers(0, 2 * COUNT),
    broken=st.sets(st.integers(0, COUNT - 1)),
)
def test_a_delayed_message_is_delivered_where_its_delivery_is_stored(delivered, next_offset, broken) -> None:
    def configure(writer) -> None:
        damage_queues(writer.root, broken, None, SCHEDULE)
        if next_offset is not None:
            writer.write_config("delayOffset.json", {"offsetTable": {3: next_offset}})

    for number, event in enumerate(lives_of(delivered, configure, SCHEDULE, 2, {"REAL_TOPIC": "T", "DELAY": "3"})):
        due, note = START_TIMESTAMP + 1 + number + delay_milliseconds(3), event.note
        assert event.until_timestamp == (None if number in broken else due)
        assert ("level 3, delivered" in note) == (number in delivered)
        if number in delivered:
            continue
        if next_offset is None:
            assert note == "delay level 3"
        elif next_offset > COUNT:
            assert f"delayOffset.json is ahead of the level's queue ({next_offset} > {COUNT})" in note
        elif next_offset > number:
            assert note.endswith("counted as delivered, but no record of its delivery is there")
        else:
            assert note == "delay level 3, not delivered yet"


@settings(deadline=None, max_examples=examples(6))
@given(delivered=st.sets(st.integers(0, COUNT - 1)),
       check=st.none() | st.tuples(st.sampled_from([DUE - 1000, DUE + 1000]), st.integers(0, 2 * COUNT)))  # fmt: skip
def test_a_timer_message_is_delivered_where_its_delivery_is_stored(delivered, check) -> None:
    def configure(writer) -> None:
        if check is not None:
            write_timer_check(writer.root, *check)

    properties = {"REAL_TOPIC": "T", "TIMER_OUT_MS": str(DUE)}
    for number, event in enumerate(lives_of(delivered, configure, TIMER, 0, properties)):
        note = event.note
        assert (note == "delivered") == (number in delivered)
        if number in delivered:
            continue
        if check is None:
            assert note == ""
        elif check[1] > COUNT:
            assert f"timercheck is ahead of the timer's queue ({check[1]} > {COUNT})" in note
        elif check[0] > DUE and check[1] > number:
            assert note == "cancelled, or counted as delivered: no record of its delivery is there"
        else:
            assert note == "not delivered yet"


def test_a_timer_message_whose_time_is_far_is_stored_again(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        far = {"REAL_TOPIC": "T", "TIMER_OUT_MS": str(DUE)}
        for more in ({}, {"TIMER_ROLL_TIMES": "1"}, {"TIMER_ROLL_TIMES": "2"}):
            writer.append(TIMER, unique_key="K0", properties={**far, **more}, born_timestamp=START_TIMESTAMP)
        writer.append("T", unique_key="K0", born_timestamp=START_TIMESTAMP)
    again = "stored again, for its time is far"
    notes = [event.note for event in find_life(MessageStore.open(writer.root), "K0").events]
    assert notes == [again, again, "delivered", ""]
