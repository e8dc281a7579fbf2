"""Conditions that somebody writes are compiled and run where they can be stopped."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asked_patterns import recorded
from protocol.errors import ConfigError
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
        pytest.param(
            "json_path",
            f"$[?@.a =~ /{SLOW_TO_COMPILE}/]=1",
            "takes too long to compile as a JSONPath",
            marks=pytest.mark.soak,
        ),
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
