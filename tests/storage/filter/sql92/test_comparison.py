"""Comparisons: each rule of filters §2.4 and §2.5 by an example or by a property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import FilterEvaluationError, FilterSyntaxError
from storage.filter.sql92 import parse

values = st.sampled_from(["5", "5.5", "-7", "0", "2147483648", "x", "true", "NaN"])
messages = st.dictionaries(st.sampled_from("ab"), values)
operators = st.sampled_from(["=", "<>", ">", ">=", "<", "<="])
literals = st.sampled_from(["5", "5.5", "2147483648", "-7", "'x'", "TRUE"])


def decide(text: str, **properties: str) -> bool | str | None:
    try:
        return parse(text).evaluate(properties)
    except FilterEvaluationError as error:
        return str(error)


def test_what_is_missing_is_not_treated_evenly() -> None:
    """ "both null → true. Only L null → null. Only R null → false." """
    assert [decide("a = b"), decide("a = b", b="1"), decide("a = b", a="1")] == [True, None, False]
    assert [decide("a <> b"), decide("a <> b", b="1"), decide("a <> b", a="1")] == [False, None, True]
    assert [decide("5 = a"), decide("5 <> a"), decide("a = 5"), decide("a <> 5")] == [False, True, None, None]
    assert [decide("TRUE = a"), decide("'x' <> a"), decide("a = 'x'"), decide("a = TRUE")] == [False, True, None, None]
    assert [decide(f"{sides}") for sides in ("a < b", "a < 5", "5 < a")] == [None, None, None]
    assert decide("a > b", a="no number") is None


def test_the_type_of_the_literal_decides_how_a_property_is_read() -> None:
    assert decide("a > 5", a="5.5") == "'5.5' is no 32-bit integer"
    assert decide("a > 5.0", a="5.5") is True
    assert decide("a > 5", a="3000000000") == "'3000000000' is beyond a 32-bit integer"
    assert decide("a > 2147483648", a="3000000000") is True
    assert decide("a = 5L", a="3000000000") == "'3000000000' is beyond a 32-bit integer"
    assert decide("5.5 <> a", a="abc") == "'abc' is no number"
    assert [decide("a = '5'", a=value) for value in ("5", "5.0", "+5")] == [True, False, False]


def test_two_properties_are_equal_as_texts_and_ordered_as_doubles() -> None:
    assert decide("a = b", a="5", b="5.0") is False
    assert decide("a >= b AND a <= b", a="5", b="5.0") is True
    assert decide("a < b", a="-0.0", b="0.0") is True
    assert decide("a > b", a="NaN", b="Infinity") is True
    assert decide("a > b", a="x", b="1") == "'x' is no number"


def test_a_truth_value_is_read_on_the_right_side_only() -> None:
    assert [decide("a = TRUE", a=value) for value in ("true", "tRUE", "yes", "true ")] == [True, True, False, False]
    assert [decide("a = FALSE", a=value) for value in ("false", "anything", "TRUE")] == [True, True, False]
    assert decide("TRUE = a", a="true") == "'true' is no truth value: only the left side of = is read as one"
    assert decide("a = (b > 1)", a="true", b="2") is True
    assert [decide("1 = TRUE"), decide("1 <> TRUE"), decide("(a = '1') = 1", a="1")] == [False, True, False]
    assert [decide("TRUE = FALSE"), decide("TRUE <> FALSE"), decide("(a IS NULL) = TRUE")] == [False, True, True]


def test_no_character_but_ascii_letters_makes_up_true() -> None:
    """`equalsIgnoreCase` and `lower` differ beyond ASCII; not for these four letters."""
    others = (character for character in map(chr, range(0x80, 0x110000)) if character.lower() in set("true"))
    assert not list(others)


def test_numbers_of_unlike_types_meet_in_the_wider_one() -> None:
    assert decide("1 = 1.0") is True
    assert decide("2147483647 < 2147483648") is True
    assert decide("9007199254740993 = 9007199254740992.0") is True
    assert decide("9007199254740993 > 9007199254740992") is True
    assert decide("-2147483648 = a", a="-2147483648") is True


def test_a_negated_text_or_property_is_null() -> None:
    assert [decide("-a = b", a="1"), decide("-'x' > 1"), decide("-TRUE < 5"), decide("5 < -a", a="1")] == (
        [True, None, None, None]
    )
    assert [decide("-5 = a", a="-5"), decide("- -5 = a", a="5"), decide("-(a > 1) IS NULL", a="2")] == [True] * 3
    assert decide("-(a > 1) IS NULL", a="x") == "'x' is no 32-bit integer"


def test_between_is_two_comparisons() -> None:
    assert [decide("a BETWEEN 2 AND 10", a=value) for value in ("2", "10", "11")] == [True, True, False]
    assert [decide("a NOT BETWEEN 2 AND 10", a=value) for value in ("1", "2", "11")] == [True, False, True]
    assert [decide("a BETWEEN b AND 5", a=value) for value in ("5", "6")] == [None, False]
    assert [decide("a NOT BETWEEN b AND 5", a=value) for value in ("5", "6")] == [None, True]
    assert [decide("a BETWEEN 10 AND -5", a="5"), decide("a NOT BETWEEN 10 AND 2", a="5")] == [False, True]
    assert [decide("-a BETWEEN 1 AND 2", a="1"), decide("-a NOT BETWEEN 1 AND 2", a="1")] == [None, None]


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("1 = NULL", "    ^^^^"),
        ("NULL <> a", "^^^^"),
        ("TRUE = 'abc'", "       ^^^^^"),
        ("a > 'x'", "    ^^^"),
        ("TRUE < a", "^^^^"),
        ("(a = 1) >= 2", "^^^^^^^"),
        ("NOT a > 1", "^^^^^"),
        ("a BETWEEN '1' AND 9", "          ^^^"),
        ("a BETWEEN 1 AND (b)", None),
        ("'5' BETWEEN 1 AND 9", "^^^"),
        ("a NOT BETWEEN 1 AND (b = 1)", "                    ^^^^^^^"),
        ("a = 1 OR a BETWEEN 9.5 AND 9", "                   ^^^^^^^^^"),
    ],
)
def test_sides_that_cannot_be_compared_are_refused_and_drawn(text: str, drawn: str | None) -> None:
    if drawn is None:
        parse(text)
        return
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert str(caught.value).splitlines()[1:] == [f"    {text}", f"    {drawn}"]


@given(operators, st.sampled_from("ab"), literals | st.sampled_from("ab"), messages)
def test_not_equal_is_the_opposite_of_equal_and_a_mirrored_order_is_the_same(
    operator: str, left: str, right: str, message: dict[str, str]
) -> None:
    if operator in ("=", "<>"):
        opposite = decide(f"NOT ({left} {'=' if operator == '<>' else '<>'} {right})", **message)
        assert decide(f"{left} {operator} {right}", **message) == opposite
    elif right not in ("'x'", "TRUE"):
        mirrored = operator.translate(str.maketrans("<>", "><"))
        given_order, other = (
            decide(f"{left} {operator} {right}", **message),
            decide(f"{right} {mirrored} {left}", **message),
        )
        assert given_order == other or (isinstance(given_order, str) and isinstance(other, str))


@given(st.sampled_from(["a", "7", "-a"]), literals, literals, st.booleans(), messages)
def test_between_is_what_it_says(subject: str, low: str, high: str, is_negated: bool, message: dict[str, str]) -> None:
    """ "v BETWEEN lo AND hi = (v >= lo) AND (v <= hi); NOT BETWEEN = (v < lo) OR (v > hi)" """
    spelled = "{0} < {1} OR {0} > {2}" if is_negated else "{0} >= {1} AND {0} <= {2}"
    try:
        parse(text := f"{subject} {'NOT ' if is_negated else ''}BETWEEN {low} AND {high}")
    except FilterSyntaxError:
        return
    assert decide(text, **message) == decide(spelled.format(subject, low, high), **message)
