"""The grammar: what follows an expression, what an expression lacks, and where the error is drawn."""

import pytest

from protocol.errors import FilterSyntaxError
from storage.filter.sql92 import parse
from storage.filter.sql92._parser import Parser
from storage.filter.sql92.node import Node, PartKind


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a = 1 garbage !!!", "a = 1"),
        ("a = 1)", "a = 1"),
        ("a LIKE 'x%'", "a"),
        ("a + 1 > 2", "a"),
        ("a-b = 1", "a"),
        ("a = 007", "a = 0"),
        ("a = 0x10", "a = 0"),
        ("a = 1.5f", "a = 1.5"),
        ("a = 1 -- no line end", "a = 1"),
        (" a = 1 -- c\n/* c */", " a = 1"),
        ("a = 1 99999999999999999999 @", "a = 1"),
        ("a = 1 0.0", "a = 1"),
    ],
)
def test_what_follows_an_expression_is_not_read(text: str, read: str) -> None:
    expression = parse(text)
    assert expression.text[: expression.end] == read


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "expected a property or a value, found the end\n    \n    ^"),
        (" -- c\n", "expected a property or a value, found the end\n    \n    ^"),
        ("a = 1 @", "'@' is no part of an expression\n    a = 1 @\n          ^"),
        ("a = 1 /* c", "a comment without its end\n    a = 1 /* c\n          ^^^^"),
        ("a == 1", "expected a property or a value, found '='\n    a == 1\n       ^"),
        ("a = 1 AND", "expected a property or a value, found the end\n    a = 1 AND\n             ^"),
        ("(a = 1 b)", "expected an operator or ), found 'b'\n    (a = 1 b)\n           ^"),
        ("a IS 5", "expected NULL or NOT NULL, found '5'\n    a IS 5\n         ^"),
        ("a IS NOT", "expected NULL, found the end\n    a IS NOT\n            ^"),
        (
            "a NOT LIKE 'x'",
            "expected CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN behind NOT, found 'LIKE'\n"
            "    a NOT LIKE 'x'\n          ^^^^",
        ),
        ("a CONTAINS b", "expected a text in quotes, found 'b'\n    a CONTAINS b\n               ^"),
        ("a BETWEEN 1, 2", "expected AND and the upper bound, found ','\n    a BETWEEN 1, 2\n               ^"),
        ("a IN 'x'", "expected ( and a list of texts, found \"'x'\"\n    a IN 'x'\n         ^^^"),
        ("a IN ()", "expected a text in quotes, found ')'\n    a IN ()\n          ^"),
        ("a IN ('x' 'y')", "expected , or ), found \"'y'\"\n    a IN ('x' 'y')\n              ^^^"),
        ("a AND BETWEEN", "expected a property or a value, found 'BETWEEN'\n    a AND BETWEEN\n          ^^^^^^^"),
        (
            "a = 9223372036854775808",
            "an integer above 9223372036854775807\n    a = 9223372036854775808\n        ^^^^^^^^^^^^^^^^^^^",
        ),
        (
            "a > 0.0",
            "a number with a point or exponent that is zero or too large for a double\n    a > 0.0\n        ^^^",
        ),
    ],
)
def test_an_error_is_drawn_under_its_place(text: str, error: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert str(caught.value) == error


@pytest.mark.parametrize("number", ["0.0", "0.", ".0", "0e0", "1e-400", "1e309", "9" * 400 + "."])
def test_doubles_that_are_zero_or_infinite_cannot_be_written(number: str) -> None:
    with pytest.raises(FilterSyntaxError, match="zero or too large"):
        parse(f"a = {number}")


@pytest.mark.parametrize("number", ["4.9E-324", "1.7976931348623157e308", "9223372036854775807", "0", "1L"])
def test_the_outermost_numbers_can_be_written(number: str) -> None:
    assert parse(f"{number} = {number}").evaluate({}) is True


def test_an_integer_is_refused_by_its_length_before_it_is_read() -> None:
    with pytest.raises(FilterSyntaxError, match="an integer above"):
        parse(f"a = {'9' * 200_000}")


def test_the_parts_of_an_expression_know_their_places() -> None:
    text = "NOT (a > 5) OR b BETWEEN 1 AND 2 OR c IN ('x')"

    def drawn(node: Node) -> list[object]:
        return [text[slice(*node.span)], *map(drawn, node.operands)]

    whole, *parts = drawn(parse(text).root)
    assert whole == text
    assert parts[0] == ["NOT (a > 5)", ["(a > 5)", ["a"], ["5"]]]
    assert parts[2] == ["c IN ('x')", ["c"]]
    assert drawn(parse(text).root.operands[1])[0] == "b BETWEEN 1 AND 2"


def test_a_property_alone_is_wrapped_into_a_condition() -> None:
    root = Parser("vip").selector()
    assert (root.kind, root.operands[0].kind, root.operands[0].constant) == (
        PartKind.CONDITION,
        PartKind.PROPERTY,
        "vip",
    )
    assert Parser("TRUE").selector().kind is PartKind.BOOLEAN_CONSTANT
