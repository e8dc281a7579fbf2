"""Numbers that people write: times, amounts, and ranges of the log."""

import contextlib
import itertools
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from protocol.errors import ConfigError
from storage.amounts import bytes_text, clock_text, counted, duration_text, rate_text, share_text
from storage.names import did_you_mean, names_holding, similar_names
from storage.ranges import NEAR, coarse, intersect, lie_within, merge, subtract, total_length
from storage.times import LARGEST, format_local, is_relative, parse_time, parse_zone, to_timestamp, zone_name

SHANGHAI = ZoneInfo("Asia/Shanghai")
NEW_YORK = ZoneInfo("America/New_York")
NOW = datetime(2024, 5, 31, 23, 15, 10, 250_000, UTC)
"""In Shanghai it is the first of June, in New York the evening of the last of May."""

ZONES = ("UTC", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu", "Europe/Berlin", "Australia/Lord_Howe")


def milliseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def now_in(zone: ZoneInfo, text: str) -> datetime:
    return datetime.fromtimestamp(parse_time(text, zone, milliseconds(NOW)) / 1000, zone)


@pytest.fixture
def shanghai(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_milliseconds_and_times_with_a_zone_are_what_they_say() -> None:
    for text, timestamp in [
        ("0", 0), ("1717144200001", 1717144200001), ("9999999999999999999", LARGEST),
        ("2024-05-31T08:30:00+00:00", 1717144200000), ("2024-05-31T16:30:00.0019+08:00", 1717144200001),
        ("1969-12-31T23:59:59.999+00:00", -1), ("20240531T083000Z", 1717144200000),
        ("2024-05-31T08:30z", 1717144200000), ("2024-05-31 08:30:00,5Z", 1717144200500),
        ("2024-W22-5T08:30Z", 1717144200000), ("2024152T0830Z", 1717144200000),
        ("2024-05-31 16:30 +08:00", 1717144200000), ("2024-05-31 16:30 Asia/Shanghai", 1717144200000),
        ("2024-05-31 04:30 America/New_York", 1717144200000),
        ("2024-05-31T16:30:00+08:00[Asia/Shanghai]", 1717144200000), ("2024-05-31T16:30[Asia/Shanghai]", 1717144200000),
        ("2024-05-31 08:30 UTC", 1717144200000),
    ]:  # fmt: skip
        assert parse_time(text) == parse_time(text, NEW_YORK) == timestamp


def test_times_without_a_zone_are_of_the_one_that_is_passed() -> None:
    for text, clock in [
        ("2024-05-31T08:30:00", (2024, 5, 31, 8, 30)), ("2024-05-31 08", (2024, 5, 31, 8)),
        ("2024-05-31", (2024, 5, 31)), ("20240531", (2024, 5, 31)), ("2024-05", (2024, 5, 1)), ("2024", (2024, 1, 1)),
        ("2024-W22-5", (2024, 5, 31)), ("2024-W22", (2024, 5, 27)), ("2024-152", (2024, 5, 31)),
        ("2024-366", (2024, 12, 31)), ("2024-12-31T24:00", (2025, 1, 1)), ("20241231T240000", (2025, 1, 1)),
        ("1999-12-31T23:59:59", (1999, 12, 31, 23, 59, 59)),
    ]:  # fmt: skip
        for zone in map(ZoneInfo, ZONES):
            assert parse_time(text, zone) == milliseconds(datetime(*clock, tzinfo=zone)), zone  # type: ignore[arg-type, misc]


CALENDAR = ("%Y", "%Y%m", "%Y%j", "%Y%m%d", "%Y%m%d%H", "%Y%m%d%H%M", "%Y%m%d%H%M%S", "%Y%m%d%H%M%S%f")
"""The forms of digits that are times of the calendar; the last one is written with three digits of a second."""


@given(st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 31, 23, 59, 59, 999_999)), st.sampled_from(CALENDAR),
       st.sampled_from(ZONES))  # fmt: skip
def test_digits_of_a_calendar_time_are_that_time_in_a_zone(moment: datetime, form: str, zone: str) -> None:
    digits = moment.strftime(form)
    digits = digits[:-3] if form.endswith("%f") else digits
    padded = f"{digits}000" if form.endswith("%f") else digits
    meant = milliseconds(datetime.strptime(padded, form).replace(tzinfo=ZoneInfo(zone)))
    assert parse_time(digits, ZoneInfo(zone)) == parse_time(f"{digits} {zone}", UTC) == meant


@given(st.integers(0, 9_999_999_999_999))
def test_digits_that_could_be_a_calendar_time_are_never_milliseconds_of_another_age(number: int) -> None:
    text = str(number)
    try:
        found = parse_time(text, UTC)
    except ConfigError:  # a year with a month or a day that there is not
        assert len(text) in (6, 7, 8, 12)
        assert 1970 <= int(text[:4]) <= 2199
        return
    if len(text) == 10:
        assert found == number * 1000 or found == milliseconds(datetime.strptime(text, "%Y%m%d%H").replace(tzinfo=UTC))
    elif found != number:
        shown = datetime.fromtimestamp(found / 1000, UTC)
        assert text[:4] == f"{shown:%Y}"


def test_other_digits_are_milliseconds_and_ten_of_them_seconds() -> None:
    assert parse_time("2024", UTC) == milliseconds(datetime(2024, 1, 1, tzinfo=UTC))
    for text in ("1969", "2200", "020240531", "99991231", "20240531083", "9999999999999"):
        assert parse_time(text, UTC) == int(text)
    assert parse_time("1717144200", UTC) == 1717144200000
    assert parse_time("2024130108", UTC) == 2024130108000  # no month 13: seconds, of the year 2034
    assert parse_time("20241231240000", UTC) == milliseconds(datetime(2025, 1, 1, tzinfo=UTC))


@pytest.mark.usefixtures("shanghai")
def test_a_time_without_an_offset_is_local() -> None:
    assert parse_time("2024-05-31T16:30:00") == 1717144200000
    assert to_timestamp(datetime(2024, 5, 31, 16, 30)) == 1717144200000
    assert zone_name() == "Asia/Shanghai"
    assert format_local(1717144200001) == "2024-05-31 16:30:00.001+08:00"
    noon = parse_time("today 12:00")
    assert (noon + 8 * 3_600_000) % 86_400_000 == 12 * 3_600_000


def test_times_from_now_are_so_long_before_or_after_it() -> None:
    for text, distance in [
        ("now", timedelta()), ("-1h", timedelta(hours=-1)), ("+90s", timedelta(seconds=90)),
        ("-250ms", timedelta(milliseconds=-250)), ("-15m", timedelta(minutes=-15)), ("-2w", timedelta(weeks=-2)),
        ("now-1d12h", timedelta(days=-1, hours=-12)), ("now+1h30m15s", timedelta(hours=1, minutes=30, seconds=15)),
    ]:  # fmt: skip
        for zone in map(ZoneInfo, ZONES):
            assert now_in(zone, text) == NOW + distance
        assert is_relative(text)


def test_days_are_those_of_the_zone() -> None:
    assert now_in(SHANGHAI, "today") == datetime(2024, 6, 1, tzinfo=SHANGHAI)
    assert now_in(NEW_YORK, "today") == datetime(2024, 5, 31, tzinfo=NEW_YORK)
    assert now_in(SHANGHAI, "yesterday 14:00") == datetime(2024, 5, 31, 14, tzinfo=SHANGHAI)
    assert now_in(NEW_YORK, "yesterday 14:00") == datetime(2024, 5, 30, 14, tzinfo=NEW_YORK)
    assert now_in(NEW_YORK, "tomorrow 9:30") == datetime(2024, 6, 1, 9, 30, tzinfo=NEW_YORK)
    assert now_in(SHANGHAI, "14:00:05.5") == datetime(2024, 6, 1, 14, 0, 5, 500_000, SHANGHAI)
    assert now_in(SHANGHAI, "yesterdayT14:00") == now_in(SHANGHAI, "yesterday 14:00")
    # A zone that the time itself has counts for the day too.
    assert now_in(SHANGHAI, "yesterday 14:00Z") == datetime(2024, 5, 30, 14, tzinfo=UTC)
    assert now_in(NEW_YORK, "yesterday 14:00 Asia/Shanghai") == datetime(2024, 5, 31, 14, tzinfo=SHANGHAI)
    assert now_in(NEW_YORK, "today Asia/Shanghai") == datetime(2024, 6, 1, tzinfo=SHANGHAI)


def test_anything_else_and_what_is_no_zone_is_refused() -> None:
    # Anything else is refused.
    for text in [
        *("", " ", "soon", "-5", "+5", "1e3", "9999999-01-01", "99999999999999999999", "\u0661"),
        *("\u0662\u0660\u0662\u0664", "2023-366", "2024-000", "2024-13", "2024-02-30", "25:00", "-1y"),
        *("2024-05-31T24:30", "now-", "now now", "-", "yesterday noon", "yesterday-1h", "1h", "- 1h"),
        "2024-05-31T08:30:00+25:00",
        "9" * 400 + "-01-01",
        *("20241331083000", "20240230", "202413", "2023366", "202405312460", "20240531083060", "20240531083000.5"),
        *("1717144200000000", "1717144200000000000", "99999999999999"),
    ]:
        with pytest.raises(ConfigError, match="is neither milliseconds nor a time like") as refusal:
            parse_time(text)
        assert len(str(refusal.value)) < 250
    # What is no zone is refused with its text.
    for text in ["", "Mars/Olympus", "8", "../etc/passwd", "+25:99", "Europe", "a\0b", "\ud800"]:
        with pytest.raises(ConfigError, match="neither a time zone"):
            parse_zone(text)


@settings(max_examples=examples(10))
@given(st.text(max_size=120))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert -(2**63) <= parse_time(text) <= LARGEST


@given(st.integers(-62_135_596_800_000 + 2 * 86_400_000, 253_402_300_799_999 - 2 * 86_400_000), st.sampled_from(ZONES))
def test_what_is_shown_in_a_zone_is_read_back_in_any(timestamp: int, zone: str) -> None:
    text = format_local(timestamp, ZoneInfo(zone))
    assert parse_time(text) == timestamp
    assert text.startswith(f"{datetime.fromtimestamp(timestamp // 1000, ZoneInfo(zone)):%m-%d %H:%M:%S}", 5)


def test_amounts_are_told_in_the_form_that_is_read_best() -> None:
    # Bytes have three digits.
    for count, text in [
        (0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (1234, "1.23 kB"), (9_996, "10.0 kB"), (99_990, "100 kB"),
        (12_345_678, "12.3 MB"), (420_000_040, "420 MB"), (4_294_967_296, "4.29 GB"), (5 * 10**15, "5,000 TB"),
    ]:  # fmt: skip
        assert bytes_text(count) == text
    # What is counted has the form that the number needs.
    for count, noun, text in [
        (0, "file", "0 files"), (1, "file", "1 file"), (2, "index file", "2 index files"), (1, "process", "1 process"),
        (3, "process", "3 processes"), (1, "entry", "1 entry"), (1_000, "entry", "1,000 entries"), (2, "key", "2 keys"),
    ]:  # fmt: skip
        assert counted(count, noun) == text
    # A share of bytes is in the scale of the whole.
    assert share_text(262_144, 4_294_967_296, "bytes") == "0.00 of 4.29 GB"
    assert share_text(2_700_000_000, 4_294_967_296, "bytes") == "2.70 of 4.29 GB"
    assert share_text(0, 0, "bytes") == "0 of 0 bytes"
    # A time is told as a clock shows it or as a duration.
    assert (clock_text(0), clock_text(61.4), clock_text(86_399)) == ("0:00:00", "0:01:01", "23:59:59")
    assert (clock_text(-1), clock_text(float("inf"))) == ("0:00:00", "999:59:59")
    assert (duration_text(12.345), duration_text(60), duration_text(75)) == ("12.3 s", "0:01:00", "0:01:15")


@pytest.mark.parametrize(("rate", "unit", "text"), [
    (1.55e9, "bytes", "1.55 GB/s"), (844_000, "entries", "844,000 entries/s"),
    (9_200_000, "entries", "9.20 million entries/s"), (2.5e9, "units", "2.50 billion units/s"),
])  # fmt: skip
def test_a_rate_is_told_in_the_unit_that_is_read_best(rate: float, unit: str, text: str) -> None:
    assert rate_text(rate, unit) == text


TOPICS = ["%DLQ%GroupA", "%RETRY%GroupA", "SixTopic", "TBW102", "TopicTest", "TopicTx", "orders", "orders-eu", "order"]


def test_names_like_the_one_that_was_meant_are_proposed() -> None:
    # The name that was meant comes first.
    for typed, meant in [
        ("SixTopc", "SixTopic"), ("sixtopic", "SixTopic"), ("TopicTets", "TopicTest"), ("ordres", "orders"),
        ("oders_eu", "orders-eu"), ("%DLQ%groupa", "%DLQ%GroupA"), ("DLQGroupA", "%DLQ%GroupA"),
    ]:  # fmt: skip
        assert similar_names(typed, TOPICS)[0] == meant
    # A name like none is not guessed.
    for typed in ("", "payments", "x", "Topic" * 40):
        assert similar_names(typed, TOPICS) == []
    # A question names what is proposed.
    assert did_you_mean([]) == ""
    assert did_you_mean(["a"]) == "did you mean a?"
    assert did_you_mean(["a", "b", "c"]) == "did you mean a, b or c?"
    # Names that hold a text are found in any case.
    assert names_holding(TOPICS, "ORDER") == ["orders", "orders-eu", "order"]
    assert names_holding(TOPICS, "groupa") == ["%DLQ%GroupA", "%RETRY%GroupA"]


LENGTH = 30


def as_ranges(numbers):
    ordered = sorted(numbers)
    return tuple(zip(ordered[::2], ordered[1::2], strict=False))


touching = st.lists(st.integers(1, 5), max_size=6).map(
    lambda sizes: tuple((sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes)))
)
ranges = st.sets(st.integers(0, LENGTH)).map(as_ranges) | touching


def members(found):
    return {number for start, stop in found for number in range(start, stop)}


def is_well_formed(found):
    bounds = [bound for part in found for bound in part]
    return bounds == sorted(bounds) and all(start < stop for start, stop in found)


@given(ranges, ranges)
def test_intersection_and_difference_are_those_of_sets(left, right) -> None:
    both, left_alone = intersect(left, right), subtract(left, right)
    assert (members(both), members(left_alone)) == (members(left) & members(right), members(left) - members(right))
    assert is_well_formed(both)
    assert is_well_formed(left_alone)


@given(st.lists(st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)), max_size=8))
def test_merged_are_ranges_in_any_order_and_none_touches_the_next(given_ranges) -> None:
    found = merge(given_ranges)
    assert members(found) == members(tuple(given_ranges))
    assert is_well_formed(found)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(found))


@given(ranges)
def test_an_offset_lies_within_a_range_or_in_none(given_ranges) -> None:
    offsets = np.array([5, *range(LENGTH + 3)], dtype=np.int64)
    assert lie_within(offsets, given_ranges).tolist() == [int(o) in members(given_ranges) for o in offsets]
    assert total_length(given_ranges) == len(members(given_ranges))


@given(st.sets(st.integers(0, 40).map(lambda number: number * (NEAR // 4)), max_size=20), st.integers(1, 8))
def test_coarse_ranges_hold_all_and_are_few(starts: set[int], most: int) -> None:
    ranges = [(start, start + 1) for start in sorted(starts)]
    found = coarse(ranges, most)
    assert subtract(ranges, found) == ()
    assert {start for start, _ in found} <= starts
    assert {stop - 1 for _, stop in found} <= starts
    assert len(found) <= most
    assert all(later - earlier > NEAR for (_, earlier), (later, _) in itertools.pairwise(found))
    gaps = [later - earlier for (_, earlier), (later, _) in itertools.pairwise(ranges)]
    assert len(found) == min(most, sum(gap > NEAR for gap in gaps) + 1) if ranges else found == ()
