"""Numbers and names as people read and type them."""

import pytest

from storage.amounts import bytes_text, clock_text, counted, duration_text, rate_text, share_text
from storage.names import did_you_mean, names_holding, similar_names


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


TOPICS = ["%DLQ%GroupA", "%RETRY%GroupA", "SixTopic", "TBW102", "TopicTest", "TopicTx", "orders", "orders-eu", "order"]


def test_the_name_that_was_meant_comes_first() -> None:
    for typed, meant in [
        ("SixTopc", "SixTopic"),
        ("sixtopic", "SixTopic"),
        ("TopicTets", "TopicTest"),
        ("ordres", "orders"),
        ("oders_eu", "orders-eu"),
        ("%DLQ%groupa", "%DLQ%GroupA"),
        ("DLQGroupA", "%DLQ%GroupA"),
    ]:
        assert similar_names(typed, TOPICS)[0] == meant


def test_a_name_like_none_is_not_guessed() -> None:
    for typed in ("", "payments", "x", "Topic" * 40):
        assert similar_names(typed, TOPICS) == []


def test_a_question_names_what_is_proposed() -> None:
    assert did_you_mean([]) == ""
    assert did_you_mean(["a"]) == "did you mean a?"
    assert did_you_mean(["a", "b", "c"]) == "did you mean a, b or c?"


def test_names_that_hold_a_text_are_found_in_any_case() -> None:
    assert names_holding(TOPICS, "ORDER") == ["orders", "orders-eu", "order"]
    assert names_holding(TOPICS, "groupa") == ["%DLQ%GroupA", "%RETRY%GroupA"]
