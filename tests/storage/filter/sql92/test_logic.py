"""AND, OR, NOT, IS NULL, IN and the searches: tables and rules of filters §2.5 and §2.6."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import FilterEvaluationError, FilterSyntaxError
from storage.filter.sql92 import parse

NAMES = {True: "TRUE", False: "FALSE", None: "NULL"}
FAILING = "(s > 1)"  # with s no number
TRUTHS = (True, False, None)


def decide(text: str, **properties: str) -> bool | str | None:
    try:
        return parse(text).evaluate(properties)
    except FilterEvaluationError:
        return "raises"


def conjunction(parts: list[str]) -> bool | str | None:
    """AND as its table says, part by part from the left."""
    value: bool | str | None = True
    for part in parts:
        if value is False:
            return False
        if part == FAILING:
            return "raises"
        other = {"TRUE": True, "FALSE": False, "NULL": None}[part]
        value = False if other is False else None if None in (value, other) else True
    return value


@pytest.mark.parametrize(("left", "right"), list(product(TRUTHS, repeat=2)))
def test_and_or_of_two_are_as_in_the_table(left: bool | None, right: bool | None) -> None:
    both = False if False in (left, right) else None if None in (left, right) else True
    either = True if True in (left, right) else None if None in (left, right) else False
    assert decide(f"{NAMES[left]} AND {NAMES[right]}") is both
    assert decide(f"{NAMES[left]} OR {NAMES[right]}") is either


@given(st.lists(st.sampled_from(["TRUE", "FALSE", "NULL", FAILING]), min_size=1, max_size=6))
def test_and_goes_on_until_something_is_false_and_or_is_its_mirror(parts: list[str]) -> None:
    if parts == [FAILING]:
        parts = parts * 2
    expected = conjunction(parts)
    assert decide(" AND ".join(parts), s="abc") == expected
    mirrored = [{"TRUE": "FALSE", "FALSE": "TRUE"}.get(part, part) for part in parts]
    opposite = not expected if isinstance(expected, bool) else expected
    assert decide(" OR ".join(mirrored), s="abc") == opposite


def test_and_binds_tighter_than_or_and_not_tighter_than_a_comparison() -> None:
    assert decide("TRUE OR FALSE AND FALSE") is True
    assert decide("(TRUE OR FALSE) AND FALSE") is False
    assert decide("NOT a = 1", a="1") is False  # (NOT a) = 1, a truth value beside a number
    assert decide("NOT TRUE = FALSE") is True
    assert decide("a = b > c", a="true", b="2", c="1") is True
    assert decide("a = b = FALSE", a="1", b="2") is True


def test_not_turns_no_null_into_a_match() -> None:
    assert [decide("NOT NULL"), decide("NOT TRUE"), decide("NOT NOT TRUE"), decide("NOT a")] == [
        None,
        False,
        True,
        None,
    ]


def test_a_property_is_never_true() -> None:
    assert [decide("a"), decide("a", a="true"), decide("NOT a", a="true")] == [None, False, True]
    assert [decide("a AND TRUE", a="true"), decide("a OR TRUE", a="x"), decide("a OR FALSE")] == [False, True, None]


def test_is_null_is_never_null() -> None:
    assert [decide("a IS NULL"), decide("a IS NULL", a="x"), decide("a IS NOT NULL")] == [True, False, False]
    assert [decide("(a > 1) IS NULL"), decide("NULL IS NULL"), decide("1 is Not null")] == [True, True, True]
    assert decide("(a > 1) IS NULL", a="x") == "raises"
    assert decide("a IS NULL IS NULL IS NOT NULL") is True


def test_in_is_membership_of_the_text() -> None:
    assert [decide("a IN ('3', '4')", a=value) for value in ("3", "3.0")] == [True, False]
    assert [decide("a NOT IN ('3')", a=value) for value in ("3", "8")] == [False, True]
    assert [decide("a IN ('3')"), decide("a NOT IN ('3')"), decide("+(a) IN ('it''s')", a="it's")] == [None, None, True]


def test_the_searches_are_false_without_a_text_on_either_side() -> None:
    for keyword in ("CONTAINS", "STARTSWITH", "ENDSWITH"):
        for search in (keyword, f"NOT {keyword}"):
            assert decide(f"a {search} 'x'") is False
            assert decide(f"a {search} ''", a="x") is False
            assert decide(f"5 {search} '5'") is False
            assert decide(f"(a > 1) {search} '5'", a="2") is False
            assert decide(f"NOT (a {search} 'x')") is True


def test_the_search_for_nothing_does_not_even_fail() -> None:
    assert decide("(s > 1) CONTAINS ''", s="abc") is False
    assert decide("(s > 1) CONTAINS 'x'", s="abc") == "raises"


@given(st.text("ab", min_size=1, max_size=4), st.text("ab", min_size=1, max_size=3))
def test_the_searches_find_what_they_say(value: str, wanted: str) -> None:
    places = [place for place in range(len(value)) if value[place : place + len(wanted)] == wanted]
    expected = {
        "CONTAINS": bool(places),
        "STARTSWITH": 0 in places,
        "ENDSWITH": len(value) - len(wanted) in places,
    }
    for keyword, is_found in expected.items():
        assert decide(f"a {keyword} '{wanted}'", a=value) is is_found
        assert decide(f"a NOT {keyword} '{wanted}'", a=value) is not is_found


@pytest.mark.parametrize(
    ("text", "reason", "drawn"),
    [
        ("5", "a literal is no condition", "^"),
        ("'true'", "a literal is no condition", "^^^^^^"),
        ("(-a)", "a negated value is no condition", "^^^^"),
        ("a = 1 AND 5", "a literal is no condition", "          ^"),
        ("5 OR TRUE", "a literal is no condition", "^"),
        ("NOT +5", "a literal is no condition", "    ^^"),
        ("-a IN ('x')", "only a property is looked up by IN, not a negated value", "^^"),
        ("a = 1 IN ('x')", "only a property is looked up by IN, not a literal", "    ^"),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused_and_drawn(text: str, reason: str, drawn: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert str(caught.value) == f"{reason}\n    {text}\n    {drawn}"
