"""Expressions as a whole, beside what the official parser and evaluator said of the same ones."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filter_vectors import vectors
from golden_store import GOLDEN
from protocol.errors import FilterEvaluationError, FilterSyntaxError
from storage.filter.sql92 import LONGEST, Expression, parse
from storage.filter.sql92._parser import DEEPEST

RECORDED: list[dict[str, Any]] = json.loads((GOLDEN / "filter" / "sql92-vectors.json").read_text())["vectors"]
GROUPS = sorted({vector["group"] for vector in RECORDED})
PROPERTIES: list[dict[str, str]] = [properties for (properties,) in vectors("properties")]
KEYWORDS = "NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH not Is"
OTHERS = "= <> > >= < <= ( ) , + - a a b c 5 5L 5.5 0.0 1e3 007 'x' '5' '' 'it''s' @ ' /* -- LIKE 9223372036854775808"
WORDS = (*KEYWORDS.split(), *OTHERS.split(), "\n", "/* c */", "-- c\n")
texts = st.one_of(
    st.text(),
    st.text("ab'()<>=-+,. 05eELNOT\n/*", max_size=30),
    st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=14).map("".join),
)
values = st.one_of(st.sampled_from(["5", "5.5", "-0", "x", "true", "NaN", "0x1p3", "٥"]), st.text(min_size=1))
messages = st.dictionaries(st.sampled_from("abc"), values)


def outcome(text: str, properties: dict[str, str]) -> tuple[str, str | None]:
    """Stage and value as the recorded vectors name them."""
    try:
        expression = parse(text)
    except FilterSyntaxError:
        return "compile", None
    try:
        return "run", {True: "true", False: "false", None: "null"}[expression.evaluate(properties)]
    except FilterEvaluationError:
        return "eval", None


def letter(expression: Expression, properties: dict[str, str]) -> str:
    """An outcome as the letters of the random vectors name them."""
    try:
        return {True: "T", False: "F", None: "N"}[expression.evaluate(properties)]
    except FilterEvaluationError:
        return "E"


@pytest.mark.parametrize("group", GROUPS)
def test_an_expression_says_of_a_message_what_the_official_filter_said(group: str) -> None:
    for vector in RECORDED:
        if vector["group"] == group:
            assert outcome(vector["expr"], vector["props"]) == (vector["stage"], vector["value"]), vector["id"]


def test_random_expressions_are_refused_where_the_official_parser_refused_them() -> None:
    """What the others come out as is asked in `tests/storage/kernels/test_sql92.py`."""
    for text, expected in vectors("sql"):
        if expected is None:
            with pytest.raises(FilterSyntaxError):
                parse(text)


def test_the_random_vectors_hold_every_outcome_many_times() -> None:
    outcomes = [expected for _, expected in vectors("sql")]
    assert outcomes.count(None) > 500
    assert all("".join(filter(None, outcomes)).count(each) > 5000 for each in "TFNE")


@given(texts, messages)
def test_any_text_is_refused_or_decides_or_fails_in_the_documented_ways(text: str, properties: dict[str, str]) -> None:
    """`parse`: "Raises `FilterSyntaxError`"; `evaluate`: "True, False or None … raises `FilterEvaluationError`"."""
    error = None
    try:
        expression = parse(text)
    except FilterSyntaxError as caught:
        error = caught
    if error is None:
        assert letter(expression, properties) in "TFNE"
        assert 0 < expression.end <= len(text)
    else:
        assert error.source == text
        assert error.reason in str(error)
        assert 0 <= error.span[0] <= error.span[1] <= len(text)


DEEP = [
    ("the most parentheses", "(" * DEEPEST + "a = 1" + ")" * DEEPEST, True),
    ("5,000 NOT", "NOT " * 5000 + "(a = 1)", True),
    ("5,001 NOT", "NOT " * 5001 + "(a = 1)", False),
    ("an OR of 3,000", "a = 2 OR " * 2999 + "a = 1", True),
    ("5,000 texts", "a IN (" + ", ".join(f"'{number}'" for number in range(5_000)) + ")", True),
    ("IS NULL of IS NULL …", "missing" + " IS NULL" * 5_000, False),
    ("AND in OR in AND …", "(a = 2 OR (a = 1 AND " * 350 + "TRUE" + "))" * 350, True),
    ("conditions of conditions", "(" * 700 + "a = 1" + ") IS NOT NULL AND NOT missing IS NULL = TRUE" * 700, True),
    ("minus of minus …", "-" * 200 + "1 = a", True),
    ("a minus twice in each BETWEEN", "-(" * 60 + "a" + " BETWEEN 1 AND 2)" * 60 + " IS NULL", True),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in DEEP], ids=[case[0] for case in DEEP])
def test_depth_and_length_do_not_matter(text: str, expected: bool) -> None:
    assert parse(text).evaluate({"a": "1"}) is expected


def test_too_many_parentheses_are_refused_at_the_one_too_many() -> None:
    with pytest.raises(FilterSyntaxError, match="more than 750 parentheses in each other") as caught:
        parse("(" * 20_000 + "a = 1" + ")" * 20_000)
    assert caught.value.span == (DEEPEST, DEEPEST + 1)


def test_a_text_that_nobody_can_mean_is_refused_unread() -> None:
    assert parse(f"a = '{'x' * (LONGEST - 6)}'").evaluate({"a": "x"}) is False
    with pytest.raises(FilterSyntaxError, match="more than 262144 characters"):
        parse(f"a = '{'x' * LONGEST}'")
