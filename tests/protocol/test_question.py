"""What a question means: places, hosts, system topics, and which messages answer."""

from hypothesis import given
from hypothesis import strategies as st

from message_encoding import encode_message
from protocol import question
from protocol.born_host import BornHost, sender_behind_proxy
from protocol.host_address import HostAddress
from protocol.message import decode_message
from protocol.message_id import encode_message_id
from protocol.system_topics import Origin, Stage, is_known_by, kind_of, origin_of, splits, stage_of


def message(topic="T", **properties):
    return decode_message(encode_message(topic=topic, physical_offset=7, store_timestamp=50, properties=properties))


@given(st.integers(0, question.LARGEST), st.integers(0, 40))
def test_digits_are_a_physical_offset_however_many_zeros_lead_them(offset: int, zeros: int) -> None:
    assert question.physical_offset_of("0" * zeros + str(offset)) == offset


@given(st.ip_addresses().map(str), st.integers(0, 65535), st.integers(0, question.LARGEST))
def test_an_offset_message_id_names_a_place_in_either_case(ip: str, port: int, offset: int) -> None:
    address = HostAddress(ip, port)
    text = encode_message_id(address, offset)
    for each in (text, text.lower()):
        found = question.message_id_of(each)
        assert (found.address, found.physical_offset) == (address, offset)
        assert question.places_of(each)[0] == ("offset message id", offset, found)


def test_what_is_at_a_place_says_whose_it_is() -> None:
    found, message_id = message("orders"), question.message_id_of(encode_message_id(HostAddress("10.0.0.1", 1), 7))
    assert [question.other_topic(found, asked) for asked in ("orders", None, "")] == [""] * 3
    assert question.other_topic(found, "refunds") == "the message there is one of topic orders"
    waiting = message("SCHEDULE_TOPIC_XXXX", REAL_TOPIC="refunds")
    assert (question.other_topic(waiting, "refunds"), question.other_host(found, None)) == ("", "")
    assert question.other_host(found, message_id) == (
        f"the id names 10.0.0.1:1, the message there was stored by {found.store_host}"
    )


def test_a_question_is_answered_by_the_part_that_it_names() -> None:
    for kind, text, is_one in [
        (question.KeyKind.KEY, "k1", True), (question.KeyKind.KEY, "U1", False), (question.KeyKind.UNIQUE, "U1", True),
        (question.KeyKind.UNIQUE, "k1", False), (question.KeyKind.ANY, "U1", True), (question.KeyKind.ANY, "k2", True),
        (question.KeyKind.TAG, "paid", True), (question.KeyKind.TAG, "k1", False),
    ]:  # fmt: skip
        found = message(KEYS="k1 k2", UNIQ_KEY="U1", TAGS="paid")
        assert question.Question("T", text, kind).is_answered_by(found) is is_one
        assert not question.Question("Other", text, kind).is_answered_by(found)
        late = question.Question("T", text, kind, begin_timestamp=51)
        assert late.is_answered_by(found) is (is_one and kind is question.KeyKind.UNIQUE)
        assert late.is_narrowed is (kind is not question.KeyKind.UNIQUE)


def test_a_born_host_is_an_address_one_with_a_port_or_a_network() -> None:
    for text, inside, outside in [
        ("10.1.2.3", ("10.1.2.3", 5), ("10.1.2.4", 5)), ("10.1.2.3:5", ("10.1.2.3", 5), ("10.1.2.3", 6)),
        ("10.1.0.0/16", ("10.1.9.9", 5), ("10.2.0.0", 5)), ("10.1.2.3/16", ("10.1.9.9", 5), ("::1", 5)),
        ("::1", ("::1", 5), ("::2", 5)), ("[::1]:5", ("::1", 5), ("::1", 6)), ("[::1]", ("::1", 6), ("::2", 6)),
        ("2001:db8::/32", ("2001:db8::9", 1), ("2001:db9::", 1)),
    ]:  # fmt: skip
        host = BornHost.parse(text)
        assert host.holds_address(HostAddress(*inside))
        assert not host.holds_address(HostAddress(*outside))


# As a proxy 5.5.0 writes it: what the client says, which official Java clients make their host name, else its address.
def test_a_message_from_behind_a_proxy_is_from_the_host_that_the_proxy_names() -> None:
    for named, inside, outside in [
        (
            "10.1.1.1:5000",
            ["10.1.1.1", "10.1.0.0/16", "10.1.1.1:5000", "0.0.0.0/0"],
            ["10.1.1.1:5", "10.1.1.2", "::/0"],
        ),
        ("10.1.1.1", ["10.1.1.1"], ["10.1.1.1:5000"]),
        ("[2001:db8::1]:5000", ["2001:db8::1", "2001:db8::/32", "[2001:db8::1]:5000"], ["2001:db8::2", "0.0.0.0/0"]),
        ("2001:db8::1", ["2001:db8:0::1"], ["[2001:db8::1]:1"]),
        ("App-host-7", ["app-host-7", "APP-HOST-7"], ["app-host-70", "app-host", "app-host-7:1"]),
        ("app-host-7:1", ["app-host-7:1", "app-host-7"], ["app-host-7:2"]),
        ("10.1.0.0/16", [], ["10.1.0.0/16", "10.1.0.0"]),
        ("***", [], ["0.0.0.0/0"]),
    ]:
        record = encode_message(topic="T", properties={"__BORNHOST": named}, born_host=HostAddress("10.0.0.9", 8081))
        message = decode_message(record)
        for text in inside:
            assert BornHost.parse(text).holds(message), text
            assert BornHost.parse(text).holds_sender(message), text
        for text in outside:
            assert not BornHost.parse(text).holds_sender(message), text
        proxy = BornHost.parse("10.0.0.9")
        assert proxy.holds(message)
        assert proxy.is_proxy_of(message) is (sender_behind_proxy(named) is not None)


NAMES = st.text("abc_-1", min_size=1, max_size=6)


def test_a_topic_has_its_stage_and_kind() -> None:
    for topic, stage, kind in [
        ("orders", Stage.DELIVERED, "normal"), ("%RETRY%g", Stage.RETRY, "retry"),
        ("%DLQ%g", Stage.DEAD_LETTER, "dead letter"), ("SCHEDULE_TOPIC_XXXX", Stage.SCHEDULED, "system"),
        ("rmq_sys_wheel_timer", Stage.TIMER, "system"), ("RMQ_SYS_TRANS_HALF_TOPIC", Stage.HALF, "system"),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", Stage.HALF, "system"),
        ("TRANS_CHECK_MAX_TIME_TOPIC", Stage.DISCARDED, "system"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", Stage.DELIVERED, "system"),
        ("DefaultHeartBeatSyncerTopic", Stage.DELIVERED, "system"), ("rmq_sys_anything", Stage.DELIVERED, "system"),
        ("rmq_sys_wheel_timer2", Stage.DELIVERED, "system"), ("my_RMQ_SYS_topic", Stage.DELIVERED, "normal"),
    ]:  # fmt: skip
        assert stage_of(topic) is stage
        assert kind_of(topic) == kind


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


@given(group=NAMES, topic=NAMES, known=st.sets(st.tuples(NAMES, NAMES), max_size=3))
def test_without_the_group_one_known_reading_is_the_origin_and_of_several_none(group, topic, known) -> None:
    known.add((group, topic))
    name = f"{group}_{topic}"

    expected = {pair for pair in known if "_".join(pair) == name}
    readings = lambda asked: tuple(pair for pair in splits(asked) if pair in known)  # noqa: E731
    found = origin_of(message(f"%RETRY%{name}"), readings)
    if len(expected) == 1:
        assert found == Origin(topic, group)
    else:
        assert found.topic is None
        assert set(found.readings) == expected
    assert is_known_by(message(f"%RETRY%{name}"), topic)
