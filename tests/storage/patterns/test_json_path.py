"""Conditions on JSON bodies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.patterns._json_path import JsonCondition

BODY = json.dumps(
    {
        "id": 5,
        "text": "5",
        "ok": True,
        "one": 1,
        "nil": None,
        "a": [{"b": "x=y", "p": 5, "c": "消息"}, {"b": "z", "p": 6}],
    }
).encode()


def test_a_path_and_a_value_are_told_apart_and_compared() -> None:
    for text, matches in [
        ("$.id=5", True),
        ("$.id=5.0", True),
        ("$.text=5", True),
        ("$.id=6", False),
        ("$.ok=true", True),
        ("$.one=true", False),
        ("$.ok=1", False),
        ("$.nil=null", True),
        ("$.missing=null", False),
        ("$.a[0].b=x=y", True),
        ("$..b=z", True),
        ("$.a[?@.p==6].b=z", True),
        ("$.a[?@.p==6].b=x=y", False),
        ("$..c=消息", True),
        ('$.a[1]={"b":"z","p":6}', True),
    ]:
        assert JsonCondition(text).matches(BODY) is matches


@given(
    # Numbers of any size, as texts: what a double or 64 bits do not hold is legal JSON too.
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,30})?", fullmatch=True),
    st.booleans(),
)
def test_no_number_and_no_mark_hides_the_rest_of_a_body(number: str, has_mark: bool) -> None:
    body = b"\xef\xbb\xbf" * has_mark + f'{{"x":{number},"id":7,"y":"4711"}}'.encode()
    assert JsonCondition("$.id=7").matches(body)
    assert JsonCondition("$.y=4711").matches(body)
    assert JsonCondition(f"$.x={number}").matches(body)
    assert not JsonCondition("$.id=8").matches(body)


@pytest.mark.untraced  # at the end of the stack a tracer fails itself
@pytest.mark.parametrize("body", [b"", b"no json", b"\xff\xfe", b"[" * 5000, b"NaN"])
def test_what_is_no_json_does_not_match(body: bytes) -> None:
    assert not JsonCondition("$..a=1").matches(body)


def test_the_bytes_that_must_be_there_unless_escaped_are_known() -> None:
    for text, literal in [
        ("$.a=order-7", b"order-7"),
        ("$.a=x/order", b"order"),
        ("$.order.id=5", b"order"),
        ("$..orderId=5", b"orderId"),
        ("$.a=5", None),
        ("$['abc','def']=5", None),
        ("$.*=true", None),
    ]:
        assert JsonCondition(text).literal == literal
