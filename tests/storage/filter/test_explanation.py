"""Why a filter delivers a message or not: the words say what the filter did."""

from hypothesis import given
from hypothesis import strategies as st

from storage.filter.explanation import LONGEST_VALUE, MOST_CONDITIONS, explain_expression, explain_tag, is_tagged_so
from storage.filter.sql92 import parse
from storage.filter.tag import parse_tag_expression


def test_a_tag_is_held_against_those_wanted() -> None:
    for text, tag, delivered, words in [
        ("*", None, True, "to all messages"),
        ("A || B", "B", True, "the tag 'B' is one of 'A', 'B'"),
        ("A || B", "C", False, "the tag 'C' is none of 'A', 'B'"),
        ("A", None, False, "has no tag, wanted: 'A'"),
        ("A", "", False, "has no tag"),
        (" ", "A", False, "names no tag"),
    ]:
        expression = parse_tag_expression(text)
        assert is_tagged_so(expression, tag) is delivered
        assert words in explain_tag(expression, tag)


def test_each_condition_is_told_with_what_it_came_to() -> None:
    for text, properties, words in [
        ("a = 'x'", {"a": "x"}, "a = 'x' is true (a is 'x')"),
        ("a = 'x'", {}, "a = 'x' is unknown (a is missing)"),
        ("a > b", {"a": "1"}, "b is missing"),
        ("TRUE", {}, "TRUE is true"),
        ("a = 1 OR b = 2", {"a": "1", "b": "3"}, "the expression is true: a = 1 is true (a is '1'); b = 2 is false"),
        ("a BETWEEN 1 AND 3", {"a": "2"}, "is true (a is '2')"),
    ]:
        assert words in explain_expression(parse(text), properties)


def test_long_values_and_long_expressions_are_cut() -> None:
    told = explain_expression(parse("a = 'x'"), {"a": "y" * 5000})
    assert len(told) < 2 * LONGEST_VALUE + 100
    many = " OR ".join(f"a = {number}" for number in range(MOST_CONDITIONS + 7))
    assert explain_expression(parse(many), {"a": "1"}).endswith("and 7 more conditions")


@given(
    parts=st.lists(st.sampled_from(["a = 1", "b > 2", "NOT (c = 'x')", "d IS NULL", "a CONTAINS 'y'"]), min_size=2),
    joint=st.sampled_from([" AND ", " OR "]),
    properties=st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "5", "x", "y"])),
)
def test_an_explanation_begins_with_the_decision(parts: list[str], joint: str, properties: dict[str, str]) -> None:
    expression = parse(joint.join(parts))
    told = explain_expression(expression, properties)
    assert told.startswith("the expression is ")
    decision = told.removeprefix("the expression is ").split(":")[0]
    assert decision in ("true", "false", "unknown", "not to be evaluated")
    if decision in ("true", "false"):
        assert expression.evaluate(properties) is (decision == "true")
