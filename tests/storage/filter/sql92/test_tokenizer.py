"""Tokens: their forms, the longest one first, and one looked at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import FilterSyntaxError
from storage.filter.sql92._tokenizer import END, KEYWORDS, Token, Tokenizer


def tokens(text: str) -> list[tuple[str, str]]:
    """Names and texts of all tokens."""
    reader = Tokenizer(text)
    found = []
    while (token := reader.take()).name != END:
        found.append((token.name, token.text))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("007", [("INTEGER", "0"), ("INTEGER", "0"), ("INTEGER", "7")]),
        ("0L 12l", [("INTEGER", "0"), ("IDENTIFIER", "L"), ("INTEGER", "12l")]),
        ("007.50 1. .5 1e3 1.E-2", [("FLOAT", each) for each in ["007.50", "1.", ".5", "1e3", "1.E-2"]]),
        ("1abc", [("INTEGER", "1"), ("IDENTIFIER", "abc")]),
        ("1.5f", [("FLOAT", "1.5"), ("IDENTIFIER", "f")]),
        ("1e", [("INTEGER", "1"), ("IDENTIFIER", "e")]),
        ("1.5.5", [("FLOAT", "1.5"), ("FLOAT", ".5")]),
        ("1..2", [("FLOAT", "1."), ("FLOAT", ".2")]),
        ("0x10", [("INTEGER", "0"), ("IDENTIFIER", "x10")]),
        ("'it''s' ''", [("STRING", "'it''s'"), ("STRING", "''")]),
        ("'a\nb'", [("STRING", "'a\nb'")]),
        ("$a_1 _ inx", [("IDENTIFIER", "$a_1"), ("IDENTIFIER", "_"), ("IDENTIFIER", "inx")]),
        ("nOt Null", [("NOT", "nOt"), ("NULL", "Null")]),
        ("<>>=<==", [("NOT_EQUAL", "<>"), ("AT_LEAST", ">="), ("AT_MOST", "<="), ("EQUAL", "=")]),
        ("a-b", [("IDENTIFIER", "a"), ("MINUS", "-"), ("IDENTIFIER", "b")]),
        ("-- not ended", [("MINUS", "-"), ("MINUS", "-"), ("NOT", "not"), ("IDENTIFIER", "ended")]),
        ("a -- c\r\nb--\rc --\n", [("IDENTIFIER", "a"), ("IDENTIFIER", "b"), ("IDENTIFIER", "c")]),
        ("a/* ' -- */b/***/c/* /* */", [("IDENTIFIER", "a"), ("IDENTIFIER", "b"), ("IDENTIFIER", "c")]),
        (" \t\n\r\f", []),
        ("", []),
    ],
)
def test_a_text_falls_into_the_tokens_of_the_reference(text: str, expected: list[tuple[str, str]]) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize("text", [*'!"#%&*./:;?@[\\]^`{|}~', "é", "价", "😀", "\v", "\x00", "\xa0", "\u3000", "\ufeff"])
def test_what_no_token_starts_with_is_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="is no part of an expression") as caught:
        tokens(f"a {text}")
    assert caught.value.span == (2, 3)


@pytest.mark.parametrize(
    ("text", "reason", "start"),
    [
        ("a = 'x", "a string without its closing quote", 4),
        ("'x''", "a string without its closing quote", 3),
        ("a /* *", "a comment without its end", 2),
        ("a /*/", "a comment without its end", 2),
    ],
)
def test_what_has_no_end_is_refused_from_its_start_on(text: str, reason: str, start: int) -> None:
    with pytest.raises(FilterSyntaxError, match=reason) as caught:
        tokens(text)
    assert caught.value.span == (start, len(text))


def test_nothing_is_read_before_it_is_asked_for() -> None:
    reader = Tokenizer("a @")
    assert reader.take() == Token("IDENTIFIER", "a", 0)
    assert reader.end == 1
    with pytest.raises(FilterSyntaxError):
        reader.peek()


def test_a_token_of_another_name_stays() -> None:
    reader = Tokenizer("a = 1")
    assert reader.accept("NOT", "OPEN") is None
    assert reader.accept("NOT", "IDENTIFIER") == Token("IDENTIFIER", "a", 0)
    with pytest.raises(FilterSyntaxError, match=r"expected \), found '='"):
        reader.expect("CLOSE", ")")
    assert reader.expect("EQUAL", "=").span == (2, 3)


def test_letters_that_only_unicode_takes_for_others_make_no_keyword() -> None:
    with pytest.raises(FilterSyntaxError):
        tokens("ıs")
    with pytest.raises(FilterSyntaxError):
        tokens("ſtartswith")


def test_a_text_of_digits_alone_is_one_token_however_long() -> None:
    assert tokens("9" * 100_000) == [("INTEGER", "9" * 100_000)]
    assert tokens("'" * 100_001 + " '") == [("STRING", "'" * 100_001 + " '")]


@pytest.mark.untraced
def test_minus_signs_without_a_line_end_behind_them_are_read_once() -> None:
    """One look for a line end from each of them would take ten minutes of CPU time."""
    assert tokens("-" * 400_000 + "1") == [*[("MINUS", "-")] * 400_000, ("INTEGER", "1")]
    names = [name for name, _ in tokens("-1--no comment\n-1--1")]
    assert names == ["MINUS", "INTEGER", "MINUS", "INTEGER", "MINUS", "MINUS", "INTEGER"]


@given(st.text("ab01.eE+-'<>=()/*\n ,LN"))
def test_tokens_and_what_is_ignored_make_up_the_text(text: str) -> None:
    try:
        found = tokens(text)
    except FilterSyntaxError:
        return
    position = 0
    for name, piece in found:
        position = text.index(piece, position) + len(piece)
        assert name not in KEYWORDS or piece.upper() == name
    assert position <= len(text)
