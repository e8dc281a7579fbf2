"""System topics: the stage and kind of each, and where their records say that they were sent to."""

from hypothesis import given
from hypothesis import strategies as st

from message_encoding import encode_message
from protocol.message import Message, decode_message
from protocol.system_topics import (
    SYSTEM_TOPICS,
    Origin,
    Stage,
    TopicContent,
    content_of,
    is_known_by,
    kind_of,
    origin_of,
    splits,
    stage_of,
    system_topic,
)

NAMES = st.text("abc_-1", min_size=1, max_size=6)


def message(topic: str, **properties: str) -> Message:
    return decode_message(encode_message(topic=topic, properties=properties))


def test_a_topic_has_its_stage_and_kind() -> None:
    for topic, stage, kind in [
        ("orders", Stage.DELIVERED, "normal"),
        ("%RETRY%g", Stage.RETRY, "retry"),
        ("%DLQ%g", Stage.DEAD_LETTER, "dead letter"),
        ("SCHEDULE_TOPIC_XXXX", Stage.SCHEDULED, "system"),
        ("rmq_sys_wheel_timer", Stage.TIMER, "system"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", Stage.HALF, "system"),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", Stage.HALF, "system"),
        ("TRANS_CHECK_MAX_TIME_TOPIC", Stage.DISCARDED, "system"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", Stage.DELIVERED, "system"),
        ("DefaultHeartBeatSyncerTopic", Stage.DELIVERED, "system"),
        ("rmq_sys_anything", Stage.DELIVERED, "system"),
        ("rmq_sys_wheel_timer2", Stage.DELIVERED, "system"),
        ("my_RMQ_SYS_topic", Stage.DELIVERED, "normal"),
    ]:
        assert stage_of(topic) is stage
        assert kind_of(topic) == kind


def test_names_are_unique_and_each_finds_its_own_row() -> None:
    assert len({row.name for row in SYSTEM_TOPICS}) == len(SYSTEM_TOPICS)
    for row in SYSTEM_TOPICS:
        assert system_topic(row.name) is row
    assert content_of("rmq_sys_TRACE_DATA_cn-1") is TopicContent.REPORTS
    assert content_of("rmq_sys_REVIVE_LOG_c") is TopicContent.NOTES
    assert content_of("SCHEDULE_TOPIC_XXXX") is TopicContent.MESSAGES


# What brokers of 5.x store of popped messages, in `tests/golden/cases/A1-A2-B1-pop`, and of 5.3 without ORIGIN_GROUP.
def test_a_record_says_where_it_was_sent_to_and_which_group_failed() -> None:
    for topic, properties, origin in [
        ("%RETRY%g1_orders", {"ORIGIN_GROUP": "g1"}, Origin("orders", "g1")),
        ("%RETRY%g1+orders", {"ORIGIN_GROUP": "g1"}, Origin("orders", "g1")),
        ("%RETRY%g1+or_ders", {}, Origin("or_ders", "g1")),
        ("%DLQ%g1", {"RETRY_TOPIC": "%RETRY%g1_orders", "ORIGIN_GROUP": "g1"}, Origin("orders", "g1")),
        ("%DLQ%g1", {"RETRY_TOPIC": "%RETRY%g1_orders"}, Origin("orders", "g1")),
        ("%DLQ%g1", {"RETRY_TOPIC": "%RETRY%g1+orders"}, Origin("orders", "g1")),
        ("%DLQ%a_b", {"RETRY_TOPIC": "%RETRY%a_b_c"}, Origin("c", "a_b")),
        # A message that came back by a delay, and one of a group that is called like a group and a topic.
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "%RETRY%a_b", "ORIGIN_GROUP": "a"}, Origin("b", "a")),
        ("%RETRY%a_b", {"RETRY_TOPIC": "orders"}, Origin("orders", "a_b")),
        # A group that does not fit the name decides nothing.
        ("%RETRY%a_b", {"ORIGIN_GROUP": "other"}, Origin(None)),
        ("%RETRY%a_", {"ORIGIN_GROUP": "a"}, Origin(None)),
        ("%DLQ%g", {}, Origin(None, "g")),
        ("%DLQ%g", {"RETRY_TOPIC": "%RETRY%other_orders"}, Origin(None, "g")),
        ("TRANS_CHECK_MAX_TIME_TOPIC", {"REAL_TOPIC": "payments"}, Origin("payments")),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {}, Origin(None)),
    ]:
        assert origin_of(message(topic, **properties)) == origin


@given(group=NAMES, topic=NAMES, separator=st.sampled_from("_+"), dead=st.booleans())
def test_group_and_topic_of_a_popped_message_are_found_by_the_group(
    group: str, topic: str, separator: str, *, dead: bool
) -> None:
    retry = f"%RETRY%{group}{separator}{topic}"
    one = message(f"%DLQ%{group}", RETRY_TOPIC=retry) if dead else message(retry, ORIGIN_GROUP=group)
    assert origin_of(one) == Origin(topic, group)
    assert is_known_by(one, topic)


@given(group=NAMES, topic=NAMES, known=st.sets(st.tuples(NAMES, NAMES), max_size=3))
def test_without_the_group_one_known_reading_is_the_origin_and_of_several_none(
    group: str, topic: str, known: set[tuple[str, str]]
) -> None:
    known.add((group, topic))
    name = f"{group}_{topic}"

    def readings(asked: str) -> tuple[tuple[str, str], ...]:
        return tuple(pair for pair in splits(asked) if pair in known)

    expected = {pair for pair in known if "_".join(pair) == name}
    found = origin_of(message(f"%RETRY%{name}"), readings)
    if len(expected) == 1:
        assert found == Origin(topic, group)
    else:
        assert found.topic is None
        assert set(found.readings) == expected
    assert is_known_by(message(f"%RETRY%{name}"), topic)
