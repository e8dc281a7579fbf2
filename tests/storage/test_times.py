"""Times as people write them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ConfigError
from storage.times import LARGEST, format_timestamp, parse_time


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("0", 0),
        ("1717144200001", 1717144200001),
        ("9999999999999999999", LARGEST),
        ("2024-05-31T08:30:00+00:00", 1717144200000),
        ("2024-05-31T16:30:00.0019+08:00", 1717144200001),
        ("1969-12-31T23:59:59.999+00:00", -1),
    ],
)
def test_milliseconds_and_times_with_an_offset_are_what_they_say(text: str, timestamp: int) -> None:
    assert parse_time(text) == timestamp


def test_a_time_without_an_offset_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert parse_time("2024-05-31T16:30:00") == 1717144200000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "soon", "-5", "1e3", "9999999-01-01", "99999999999999999999", "\u0661"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is neither milliseconds nor a time like"):
        parse_time(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_timestamp_of_a_header_has_a_form(timestamp: int) -> None:
    text = format_timestamp(timestamp)
    assert text == str(timestamp) or text.endswith("Z")


def test_timestamps_are_read_in_utc_with_milliseconds() -> None:
    assert format_timestamp(0) == "1970-01-01T00:00:00.000Z"
    assert format_timestamp(-1) == "1969-12-31T23:59:59.999Z"
    assert format_timestamp(2**63 - 1) == str(2**63 - 1)
