"""How texts become fields: expected values are those of RemotingCommand.decodeCommandCustomHeader 5.5.0."""

from enum import StrEnum

import msgspec
import pytest

from protocol.errors import BadHeader
from protocol.header_fields import I32, I64, field_plans, header_from_texts


class Choice(StrEnum):
    LOWER = "LOWER"
    UPPER = "UPPER"


class Needed(msgspec.Struct, rename="camel"):
    some_int: I32
    some_long: I64
    some_text: str


class Optional(msgspec.Struct, rename="camel"):
    some_int: I32 | None = None
    some_long: I64 = -1
    some_text: str | None = None
    some_flag: bool = True
    other_flag: bool | None = None
    choice: Choice = Choice.LOWER


GOOD = {"someInt": "1", "someLong": "2", "someText": "x"}

# (text, Integer.parseInt, Long.parseLong): None where Java leaves the field null.
NUMBERS = [
    ("1", 1, 1),
    ("+1", 1, 1),
    ("-0", 0, 0),
    ("007", 7, 7),
    (" 1", None, None),
    ("1 ", None, None),
    ("1_0", None, None),
    ("1e3", None, None),
    ("1.0", None, None),
    ("0x10", None, None),
    ("--1", None, None),
    ("", None, None),
    ("true", None, None),
    ("2147483647", 2**31 - 1, 2**31 - 1),
    ("2147483648", None, 2**31),
    ("-2147483648", -(2**31), -(2**31)),
    ("9223372036854775807", None, 2**63 - 1),
    ("9223372036854775808", None, None),
    ("-9223372036854775808", None, -(2**63)),
    ("9" * 100_000, None, None),
]


def test_numbers_are_what_java_parses() -> None:
    for text, as_int, as_long in NUMBERS:
        for name, expected, bits in (("someInt", as_int, 32), ("someLong", as_long, 64)):
            if expected is None:
                with pytest.raises(BadHeader) as caught:
                    header_from_texts(Needed, GOOD | {name: text})
                assert (caught.value.field, caught.value.value) == (name, text)
                assert caught.value.reason == f"is no {bits}-bit integer"
            else:
                header = header_from_texts(Needed, GOOD | {name: text})
                assert getattr(header, "some_" + name[4:].lower()) == expected


def test_only_true_in_any_case_is_true() -> None:
    others = ("false", "1", "0", "yes", " true", "t")
    for text, expected in [("true", True), ("TRUE", True), ("tRuE", True), *((text, False) for text in others)]:
        header = header_from_texts(Optional, {"someFlag": text, "otherFlag": text})
        assert (header.some_flag, header.other_flag) == (expected, expected)


@pytest.mark.parametrize(
    ("text", "expected"), [("UPPER", "UPPER"), ("upper", "UPPER"), ("LOWER", "LOWER"), ("x", "LOWER")]
)
def test_an_unknown_boundary_is_the_lower_one(text: str, expected: str) -> None:
    assert header_from_texts(Optional, {"choice": text}).choice == Choice(expected)


def test_an_empty_number_or_boolean_is_absent_but_an_empty_text_is_a_text() -> None:
    empty = dict.fromkeys(("someInt", "someLong", "someText", "someFlag", "otherFlag", "choice"), "")
    assert header_from_texts(Optional, empty) == Optional(some_text="")


def test_a_missing_field_is_named_as_on_the_wire() -> None:
    for name in GOOD:
        with pytest.raises(BadHeader) as caught:
            header_from_texts(Needed, {key: text for key, text in GOOD.items() if key != name})
        assert str(caught.value) == f"{name} is missing"


def test_a_type_without_conversion_is_a_mistake_of_ours() -> None:
    class Wrong(msgspec.Struct):
        number: float

    with pytest.raises(TypeError, match="no conversion"):
        field_plans(Wrong)
