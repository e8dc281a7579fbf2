"""The grammar: what an expression lacks or cannot compare, and where the error is drawn.

What expressions mean is in `test_sql92.py`, by what the official parser and evaluator said of 2,820 of them.
"""

import pytest

from protocol.errors import FilterSyntaxError
from storage.filter.sql92 import parse
from storage.filter.sql92._parser import Parser
from storage.filter.sql92._tokenizer import Tokenizer
from storage.filter.sql92.node import PartKind

LITERAL, TOO_FEW = "a literal is no condition", "expected a property or a value, found"


def test_what_follows_an_expression_is_not_read() -> None:
    for text, read in [
        ("a = 1 garbage !!!", "a = 1"),
        ("a LIKE 'x%'", "a"),
        ("a = 0x10", "a = 0"),
        ("a = 1.5f", "a = 1.5"),
        (" a = 1 -- c\n/* c */", " a = 1"),
        ("a = 1 99999999999999999999 @", "a = 1"),
    ]:
        expression = parse(text)
        assert expression.text[: expression.end] == read


def test_an_error_is_drawn_under_its_place() -> None:
    for text, reason, drawn in [
        ("", f"{TOO_FEW} the end", "^"),
        ("a = 1 @", "'@' is no part of an expression", "      ^"),
        ("a /*/", "a comment without its end", "  ^^^"),
        ("a = 'x", "a string without its closing quote", "    ^^"),
        ("'x''", "a string without its closing quote", "   ^"),
        ("a == 1", f"{TOO_FEW} '='", "   ^"),
        ("a = 1 AND", f"{TOO_FEW} the end", "         ^"),
        ("(a = 1 b)", "expected an operator or ), found 'b'", "       ^"),
        ("a IS 5", "expected NULL or NOT NULL, found '5'", "     ^"),
        ("a IS NOT", "expected NULL, found the end", "        ^"),
        (
            "a NOT LIKE 'x'",
            "expected CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN behind NOT, found 'LIKE'",
            "      ^^^^",
        ),
        ("a CONTAINS b", "expected a text in quotes, found 'b'", "           ^"),
        ("a BETWEEN 1, 2", "expected AND and the upper bound, found ','", "           ^"),
        ("a IN 'x'", "expected ( and a list of texts, found \"'x'\"", "     ^^^"),
        ("a IN ()", "expected a text in quotes, found ')'", "      ^"),
        ("a IN ('x' 'y')", "expected , or ), found \"'y'\"", "          ^^^"),
        ("a AND BETWEEN", f"{TOO_FEW} 'BETWEEN'", "      ^^^^^^^"),
        ("a = 9223372036854775808", "an integer above 9223372036854775807", "    ^^^^^^^^^^^^^^^^^^^"),
        ("a > 0.0", "a number with a point or exponent that is zero or too large for a double", "    ^^^"),
        # A part of the wrong kind.
        ("5", LITERAL, "^"),
        ("a = 1 AND 5", LITERAL, "          ^"),
        ("NOT +5", LITERAL, "    ^^"),
        ("(-a)", "a negated value is no condition", "^^^^"),
        ("-a IN ('x')", "only a property is looked up by IN, not a negated value", "^^"),
        ("a = 1 IN ('x')", "only a property is looked up by IN, not a literal", "    ^"),
        # Sides that cannot be compared.
        ("1 = NULL", None, "    ^^^^"),
        ("NULL <> a", None, "^^^^"),
        ("TRUE = 'abc'", None, "       ^^^^^"),
        ("a > 'x'", None, "    ^^^"),
        ("(a = 1) >= 2", None, "^^^^^^^"),
        ("NOT a > 1", None, "^^^^^"),
        ("a BETWEEN '1' AND 9", None, "          ^^^"),
        ("a NOT BETWEEN 1 AND (b = 1)", None, "                    ^^^^^^^"),
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


def test_doubles_that_are_zero_or_infinite_cannot_be_written() -> None:
    for number in ["0.0", "0.", ".0", "0e0", "1e-400", "1e309", "9" * 400 + "."]:
        with pytest.raises(FilterSyntaxError, match="zero or too large"):
            parse(f"a = {number}")


@pytest.mark.parametrize("number", ["4.9E-324", "1.7976931348623157e308", "9223372036854775807", "0", "1L"])
def test_the_outermost_numbers_can_be_written(number: str) -> None:
    assert parse(f"{number} = {number}").evaluate({}) is True


def test_an_integer_is_refused_by_its_length_before_it_is_read() -> None:
    with pytest.raises(FilterSyntaxError, match="an integer above"):
        parse(f"a = {'9' * 200_000}")


@pytest.mark.untraced
def test_minus_signs_without_a_line_end_behind_them_are_read_once() -> None:
    """One look for a line end from each of them would take half a minute of CPU time."""
    reader, names = Tokenizer("-" * 100_000 + "1"), set[str]()
    for _ in range(100_000):
        names.add(reader.take().name)
    assert (names, reader.take().text) == ({"MINUS"}, "1")


def test_a_property_alone_is_wrapped_into_a_condition() -> None:
    root = Parser("vip").selector()
    assert (root.kind, root.operands[0].kind) == (PartKind.CONDITION, PartKind.PROPERTY)
