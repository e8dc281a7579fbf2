"""Names of index files: rising along the log, above what is kept, below the present, in the zone of the store."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ConfigError
from spark_jobs.build._index_names import implied_zone, name_files

NOON = datetime(2026, 3, 4, 12, 0, 0, 123000, tzinfo=UTC)
NOON_MS = 1772625600123


LATER = NOON + timedelta(days=9)


@pytest.mark.parametrize(
    ("times", "zone", "above", "now", "names"),
    [
        ([NOON_MS], "UTC", "", LATER, ["20260304120000123"]),
        ([NOON_MS], "America/Los_Angeles", "", LATER, ["20260304040000123"]),
        # Equal times, and a clock that stepped back: different names in the order of the files.
        ([NOON_MS] * 3, "UTC", "", LATER, ["20260304120000121", "20260304120000122", "20260304120000123"]),
        ([NOON_MS, NOON_MS - 60_000], "UTC", "", LATER, ["20260304115900122", "20260304115900123"]),
        # Above the last file that is kept, be it at the end of a minute, or no time.
        ([NOON_MS], "UTC", "20260304130000000", LATER, ["20260304130000001"]),
        ([NOON_MS], "UTC", "20260304235959999", LATER, ["20260305000000000"]),
        ([0], "UTC", "19999999999999998", NOON, ["19999999999999999"]),
        # Below the present.
        ([NOON_MS + 10_000, NOON_MS + 20_000], "UTC", "", NOON, ["20260304120000121", "20260304120000122"]),
    ],
)
def test_names_are_store_times_in_the_zone_and_rise(
    times: list[int], zone: str, above: str, now: datetime, names: list[str]
) -> None:
    assert name_files(times, ZoneInfo(zone), above=above, now=now) == names


def test_where_no_name_lies_between_the_kept_one_and_now_that_is_told() -> None:
    with pytest.raises(ConfigError, match=r"20260304120000122 has a name in the future.*20260304120000123"):
        name_files([NOON_MS], UTC, above="20260304120000122", now=NOON)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
    st.sampled_from(["UTC", "Asia/Shanghai", "America/Los_Angeles", "Europe/Berlin", "Asia/Kathmandu"]),
)
def test_any_times_give_rising_names_below_the_present(timestamps: list[int], zone: str) -> None:
    names = name_files(timestamps, ZoneInfo(zone), above="", now=NOON)
    present = NOON.astimezone(ZoneInfo(zone)).strftime("%Y%m%d%H%M%S123")
    assert len(names) == len(timestamps)
    assert names == sorted(set(names))
    assert all(len(name) == 17 and name.isdecimal() and name < present for name in names)


@given(st.lists(st.integers(1_600_000_000_000, 1_780_000_000_000), min_size=1, max_size=9), st.integers(-11, 13))
def test_the_zone_is_read_off_names_that_were_given_when_the_first_entry_came(begins: list[int], hours: int) -> None:
    zone = timezone(timedelta(hours=hours, minutes=45))
    files = [
        (datetime.fromtimestamp(begin // 1000, zone).strftime("%Y%m%d%H%M%S") + f"{begin % 1000:03d}", begin - 40)
        for begin in begins
    ]
    implied = implied_zone(files)
    assert implied is not None
    assert implied.utcoffset(None) == timedelta(hours=hours, minutes=45)


def test_names_that_the_machines_own_zone_explains_leave_it_at_that() -> None:
    begin = 1_700_000_000_000
    name = datetime.fromtimestamp(begin // 1000).strftime("%Y%m%d%H%M%S000")
    assert implied_zone([(name, begin)]) is None


def test_names_that_are_no_times_imply_no_zone() -> None:
    assert implied_zone([("00000000000000001", 1_700_000_000_000), ("20260304120000123", 0)]) is None
