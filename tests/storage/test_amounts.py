"""Numbers as a person reads them."""

import pytest

from storage.amounts import (
    amount_text,
    bytes_text,
    clock_text,
    count_text,
    counted,
    duration_text,
    rate_text,
    share_text,
)


def test_bytes_have_three_digits() -> None:
    for count, text in [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (1234, "1.23 kB"),
        (9_996, "10.0 kB"),
        (99_990, "100 kB"),
        (12_345_678, "12.3 MB"),
        (420_000_040, "420 MB"),
        (4_294_967_296, "4.29 GB"),
        (5 * 10**15, "5,000 TB"),
    ]:
        assert bytes_text(count) == text


def test_what_is_counted_has_the_form_that_the_number_needs() -> None:
    for count, noun, text in [
        (0, "file", "0 files"),
        (1, "file", "1 file"),
        (2, "index file", "2 index files"),
        (1, "process", "1 process"),
        (3, "process", "3 processes"),
        (1, "entry", "1 entry"),
        (1_000, "entry", "1,000 entries"),
        (2, "key", "2 keys"),
    ]:
        assert counted(count, noun) == text


def test_other_forms_than_the_regular_plural_are_given() -> None:
    assert counted(1, "place is", "places are") == "1 place is"
    assert counted(2, "place is", "places are") == "2 places are"


def test_one_of_a_unit_is_in_the_singular() -> None:
    assert amount_text(1, "entries") == "1 entry"
    assert amount_text(1, "messages") == "1 message"
    assert amount_text(0, "messages") == "0 messages"


def test_other_units_are_counted_whole() -> None:
    assert count_text(33_554_432) == "33,554,432"
    assert amount_text(33_554_432, "entries") == "33,554,432 entries"
    assert amount_text(33_554_432, "bytes") == "33.6 MB"
    assert share_text(7, 1472, "entries") == "7 of 1,472 entries"


def test_a_share_of_bytes_is_in_the_scale_of_the_whole() -> None:
    assert share_text(262_144, 4_294_967_296, "bytes") == "0.00 of 4.29 GB"
    assert share_text(2_700_000_000, 4_294_967_296, "bytes") == "2.70 of 4.29 GB"
    assert share_text(0, 0, "bytes") == "0 of 0 bytes"


@pytest.mark.parametrize(
    ("rate", "unit", "text"),
    [
        (1.55e9, "bytes", "1.55 GB/s"),
        (844_000, "entries", "844,000 entries/s"),
        (9_200_000, "entries", "9.20 million entries/s"),
        (2.5e9, "units", "2.50 billion units/s"),
    ],
)
def test_a_rate_is_told_in_the_unit_that_is_read_best(rate: float, unit: str, text: str) -> None:
    assert rate_text(rate, unit) == text


def test_a_time_is_told_as_a_clock_shows_it_or_as_a_duration() -> None:
    assert (clock_text(0), clock_text(61.4), clock_text(86_399)) == ("0:00:00", "0:01:01", "23:59:59")
    assert (clock_text(-1), clock_text(float("inf"))) == ("0:00:00", "999:59:59")
    assert (duration_text(12.345), duration_text(60), duration_text(75)) == ("12.3 s", "0:01:00", "0:01:15")
