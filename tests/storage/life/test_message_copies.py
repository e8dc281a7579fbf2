"""Copies that a broker keeps of messages under topics of its own: g1's as recorded, others as the layouts have them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from golden_store import GOLDEN, unpack
from message_encoding import encode_message
from protocol.message import Message, decode_message, decode_messages
from protocol.question import KeyKind, Question
from protocol.system_topics import is_known_by, origin_of, stage_of
from storage.life.message_copies import copy_topics, query_with_copies
from storage.life.origins import Origins
from storage.store.message_store import MessageStore
from store_writer import StoreWriter


def message(topic: str, **properties: str) -> Message:
    return decode_message(encode_message(topic=topic, properties=properties))


def found(store: MessageStore, topic: str, key: str, kind: KeyKind = KeyKind.KEY, **more: int) -> list[tuple[str, int]]:
    answer = query_with_copies(
        store.query, Question(topic=topic, text=key, kind=kind, **more), copy_topics(store), Origins(store)
    )
    assert answer.records == b"".join(store.record_at(place) or b"" for place in answer.physical_offsets)
    messages = list(decode_messages(answer.records))
    assert [each.physical_offset for each in messages] == list(answer.physical_offsets)
    return [(stage_of(each.topic).value, each.physical_offset) for each in messages]


def test_a_message_is_known_by_the_topics_that_it_names_as_its_own() -> None:
    for topic, properties, names in [
        ("T", {}, []),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "T"}, ["T"]),
        ("rmq_sys_wheel_timer", {"REAL_TOPIC": "T"}, ["T"]),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "T"}, ["T"]),
        ("TRANS_CHECK_MAX_TIME_TOPIC", {"REAL_TOPIC": "T"}, ["T"]),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "%RETRY%G", "RETRY_TOPIC": "T"}, ["%RETRY%G", "T"]),
        ("%RETRY%G", {"RETRY_TOPIC": "T"}, ["T"]),
        ("%DLQ%G", {"DLQ_ORIGIN_TOPIC": "T", "RETRY_TOPIC": "other"}, ["T"]),
        ("T", {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}, ["%LMQ%a", "%LMQ%b"]),
        ("T", {"INNER_MULTI_DISPATCH": "plain"}, []),
    ]:
        asked = {topic, *names, "T2", "", "%LMQ%a,%LMQ%b", "%LMQ%", "plain", "other", f"{topic} ", topic.lower()}
        one = message(topic, **properties)
        assert {name for name in asked if is_known_by(one, name)} == {topic, *names}


def test_timed_messages_and_dead_letters_are_found_too(tmp_path: Path) -> None:
    folder = GOLDEN / "g2" / "g2-queues"
    store = MessageStore.open(unpack("store", tmp_path, archives=folder))
    produced = {line.split("\t")[0]: line.split("\t") for line in (folder / "produced.tsv").read_text().splitlines()}
    for label, topic, wanted in (
        ("timer-delay-ms", "TimerTopic", ["timer", "delivered"]),
        ("timer-far", "TimerTopic", ["timer"]),
        ("light-0", "LightParent", ["delivered", *["scheduled", "retry"] * 2, "dead letter"]),
    ):
        assert [stage for stage, _ in found(store, topic, produced[label][2], KeyKind.UNIQUE)] == wanted


def test_every_key_of_g1_has_the_records_that_a_plain_walk_over_the_log_finds(g1_store: Path) -> None:
    store = MessageStore.open(g1_store)
    expected: dict[tuple[str, str], list[int]] = {}
    for record in oracles.read_log(g1_store / "commitlog"):
        decoded = decode_message(store.record_at(record.physical_offset) or b"")
        sent_to = origin_of(decoded).topic or decoded.topic
        for key in {*oracles.split_keys(record.properties.get("KEYS", ""))}:
            expected.setdefault((sent_to, key), []).append(record.physical_offset)
    assert len(expected) > 100
    for (topic, key), offsets in expected.items():
        assert [offset for _, offset in found(store, topic, key)] == offsets[-64:]


@pytest.fixture
def many(tmp_path: Path) -> MessageStore:
    """Messages of two topics under one key, each with copies, and 20 groups whose retry topics have copies of both."""
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 16, index_slots=11, index_entries=400)
    for number in range(20):
        for topic in ("A", "B"):
            back = {"RETRY_TOPIC": topic}
            writer.append(topic, keys="k", unique_key=f"{topic}{number}")
            waiting = {"REAL_TOPIC": f"%RETRY%G{number}", **back}
            writer.append("SCHEDULE_TOPIC_XXXX", keys="k", unique_key=f"{topic}{number}", properties=waiting)
            writer.append(f"%RETRY%G{number}", keys="k", unique_key=f"{topic}{number}", properties=back)
    writer.close()
    return MessageStore.open(tmp_path / "store")


@given(maximum=st.integers(4, 64), topic=st.sampled_from("AB"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(12))
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
