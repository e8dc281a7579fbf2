"""Texts as numbers, beside what the JDK read in them."""

import math
import struct
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sql92_oracle
from filter_vectors import vectors
from protocol.errors import FilterEvaluationError
from sql92_oracle import double_order, to_double_order
from storage.filter.sql92 import parse
from storage.kernels.sql92 import double_of, integer_of

Column = int | None


def to_int32(text: str) -> int:
    return integer_of(text, 32)


def to_int64(text: str) -> int:
    return integer_of(text, 64)


NUMBERS: list[tuple[str, Column, Column, Column]] = [tuple(each) for each in vectors("number")]


def read(convert: Callable[[str], float], text: str) -> float | None:
    try:
        return convert(text)
    except FilterEvaluationError:
        return None


def said(convert: Callable[[str], float], text: str) -> str:
    try:
        return repr(convert(text))
    except FilterEvaluationError as error:
        return str(error)


def test_numbers_are_what_the_jdk_reads_doubles_to_the_last_bit() -> None:
    for column in (1, 2, 3):
        assert 50 < sum(each[column] is not None for each in NUMBERS) < len(NUMBERS) - 50
    for text, int32, int64, bits in NUMBERS:
        assert (read(to_int32, text), read(to_int64, text)) == (int32, int64), text
        number = read(double_of, text)
        assert (None if number is None else struct.unpack(">q", struct.pack(">d", number))[0]) == bits, text


# Asked of JDK 17, too long for the file of vectors.
def test_doubles_of_any_length_and_exponent() -> None:
    for text, expected in [
        ("0." + "0" * 400 + "1e401", 1.0),
        ("1" + "0" * 2000 + "e-2000", 1.0),
        ("0." + "0" * 2000 + "1", 0.0),
        ("1e99999999999999999999", math.inf),
        ("0e99999999999999999999", 0.0),
        ("-0x1p99999999999999999999", -math.inf),
        ("0x1p-99999999999999999999", 0.0),
        ("0x0p99999999999999999999", 0.0),
        ("0x" + "0" * 400 + ".1p4", 1.0),
    ]:
        assert double_of(text) == expected


@pytest.mark.parametrize("convert", [to_int32, to_int64])
def test_integers_may_have_any_number_of_leading_zeros(convert: Callable[[str], int]) -> None:
    for zero, five in (("0", "5"), ("٠", "٥"), ("０", "５")):
        assert convert("-" + zero * 30_000 + five) == -5
        assert convert("+" + zero * 30_000) == 0
    with pytest.raises(FilterEvaluationError, match="is beyond a"):
        convert("9" * 30_000)


def test_a_hostile_text_is_refused_at_once() -> None:
    for text in ("1" * 32_000 + "x", "1." + "1" * 32_000 + "x", "0x" + "1" * 32_000, "1e" + "1" * 32_000 + "x"):
        assert read(double_of, text) is None
        assert read(to_int64, text) is None


def is_below(first: str, second: str) -> bool | None:
    return parse("a < b").evaluate({"a": first, "b": second})


def test_the_order_of_doubles_is_total_as_in_java() -> None:
    ascending = [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.7976931348623157e308, math.inf, math.nan]
    texts = ["-Infinity", "-1.5", "-5e-324", "-0.0", "0.0", "5e-324", "1.0", "1.7976931348623157e308", "Infinity"]
    for number, text in enumerate([*texts, "NaN"]):
        assert [is_below(text, other) for other in [*texts, "-NaN"]] == [number < other for other in range(10)]
        assert to_double_order(text) == double_order(ascending[number])


@given(
    st.text() | st.text("0123456789+-.eEpPxXfFdDaN ٥𝟎\x00") | st.from_regex(r"[+-]?0x[0-9a-f]*\.?[0-9a-f]*p-?[0-9]+")
)
def test_any_text_is_the_number_that_the_oracle_reads_or_the_same_error(text: str) -> None:
    for convert, oracle in (
        (to_int32, sql92_oracle.to_int32),
        (to_int64, sql92_oracle.to_int64),
        (double_of, sql92_oracle.to_double),
    ):
        assert said(convert, text) == said(oracle, text)


@given(st.text("0123456789", min_size=1, max_size=40), st.text("0123456789", max_size=40), st.integers(-400, 400))
def test_decimal_numbers_are_rounded_as_python_rounds_them(whole: str, part: str, exponent: int) -> None:
    text = f"{whole}.{part}e{exponent}"
    assert double_of(text) == float(text)
    assert double_of(f"-{text}") == -float(text)


def test_digits_of_all_scripts_are_read_that_unicode_knows() -> None:
    for character in map(chr, range(0x80, 0x10000)):
        digit = unicodedata.decimal(character, None)
        if "\ud800" <= character <= "\udfff" or (digit is None and character > "\u0fff" and ord(character) % 16):
            continue
        assert read(to_int32, f"-1{character}") == (None if digit is None else -10 - digit)
