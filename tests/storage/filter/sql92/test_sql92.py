"""Expressions beside what the official parser and evaluator said of the same ones; where errors are drawn; steps."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from filter_vectors import vectors
from golden_store import GOLDEN
from protocol.errors import FilterEvaluationError, FilterSyntaxError
from storage.filter.sql92 import LONGEST, parse
from storage.filter.sql92._parser import DEEPEST

RECORDED = json.loads((GOLDEN / "filter" / "sql92-vectors.json").read_text())["vectors"]
KEYWORDS = "NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH not Is"
OTHERS = "= <> > >= < <= ( ) , + - a a b c 5 5L 5.5 0.0 1e3 007 'x' '5' '' 'it''s' @ ' /* -- LIKE 9223372036854775808"
WORDS = (*KEYWORDS.split(), *OTHERS.split(), "\n", "/* c */", "-- c\n")
texts = st.one_of(st.text(), st.text("ab'()<>=-+,. 05eELNOT\n/*", max_size=30),
                  st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join),
                  st.lists(st.sampled_from(WORDS), max_size=14).map("".join))  # fmt: skip
values = st.one_of(st.sampled_from(["5", "5.5", "-0", "x", "true", "NaN", "0x1p3", "٥"]), st.text(min_size=1))


def outcome(text: str, properties: dict[str, str]) -> tuple[str, str | None]:
    try:
        expression = parse(text)
    except FilterSyntaxError:
        return "compile", None
    try:
        return "run", {True: "true", False: "false", None: "null"}[expression.evaluate(properties)]
    except FilterEvaluationError:
        return "eval", None


def letter(expression, properties):
    try:
        return {True: "T", False: "F", None: "N"}[expression.evaluate(properties)]
    except FilterEvaluationError:
        return "E"


@pytest.mark.parametrize("group", sorted({vector["group"] for vector in RECORDED}))
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


@settings(max_examples=examples(10))
@given(texts, st.dictionaries(st.sampled_from("abc"), values))
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


def test_texts_that_nobody_can_mean_are_refused_where_they_begin() -> None:
    # Too many parentheses are refused at the one too many.
    with pytest.raises(FilterSyntaxError, match="more than 750 parentheses in each other") as caught:
        parse("(" * 20_000 + "a = 1" + ")" * 20_000)
    assert caught.value.span == (DEEPEST, DEEPEST + 1)
    # A text that nobody can mean is refused unread.
    assert parse(f"a = '{'x' * (LONGEST - 6)}'").evaluate({"a": "x"}) is False
    with pytest.raises(FilterSyntaxError, match="more than 262144 characters"):
        parse(f"a = '{'x' * LONGEST}'")
    # What follows an expression is not read.
    for text, read in [("a = 1 garbage !!!", "a = 1"), ("a LIKE 'x%'", "a"), ("a = 0x10", "a = 0")]:
        expression = parse(text)
        assert expression.text[: expression.end] == read


LITERAL, TOO_FEW = "a literal is no condition", "expected a property or a value, found"


def test_an_error_is_drawn_under_its_place() -> None:
    for text, reason, drawn in [
        ("", f"{TOO_FEW} the end", "^"),
        ("a = 1 @", "'@' is no part of an expression", "      ^"),
        ("a /*/", "a comment without its end", "  ^^^"),
        ("a = 'x", "a string without its closing quote", "    ^^"),
        ("a == 1", f"{TOO_FEW} '='", "   ^"),
        ("(a = 1 b)", "expected an operator or ), found 'b'", "       ^"),
        ("a IS 5", "expected NULL or NOT NULL, found '5'", "     ^"),
        (
            "a NOT LIKE 'x'",
            "expected CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN behind NOT, found 'LIKE'",
            "      ^^^^",
        ),
        ("a CONTAINS b", "expected a text in quotes, found 'b'", "           ^"),
        ("a BETWEEN 1, 2", "expected AND and the upper bound, found ','", "           ^"),
        ("a IN 'x'", "expected ( and a list of texts, found \"'x'\"", "     ^^^"),
        ("a IN ('x' 'y')", "expected , or ), found \"'y'\"", "          ^^^"),
        ("a = 9223372036854775808", "an integer above 9223372036854775807", "    ^^^^^^^^^^^^^^^^^^^"),
        ("a > 0.0", "a number with a point or exponent that is zero or too large for a double", "    ^^^"),
        # A part of the wrong kind.
        ("5", LITERAL, "^"),
        ("(-a)", "a negated value is no condition", "^^^^"),
        ("a = 1 IN ('x')", "only a property is looked up by IN, not a literal", "    ^"),
        # Sides that cannot be compared.
        ("1 = NULL", None, "    ^^^^"),
        ("TRUE = 'abc'", None, "       ^^^^^"),
        ("a > 'x'", None, "    ^^^"),
        ("a BETWEEN '1' AND 9", None, "          ^^^"),
        ("a = 1 OR a BETWEEN 9.5 AND 9", None, "                   ^^^^^^^^^"),
    ]:
        with pytest.raises(FilterSyntaxError) as caught:
            parse(text)
        assert str(caught.value) == f"{reason or caught.value.reason}\n    {text}\n    {drawn}"


def test_what_no_token_starts_with_is_refused() -> None:
    for text in (*'!"#%&*./:;?@[\\]^`{|}~', "é", "价", "😀", "\v", "\x00", "\xa0", "\u3000", "\ufeff"):
        with pytest.raises(FilterSyntaxError, match="is no part of an expression") as caught:
            parse(f"a {text}")
        assert caught.value.span == (2, 3)
    for text in ("a ıs NULL", "a ſtartswith 'x'"):  # letters that only Unicode takes for others make no keyword
        with pytest.raises(FilterSyntaxError):
            parse(text)


ALL_OF_TWO = """\
0 CONSTANT TRUE
1 COMPARE amount < 40
2 JOIN_ALL ^ ^, to 5 once decided
3 COMPARE region = 'r1'
4 JOIN_ALL ^ ^, to 5 once decided"""

ANY_OF_TWO = """\
0 CONSTANT FALSE
1 LOOK_UP a IN ('y', 'xx')
2 JOIN_ANY ^ ^, to 7 once decided
3 TRUTH b
4 ASK_UNKNOWN ^
5 NEGATE ^
6 JOIN_ANY ^ ^, to 7 once decided"""


@pytest.mark.parametrize(("text", "listing"), [
    ("amount < 40 AND region = 'r1'", ALL_OF_TWO),
    ("a IN ('xx', 'y') OR NOT (b IS NULL)", ANY_OF_TWO),
    ("a NOT CONTAINS 'x'", "0 SEARCH a NOT CONTAINS 'x'"),
    ("a <> 5000000000", "0 COMPARE a <> 5000000000L"),
    ("(a = 'x') = TRUE", "0 COMPARE a = 'x'\n1 CONSTANT TRUE\n2 COMPARE ^ = ^"),
])  # fmt: skip
def test_the_steps_of_an_expression_can_be_read(text: str, listing: str) -> None:
    assert "\n".join(parse(text).program.listing()) == listing
