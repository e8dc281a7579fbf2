"""As what a text is taken, and which messages answer a question."""

from hypothesis import given
from hypothesis import strategies as st

from message_encoding import encode_message
from protocol.host_address import HostAddress
from protocol.message import Message, decode_message
from protocol.message_id import encode_message_id
from protocol.question import (
    KIND_OF_LETTER,
    LARGEST,
    KeyKind,
    Question,
    message_id_of,
    other_host,
    other_topic,
    physical_offset_of,
    places_of,
)


def message(topic: str = "T", **properties: str) -> Message:
    return decode_message(encode_message(topic=topic, physical_offset=7, store_timestamp=50, properties=properties))


@given(st.integers(0, LARGEST), st.integers(0, 40))
def test_digits_are_a_physical_offset_however_many_zeros_lead_them(offset: int, zeros: int) -> None:
    assert physical_offset_of("0" * zeros + str(offset)) == offset


@given(st.integers(LARGEST + 1, 10**30))
def test_a_number_that_no_file_reaches_is_no_offset(number: int) -> None:
    assert physical_offset_of(str(number)) is None


def test_other_texts_are_no_offset() -> None:
    for text in ["", "-1", "+1", " 1", "1 ", "1.0", "1_0", "0x1", "\u0661", "\u00b2", "one"]:
        assert physical_offset_of(text) is None


@given(st.ip_addresses().map(str), st.integers(0, 65535), st.integers(0, LARGEST))
def test_an_offset_message_id_names_a_place_in_either_case(ip: str, port: int, offset: int) -> None:
    address = HostAddress(ip, port)
    text = encode_message_id(address, offset)
    for each in (text, text.lower()):
        found = message_id_of(each)
        assert found is not None
        assert (found.address, found.physical_offset) == (address, offset)
        assert places_of(each)[0] == ("offset message id", offset, found)


def test_a_text_may_be_an_id_and_an_offset() -> None:
    text = "0" * 29 + "275"
    assert [(kind, offset) for kind, offset, _ in places_of(text)] == [
        ("offset message id", 0x275),
        ("physical offset", 275),
    ]


def test_what_is_at_a_place_says_whose_it_is() -> None:
    found, message_id = message("orders"), message_id_of(encode_message_id(HostAddress("10.0.0.1", 1), 7))
    assert other_topic(found, "orders") == other_topic(found, None) == other_topic(found, "") == ""
    assert other_topic(found, "refunds") == "the message there is one of topic orders"
    waiting = message("SCHEDULE_TOPIC_XXXX", REAL_TOPIC="refunds")
    assert other_topic(waiting, "refunds") == ""
    assert other_host(found, None) == ""
    assert other_host(found, message_id) == (
        f"the id names 10.0.0.1:1, the message there was stored by {found.store_host}"
    )


def test_a_question_is_answered_by_the_part_that_it_names() -> None:
    for kind, text, is_one in [
        (KeyKind.KEY, "k1", True),
        (KeyKind.KEY, "U1", False),
        (KeyKind.UNIQUE, "U1", True),
        (KeyKind.UNIQUE, "k1", False),
        (KeyKind.ANY, "U1", True),
        (KeyKind.ANY, "k2", True),
        (KeyKind.TAG, "paid", True),
        (KeyKind.TAG, "k1", False),
    ]:
        found = message(KEYS="k1 k2", UNIQ_KEY="U1", TAGS="paid")
        assert Question("T", text, kind).is_answered_by(found) is is_one
        assert not Question("Other", text, kind).is_answered_by(found)
        late = Question("T", text, kind, begin_timestamp=51)
        assert late.is_answered_by(found) is (is_one and kind is KeyKind.UNIQUE)
        assert late.is_narrowed is (kind is not KeyKind.UNIQUE)


def test_copies_answer_a_question_that_asks_for_them() -> None:
    waiting = message("SCHEDULE_TOPIC_XXXX", REAL_TOPIC="T", KEYS="k")
    assert not Question("T", "k").is_answered_by(waiting)
    assert Question("T", "k", copies=True).is_answered_by(waiting)


def test_letters_on_the_wire_are_those_of_the_kinds() -> None:
    for letter, kind in KIND_OF_LETTER.items():
        assert Question("T", "k", kind).ext_fields()["indexType"] == letter
    assert "indexType" not in Question("T", "k").ext_fields()
