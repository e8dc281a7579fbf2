"""Text on its way to a terminal."""

import os

from hypothesis import given
from hypothesis import strategies as st

from protocol.printable import as_text, one_line, printable


def test_printable_text_stays_as_it_is() -> None:
    assert printable("订单 🔑\n\tx") == "订单 🔑\n\tx"
    assert printable("a\x00\x1b") == "a\\x00\\x1b"


def test_a_line_has_no_line_ends() -> None:
    assert one_line(" a\n\tb\r\nc\x1b[2J") == "a b\\r c\\x1b[2J"


@given(st.text())
def test_nothing_that_a_terminal_obeys_comes_through(text: str) -> None:
    assert all(character.isprintable() or character in "\n\t" for character in printable(text))
    assert one_line(text).isprintable()


def test_names_that_are_no_utf_8_become_text() -> None:
    name = os.fsdecode(b"\xff/")
    assert as_text(name) == "\\xff/"
    assert as_text("订单") == "订单"
