"""What a regular expression cannot match without."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.patterns._literal import required_literal


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
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
    ],
)
def test_the_longest_text_is_taken_that_must_be_there(pattern: str, literal: bytes | None) -> None:
    assert required_literal(pattern) == literal


pieces = st.sampled_from(
    ["abc", "d", r"\d", "(efg)", "(?:hij)?", "[kl]", "m*", "(no|pq)", "(?=r)", "(?i:st)", ".", "$", "(?:uvw){2}"]
)


@given(st.lists(pieces, max_size=5).map("".join), st.text("abcdefghijklmnoST1uvwr", max_size=25))
def test_whatever_matches_contains_it(pattern: str, text: str) -> None:
    literal = required_literal(pattern)
    if re.search(pattern, text) and literal is not None:
        assert literal in text.encode()
