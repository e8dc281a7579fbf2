"""Texts as numbers, beside what the JDK read in them."""

import math
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filter_vectors import vectors
from protocol.errors import FilterEvaluationError
from storage.filter.sql92.conversion import double_order, to_double, to_double_order, to_int32, to_int64

Column = int | None
NUMBERS: list[tuple[str, Column, Column, Column]] = [tuple(each) for each in vectors("number")]


def read(convert: Callable[[str], float], text: str) -> float | None:
    try:
        return convert(text)
    except FilterEvaluationError:
        return None


def test_integers_are_what_the_jdk_reads() -> None:
    for text, int32, int64, _ in NUMBERS:
        assert (read(to_int32, text), read(to_int64, text)) == (int32, int64), text


def test_doubles_are_what_the_jdk_reads_to_the_last_bit() -> None:
    for text, _, _, bits in NUMBERS:
        number = read(to_double, text)
        assert (None if number is None else struct.unpack(">q", struct.pack(">d", number))[0]) == bits, text


def test_the_vectors_hold_numbers_of_each_kind_and_texts_that_are_none() -> None:
    for column in (1, 2, 3):
        assert 50 < sum(each[column] is not None for each in NUMBERS) < len(NUMBERS) - 50


# Asked of JDK 17, too long for the file of vectors.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0." + "0" * 400 + "1e401", 1.0),
        ("1" + "0" * 2000 + "e-2000", 1.0),
        ("0." + "0" * 2000 + "1", 0.0),
        ("1e99999999999999999999", math.inf),
        ("0e99999999999999999999", 0.0),
        ("-0x1p99999999999999999999", -math.inf),
        ("0x1p-99999999999999999999", 0.0),
        ("0x0p99999999999999999999", 0.0),
        ("0x" + "0" * 400 + ".1p4", 1.0),
    ],
)
def test_doubles_of_any_length_and_exponent(text: str, expected: float) -> None:
    assert to_double(text) == expected


@pytest.mark.parametrize("convert", [to_int32, to_int64])
def test_integers_may_have_any_number_of_leading_zeros(convert: Callable[[str], int]) -> None:
    for zero, five in (("0", "5"), ("٠", "٥"), ("０", "５")):
        assert convert("-" + zero * 30_000 + five) == -5
        assert convert("+" + zero * 30_000) == 0
    with pytest.raises(FilterEvaluationError, match="is beyond a"):
        convert("9" * 30_000)


@pytest.mark.parametrize(
    ("convert", "text", "sentence"),
    [
        (to_int32, "5.5", "'5.5' is no 32-bit integer"),
        (to_int32, "2147483648", "'2147483648' is beyond a 32-bit integer"),
        (to_int64, "x", "'x' is no 64-bit integer"),
        (to_int64, "𝟎", "'𝟎' is no 64-bit integer"),
        (to_double, " 1_0 ", "'1_0' is no number"),
        (to_double, "", "'' is no number"),
    ],
)
def test_an_error_says_what_is_no_number_of_which_kind(
    convert: Callable[[str], float], text: str, sentence: str
) -> None:
    with pytest.raises(FilterEvaluationError) as caught:
        convert(text)
    assert str(caught.value) == sentence


def test_a_hostile_text_is_refused_at_once() -> None:
    for text in ("1" * 32_000 + "x", "1." + "1" * 32_000 + "x", "0x" + "1" * 32_000, "1e" + "1" * 32_000 + "x"):
        assert read(to_double, text) is None
        assert read(to_int64, text) is None


def test_the_order_of_doubles_is_total_as_in_java() -> None:
    ascending = [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.7976931348623157e308, math.inf, math.nan]
    assert sorted(map(double_order, reversed(ascending))) == list(map(double_order, ascending))
    assert len(set(map(double_order, ascending))) == len(ascending)
    assert to_double_order("NaN") == to_double_order("-NaN") == double_order(math.nan)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_the_order_of_other_doubles_is_the_order_of_numbers(first: float, second: float) -> None:
    if first != second:
        assert (double_order(first) < double_order(second)) is (first < second)


@given(st.floats(allow_nan=False))
def test_a_double_written_in_full_is_read_back(number: float) -> None:
    for text in (repr(number), float.hex(number)):
        written = text.replace("inf", "Infinity")
        assert to_double_order(written) == double_order(number)


@given(st.text() | st.text("0123456789+-.eEpPxXfFdDaN ٥𝟎\x00"))
def test_any_text_is_a_number_or_an_evaluation_error(text: str) -> None:
    for convert in (to_int32, to_int64, to_double):
        number = read(convert, text)
        assert number is None or isinstance(number, int | float)
