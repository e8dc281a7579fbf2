"""Copies of a message that a broker stores, and what became of those that were popped."""

import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from damaged_units import damage_queues
from examples import examples
from message_encoding import encode_message
from popping import PoppingBroker
from protocol.message import decode_message, decode_messages
from protocol.question import KeyKind, Question
from protocol.system_topics import Origin, is_known_by, origin_of, stage_of
from storage.life import pop_log
from storage.life._batch_ids import ids_of_batch
from storage.life.message_copies import copy_topics, query_with_copies
from storage.life.message_life import find_life
from storage.life.named_messages import SENT_AGAIN_MILLISECONDS, messages_of_one_name, told_apart
from storage.life.origins import Origins
from storage.life.pending import Pending, PendingState
from storage.life.pop_log import PopLog
from storage.life.verdicts import Ending, Passage
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter


def found(store: MessageStore, topic: str, key: str, kind: KeyKind = KeyKind.KEY, **more: int) -> list[tuple[str, int]]:
    answer = query_with_copies(store.query, Question(topic, key, kind, **more), copy_topics(store), Origins(store))
    assert answer.records == b"".join(store.record_at(place) or b"" for place in answer.physical_offsets)
    messages = list(decode_messages(answer.records))
    assert [each.physical_offset for each in messages] == list(answer.physical_offsets)
    return [(stage_of(each.topic).value, each.physical_offset) for each in messages]


def test_a_message_is_known_by_the_topics_that_it_names_as_its_own() -> None:
    for topic, properties, names in [
        ("T", {}, []), ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "T"}, ["T"]),
        ("rmq_sys_wheel_timer", {"REAL_TOPIC": "T"}, ["T"]), ("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "T"}, ["T"]),
        ("TRANS_CHECK_MAX_TIME_TOPIC", {"REAL_TOPIC": "T"}, ["T"]),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "%RETRY%G", "RETRY_TOPIC": "T"}, ["%RETRY%G", "T"]),
        ("%RETRY%G", {"RETRY_TOPIC": "T"}, ["T"]), ("%DLQ%G", {"DLQ_ORIGIN_TOPIC": "T", "RETRY_TOPIC": "other"}, ["T"]),
        ("T", {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}, ["%LMQ%a", "%LMQ%b"]),
        ("T", {"INNER_MULTI_DISPATCH": "plain"}, []),
    ]:  # fmt: skip
        asked = {topic, *names, "T2", "", "%LMQ%a,%LMQ%b", "%LMQ%", "plain", "other", f"{topic} ", topic.lower()}
        one = decode_message(encode_message(topic=topic, properties=properties))
        assert {name for name in asked if is_known_by(one, name)} == {topic, *names}


def test_every_key_of_g1_has_the_records_that_a_plain_walk_over_the_log_finds(g1_store: Path) -> None:
    store = MessageStore.open(g1_store)
    expected: dict[tuple[str, str], list[int]] = {}
    for record in oracles.read_log(g1_store / "commitlog"):
        decoded = decode_message(store.record_at(record.physical_offset) or b"")
        sent_to = origin_of(decoded).topic or decoded.topic
        for key in {*oracles.split_keys(record.properties.get("KEYS", ""))}:
            expected.setdefault((sent_to, key), []).append(record.physical_offset)
    assert len(expected) > 100
    for (topic, key), offsets in list(expected.items())[::6]:
        assert [offset for _, offset in found(store, topic, key)] == offsets[-64:]


@pytest.fixture
def many(tmp_path: Path) -> MessageStore:
    with StoreWriter(tmp_path / "store", segment_size=1 << 16, index_slots=11, index_entries=400) as writer:
        for number in range(20):
            for topic in ("A", "B"):
                back = {"RETRY_TOPIC": topic}
                writer.append(topic, keys="k", unique_key=f"{topic}{number}")
                waiting = {"REAL_TOPIC": f"%RETRY%G{number}", **back}
                writer.append("SCHEDULE_TOPIC_XXXX", keys="k", unique_key=f"{topic}{number}", properties=waiting)
                writer.append(f"%RETRY%G{number}", keys="k", unique_key=f"{topic}{number}", properties=back)
    return MessageStore.open(tmp_path / "store")


@given(maximum=st.integers(4, 64), topic=st.sampled_from("AB"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(4))
def test_pages_of_any_size_give_each_match_once_in_order(many: MessageStore, maximum: int, topic: str) -> None:
    query = Question(topic=topic, text="k", kind=KeyKind.KEY, maximum=maximum)
    offsets: list[int] = []
    cursor: int | None = query.before_physical_offset
    while cursor is not None:
        query.before_physical_offset = cursor
        page = query_with_copies(many.query, query, copy_topics(many), Origins(many))
        messages = list(decode_messages(page.records))
        assert len(messages) == page.count <= maximum
        assert {origin_of(each).topic for each in messages} <= {topic}
        assert messages or page.cursor is None
        offsets = [each.physical_offset for each in messages] + offsets
        cursor = page.cursor
    assert len(offsets) == 60
    assert offsets == sorted(set(offsets))


def popped(writer: StoreWriter, group: str, topic: str, key: str, *, sent: bool = True) -> None:
    """A message and its copy as a broker before 5.4 stores them."""
    if sent:
        writer.append(topic, keys="k", unique_key=key)
    writer.append(f"%RETRY%{group}_{topic}", keys="k", unique_key=key)


def test_where_a_broker_mixes_groups_each_message_is_told_by_its_first_record(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        popped(writer, "a", "b_c", "u1")
        popped(writer, "a_b", "c", "u2")
        popped(writer, "a_b", "c", "u3", sent=False)
        writer.consumer_offsets = {key: {0: 1} for key in ("%RETRY%a_b_c@a_b", "%RETRY%a_b_c@a", "b_c@a", "c@a_b")}
    store = MessageStore.open(tmp_path / "store")
    origins = Origins(store)
    entries = store.queues.queue("%RETRY%a_b_c", 0).entries(0, 10)
    messages = [decode_message(store.record_at(entry.physical_offset) or b"") for entry in entries]
    assert [origins.found(message, store.query) for message in messages] == [
        *(Origin("b_c", "a"), Origin("c", "a_b"), Origin(None, None, (("a", "b_c"), ("a_b", "c"))))
    ]
    for topic, keys in (("b_c", ["u1", "u1", "u3"]), ("c", ["u2", "u2", "u3"])):
        query = Question(topic=topic, text="k", kind=KeyKind.KEY)
        found = query_with_copies(store.query, query, copy_topics(store), Origins(store))
        assert [message.unique_key for message in decode_messages(found.records)] == keys


@dataclass(frozen=True)
class Sent:
    topic: str
    body: bytes
    born_seconds: int


TOPICS, BODIES = st.sampled_from(["T", "U"]), st.sampled_from([b"a", b"b"])
COPIES = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["schedule", "retry", "pop", "dead letter", "half", "timer"])),
    max_size=8,
)


def copy_of(writer: StoreWriter, sent: Sent, kind: str) -> None:
    """Store a copy as a broker does: with the born time and the body of the message."""
    topics = {"schedule": "SCHEDULE_TOPIC_XXXX", "half": "RMQ_SYS_TRANS_HALF_TOPIC", "timer": "rmq_sys_wheel_timer"}
    topic = topics.get(kind, {"retry": "%RETRY%g", "pop": f"%RETRY%g_{sent.topic}"}.get(kind, "%DLQ%g"))
    again = {"RETRY_TOPIC": sent.topic}
    named = {"retry": again, "dead letter": again, "pop": {"ORIGIN_GROUP": "g"}}
    properties = named.get(kind, {"REAL_TOPIC": sent.topic})
    times = int(kind in ("retry", "pop", "dead letter"))
    stored(writer, topic, sent, properties=properties, reconsume_times=times)


def stored(writer: StoreWriter, topic: str, sent: Sent, **more: object) -> None:
    born = START_TIMESTAMP + 1000 * sent.born_seconds
    writer.append(topic, sent.body, unique_key="K", born_timestamp=born, **more)  # type: ignore[arg-type]


def expected(sent: list[Sent]) -> set[frozenset[Sent]]:
    """The messages: those of one topic and body whose births follow each other within a minute."""
    found = set()
    for topic in "TU":
        for body in (b"a", b"b"):
            own = {each for each in sent if (each.topic, each.body) == (topic, body)}
            cuts, own = [0], sorted(own, key=lambda each: each.born_seconds)
            for number, (before, after) in enumerate(pairwise(own), 1):
                if (after.born_seconds - before.born_seconds) * 1000 > SENT_AGAIN_MILLISECONDS:
                    cuts.append(number)
            found |= {frozenset(own[first:end]) for first, end in pairwise([*cuts, len(own)])} - {frozenset()}
    return found


def sent_of(message):
    born = (message.born_timestamp - START_TIMESTAMP) // 1000
    return Sent(origin_of(message).topic, bytes(message.stored_body), born)


@settings(deadline=None, max_examples=examples(8))
@given(st.lists(st.builds(Sent, TOPICS, BODIES, st.sampled_from(range(0, 301, 25))), min_size=1, max_size=5), COPIES)
def test_every_record_is_of_the_message_that_it_was_made_of(sent: list[Sent], copies: list[tuple[int, str]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        with StoreWriter(Path(directory) / "store") as writer:
            for each in sent:
                stored(writer, each.topic, each)
            for number, kind in copies:
                copy_of(writer, sent[number % len(sent)], kind)
        messages = [decode_message(each.record) for each in writer.written]
        found = told_apart((message, origin_of(message)) for message in messages)
        assert {frozenset(sent_of(message) for message, _ in records) for records in found} == expected(sent)
        assert sum(map(len, found)) == len(messages)
        clause = messages_of_one_name(messages, "K")
        assert clause is None if len(found) == 1 else clause is not None and clause.startswith(f"{len(found)} messages")
        life = find_life(MessageStore.open(Path(directory) / "store"), "K")
        numbers = {event.message.physical_offset: event.number for event in life.events if event.message}
        for number, records in enumerate(found, 1):
            assert {numbers[message.physical_offset] for message, _ in records} == {number}
        assert len(life.stories) == len(found)


def test_a_batch_in_one_record_is_traced_by_its_own_id(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        inner = {"INNER_NUM": "1", "INNER_BASE": "0", "UNIQ_KEY": "whole"}
        writer.append_inner_batch("B", [(b"x", {"UNIQ_KEY": "part"})], properties=inner)
    store = MessageStore.open(tmp_path)
    record = decode_message(store.record_at(0) or b"")
    assert ids_of_batch(store, record, record.inner_messages()) == ["whole", "part"]


KEYS = "ABC"
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pop", "pop retry", "acknowledge", "acknowledge all", "extend", "wait", "revive"]),
        st.integers(0, 7),
        st.sampled_from([0, 900, 2_500, 60_000]),
    ),
    max_size=16,
)


def played(directory: Path, steps: list[tuple[str, int, int]], *, has_origin: bool) -> PoppingBroker:
    broker = PoppingBroker(StoreWriter(directory / "store"), has_origin=has_origin)
    for key in KEYS:
        broker.send(key)
    for step, number, milliseconds in steps:
        records = broker.records()
        record = records[number % len(records)]
        if step.startswith("pop"):
            broker.pop(broker.topic if step == "pop" else broker.retry_topic, number % 3 + 1, milliseconds)
        elif step.startswith("acknowledge"):
            broker.acknowledge(records if step.endswith("all") else [record])
        elif step == "extend":
            broker.extend(record, milliseconds)
        elif step == "wait":
            broker.pass_time(milliseconds)
        else:
            broker.revive()
    broker.close()
    return broker


@settings(deadline=None, max_examples=examples(10))
@given(STEPS, st.booleans(), st.sets(st.integers(0, 2)))
def test_what_a_group_has_is_what_a_plain_model_of_the_broker_says(steps, has_origin, broken) -> None:
    """Also where units of its messages are broken."""
    with tempfile.TemporaryDirectory() as directory:
        broker = played(Path(directory), steps, has_origin=has_origin)
        damage_queues(Path(directory) / "store", broken, None, "T")
        store = MessageStore.open(Path(directory) / "store")
        out = {(each.topic, each.queue_offset, each.until, "g") for each in broker.records() if each.state == "out"}
        read = PopLog(store).all_out()
        assert {(each.topic, each.queue_offset, each.revive_timestamp, each.group) for each in read} == out
        with Pending(store) as pending:
            assert pending.incomplete is None
            waiting = list(pending.messages())
            assert sum(topic.popped for topic in pending.topics()) == len(out)
        assert {each.state for each in waiting} <= {PendingState.POPPED}
        assert {each.topic for each in waiting} <= {"T"}
        assert out == {(w.message.topic, w.message.queue_offset, w.due_timestamp, w.group or "") for w in waiting}
        for key in KEYS:
            life = find_life(store, key)
            assert life.incomplete is None
            assert len(life.stories) == 1
            record = broker.last(key)
            states = {"unread": (Ending.RETRYING if record.retries else Ending.NOT_YET, None),
                      "out": (Ending.POPPED, Passage.POPPED),
                      "acknowledged": (Ending.PASSED, Passage.ACKNOWLEDGED)}  # fmt: skip
            if not broker.next and not broker.queues[broker.retry_topic]:
                assert life.verdicts == ()
                continue
            (verdict,) = life.verdicts
            ending, passage = states[record.state]
            assert (verdict.group, verdict.ending, verdict.retries) == ("g", ending, record.retries)
            assert passage is None or verdict.passage is passage
            assert verdict.until_timestamp == record.until


def test_where_not_all_notes_are_read_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path, [("pop", 0, 60_000), ("pop", 0, 60_000), ("pop", 0, 60_000)], has_origin=True)
    store = MessageStore.open(tmp_path / "store")
    monkeypatch.setattr(pop_log, "MOST_NOTES", 2)
    assert [each.queue_offset for each in PopLog(store).all_out()] == [1, 2]  # the newest
    assert "there are more" in (find_life(store, "A").incomplete or "")
    monkeypatch.setattr(pop_log, "MOST_NOTES", 3)
    assert PopLog(store).note is None


def written(directory: Path, offsets: dict[str, dict[str, int]]) -> MessageStore:
    with StoreWriter(directory / "store") as writer:
        writer.append("T", b"A", unique_key="A")
        writer.consumer_offsets = offsets
    return MessageStore.open(writer.root)


@pytest.mark.parametrize("separator", "_+")
def test_of_a_group_that_popped_and_left_no_note_it_is_not_known(tmp_path: Path, separator: str) -> None:
    store = written(tmp_path, {"T@g": {0: 1}, f"%RETRY%g{separator}T@g": {0: 0}})
    (verdict,) = find_life(store, "A").verdicts
    assert (verdict.ending, verdict.text) == (Ending.UNKNOWN, "POP: read; whether it was acknowledged is not known")
    ((progress,),) = (event.groups for event in find_life(store, "A").events)
    assert not progress.has_passed


def test_where_notes_are_in_a_database_it_is_not_known_of_groups_that_may_pop(tmp_path: Path) -> None:
    store = written(tmp_path, {"T@pops": {0: 1}, "T@pulls": {0: 1}, "%RETRY%pulls@pulls": {0: 0}})
    for known in (Ending.PASSED, Ending.UNKNOWN):
        endings = {each.group: each.ending for each in find_life(store, "A").verdicts}
        assert endings == {"pops": known, "pulls": Ending.PASSED}
        (tmp_path / "store" / "kvStore").mkdir(exist_ok=True)
        (tmp_path / "store" / "kvStore" / "CURRENT").write_text("MANIFEST-000004\n")
