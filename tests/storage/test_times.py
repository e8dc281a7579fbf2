"""Times as people write them, and the zones that they are in."""

import contextlib
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from protocol.errors import ConfigError
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
        ("0", 0),
        ("1717144200001", 1717144200001),
        ("9999999999999999999", LARGEST),
        ("2024-05-31T08:30:00+00:00", 1717144200000),
        ("2024-05-31T16:30:00.0019+08:00", 1717144200001),
        ("1969-12-31T23:59:59.999+00:00", -1),
        ("20240531T083000Z", 1717144200000),
        ("2024-05-31T08:30z", 1717144200000),
        ("2024-05-31 08:30:00,5Z", 1717144200500),
        ("2024-W22-5T08:30Z", 1717144200000),
        ("2024152T0830Z", 1717144200000),
        ("2024-05-31 16:30 +08:00", 1717144200000),
        ("2024-05-31 16:30 Asia/Shanghai", 1717144200000),
        ("2024-05-31 04:30 America/New_York", 1717144200000),
        ("2024-05-31T16:30:00+08:00[Asia/Shanghai]", 1717144200000),
        ("2024-05-31T16:30[Asia/Shanghai]", 1717144200000),
        ("2024-05-31 08:30 UTC", 1717144200000),
    ]:
        assert parse_time(text) == parse_time(text, NEW_YORK) == timestamp


def test_times_without_a_zone_are_of_the_one_that_is_passed() -> None:
    for text, clock in [
        ("2024-05-31T08:30:00", (2024, 5, 31, 8, 30)),
        ("2024-05-31 08", (2024, 5, 31, 8)),
        ("2024-05-31", (2024, 5, 31)),
        ("20240531", (2024, 5, 31)),
        ("2024-05", (2024, 5, 1)),
        ("2024", (2024, 1, 1)),
        ("2024-W22-5", (2024, 5, 31)),
        ("2024-W22", (2024, 5, 27)),
        ("2024-152", (2024, 5, 31)),
        ("2024-366", (2024, 12, 31)),
        ("2024-12-31T24:00", (2025, 1, 1)),
        ("20241231T240000", (2025, 1, 1)),
        ("1999-12-31T23:59:59", (1999, 12, 31, 23, 59, 59)),
    ]:
        for zone in map(ZoneInfo, ZONES):
            assert parse_time(text, zone) == milliseconds(datetime(*clock, tzinfo=zone)), zone  # type: ignore[arg-type, misc]


CALENDAR = ("%Y", "%Y%m", "%Y%j", "%Y%m%d", "%Y%m%d%H", "%Y%m%d%H%M", "%Y%m%d%H%M%S", "%Y%m%d%H%M%S%f")
"""The forms of digits that are times of the calendar; the last one is written with three digits of a second."""


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 31, 23, 59, 59, 999_999)),
    st.sampled_from(CALENDAR),
    st.sampled_from(ZONES),
)
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
        ("now", timedelta()),
        ("-1h", timedelta(hours=-1)),
        ("+90s", timedelta(seconds=90)),
        ("-250ms", timedelta(milliseconds=-250)),
        ("-15m", timedelta(minutes=-15)),
        ("-2w", timedelta(weeks=-2)),
        ("now-1d12h", timedelta(days=-1, hours=-12)),
        ("now+1h30m15s", timedelta(hours=1, minutes=30, seconds=15)),
    ]:
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


def test_anything_else_is_refused() -> None:
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


def test_what_is_no_zone_is_refused_with_its_text() -> None:
    for text in ["", "Mars/Olympus", "8", "../etc/passwd", "+25:99", "Europe", "a\0b", "\ud800"]:
        with pytest.raises(ConfigError, match="neither a time zone"):
            parse_zone(text)
