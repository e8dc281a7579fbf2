"""Conditions on bodies: compiled and run where they can be stopped; JSON paths; what cannot match without a text."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asked_patterns import recorded
from protocol.errors import ConfigError
from storage.patterns._json_path import JsonCondition
from storage.patterns._literal import required_literal
from storage.patterns._pattern_process import PATIENCE
from storage.patterns.condition import PatternCondition
from storage.patterns.processes import PatternLimit, PatternsStopped

SLOW_TO_COMPILE = "(?i)" + "[\u0100-\uffff]" * 500


@given(st.sampled_from(["abc", r"\w+@", "(a|b)+c", "^$", "消"]), st.lists(st.text("abc@消\n", max_size=8), max_size=5))
def test_a_regular_expression_finds_what_re_finds(pattern: str, texts: list[str]) -> None:
    condition = PatternCondition("regex", pattern, None)
    expected = [re.search(pattern, text) is not None for text in texts]
    assert condition.matches([text.encode() for text in texts]) == expected
    assert condition.matches([], texts) == expected
    in_gbk = PatternCondition("regex", pattern, "gbk")
    assert in_gbk.matches([text.encode("gbk") for text in texts], texts) == expected * 2


@pytest.mark.parametrize(
    ("kind", "condition", "words"),
    [
        ("regex", "(", "is no regular expression: missing \\)"),
        ("json_path", "$.a", "is no JSONPath=VALUE: there is no = in it"),
        ("json_path", "$[?@.a =~ /(/]=1", "is no JSONPath=VALUE"),
        ("regex", SLOW_TO_COMPILE, "takes too long to compile as a regular expression"),
    ],
)
def test_what_is_none_is_refused(kind: str, condition: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PatternCondition(kind, condition, None)  # type: ignore[arg-type]


def test_nobody_waits_while_it_is_compiled() -> None:
    with pytest.raises(PatternsStopped):
        PatternCondition("regex", SLOW_TO_COMPILE, None, lambda: True)


def test_one_body_without_end_is_a_limit_for_all_that_are_asked_together() -> None:
    condition = PatternCondition("regex", "(a+)+$b", None)
    with recorded() as asked:
        for number in range(10):
            with pytest.raises(PatternLimit):
                condition.matches([b"a" * 60 + b"%d" % number])
        assert condition.matches([b"short"]) == [False]
        with pytest.raises(PatternLimit):
            condition.for_one_run().matches([b"a" * 60])
    assert (asked.patient, asked.brief) == (PATIENCE + 1, 10 - PATIENCE)
    with pytest.raises(PatternLimit):
        condition.matches([b"x", b"a" * 60])
    assert condition.matches([b"x", b"aab"]) == [False, False]


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


def test_the_longest_text_is_taken_that_must_be_there() -> None:
    for pattern, literal in [
        (r"order-\d+", b"order-"),
        (r"^order$", b"order"),
        (r"(?:foo)+barbaz?", b"barba"),
        (r"x{0,3}yyyy", b"yyyy"),
        (r"[ab]cdef", b"cdef"),
        (r"消息\d", "消息".encode()),
        (r"a(?=bcd)", None),
        (r"(?!abcd)x", None),
        (r"abc|abd", None),
        (r"(?i)abcdef", None),
        (r"(?i:abcdef)gh", None),
        (r"(abcd)?", None),
        (r"\d+", None),
        ("\ud800abc", None),
    ]:
        assert required_literal(pattern) == literal
