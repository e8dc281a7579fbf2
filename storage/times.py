"""Times and time zones as people write and read them: for commands, the page's API, Python and the data source alike.

| text | time |
|---|---|
| `1717144200000` | milliseconds since 1970 |
| `2024-05-31T08:30:00.5+08:00`, `20240531T003000Z` | ISO 8601, extended or basic; a blank may stand for the `T` |
| `20240531083000`, `20240531083000500` | digits alone: a second, a millisecond |
| `202405310830`, `2024053108` | a minute, an hour |
| `1717144200` | ten digits that are no hour: seconds since 1970 |
| `2024-05-31`, `20240531`, `2024-05`, `202405`, `2024` | the first moment of a day, a month, a year |
| `2024-W22-5`, `2024-W22`, `2024-152` | a day of a week, a week's Monday, the 152nd day of a year |
| `now`, `-1h`, `+90s`, `now-1d12h` | the present, and so long before or after it: `ms`, `s`, `m`, `h`, `d`, `w` |
| `today`, `yesterday 14:00`, `tomorrow 9:30` | days as of now, with the time of day or without |
| `14:00` | today at this time of day |

What says no zone itself is of the zone that is passed, or of this machine's. It may also end with a zone's name, after
a blank or in brackets: `2024-05-31 08:30 Asia/Shanghai`. Where clocks are put back and show a time twice, the first of
both is meant; a time that they leave out counts on from before.

Digits alone are milliseconds where that is a time when something may have been stored. As many as a calendar time has,
which begin with a year from 1970 to 2199, are that time or refused; ten digits are an hour from 2000 on, or seconds. As
milliseconds they would be a day of 1970, or of another age. Other numbers of 14 digits and more are refused too, as the
microseconds of our time, which would be milliseconds of the year 56000; those from 2⁶³−1 on are the end of all times.
"""

import os
import re
import time
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from datetime import time as clock_time
from typing import Final

from protocol.errors import ConfigError

LARGEST: Final = 2**63 - 1
"""Milliseconds; later times are taken for this one."""

LARGEST_MILLISECONDS: Final = 9_999_999_999_999
"""The last moment of 13 digits, in the year 2286: of a time that is given, longer numbers are no milliseconds."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_LONGEST: Final = 100
"""Characters of a time; nothing longer is looked into."""

_MILLISECONDS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PIECE: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d|w)")
_FROM_NOW: Final = re.compile(rf"(?:now)?(?:(?<=now)|(?P<sign>[+-])(?P<span>(?:{_PIECE.pattern})+))")
_DAYS: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}
_DAY: Final = re.compile(rf"(?P<day>{'|'.join(_DAYS)})(?:[ T]+(?P<clock>.+))?")
_CLOCK: Final = re.compile(r"T?[0-9]{1,2}:.*")
_DIGITS: Final = re.compile(r"[0-9]{1,19}")
_YEAR: Final = re.compile(r"(?:19[789][0-9]|2[01][0-9]{2})[0-9]*")
_CALENDAR_DIGITS: Final = frozenset({4, 6, 7, 8, 12, 14, 17})
_HOUR: Final = re.compile(r"2[01][0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:[01][0-9]|2[0-4])")
_SECONDS_DIGITS: Final = 10

_ORDINAL: Final = re.compile(r"(?P<year>[0-9]{4})-?(?P<number>[0-9]{3})(?P<rest>[T ].*)?")
_MONTH: Final = re.compile(r"(?P<year>[0-9]{4})(?:-?(?P<month>[0-9]{2}))?")
_CLOCK_DIGITS: Final = re.compile(r"(?P<day>[0-9]{8})(?P<clock>[0-9]{2}|[0-9]{4}|[0-9]{6})(?P<rest>[0-9]{3})?")
_MIDNIGHT: Final = re.compile(r"(?P<day>.*[T ])24(?P<rest>(?::?00){0,2}(?:[.,]0+)?(?:Z|[+-][0-9:]+)?)")
_BRACKETS: Final = re.compile(r"(?P<time>.*?) ?\[(?P<zone>[^\[\]]+)\]")
_NAMED: Final = re.compile(r"(?P<time>.*\S) +(?P<zone>[A-Z][A-Za-z0-9_+/-]*|[+-][0-9]{2}:?[0-9]{2})")


def parse_time(text: str, zone: tzinfo | None = None, now: int | None = None) -> int:
    """Read a time in one of the forms of this module's table, in a zone (None: this machine's) unless it names one.

    `now` in ms is the present, by default this machine's. Returns milliseconds since 1970; raises ConfigError.
    """
    if _DIGITS.fullmatch(text) and not _is_calendar(text):
        return _number(text)
    present = time.time_ns() // 1_000_000 if now is None else now
    if found := _FROM_NOW.fullmatch(text):
        return _from_now(present, found["sign"], found["span"] or "")
    try:
        if len(text) > _LONGEST:
            raise ValueError(text)
        words, zone = _without_zone(text.strip(), zone)
        return to_timestamp(_moment(words, zone, present), zone)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f"{text[:_LONGEST]!r} is neither milliseconds nor a time like 2024-05-31T08:30:00, -1h or yesterday 14:00"
        ) from error


def is_relative(text: str) -> bool:
    """Whether a text has the form of a time that is another one each day: `-1h`, `yesterday 14:00`, `14:00`, `now`."""
    return bool(text) and any(form.fullmatch(text) for form in (_FROM_NOW, _DAY, _CLOCK))


def to_timestamp(moment: datetime, zone: tzinfo | None = None) -> int:
    """A time in ms since 1970; one without an offset is of `zone`, None for this machine's. Raises ConfigError."""
    try:
        aware = moment if moment.tzinfo is not None else _in_zone(moment, zone)
        return (aware - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(f"{moment} is outside the calendar") from error


def format_timestamp(timestamp: int) -> str:
    """A timestamp in ms as ISO 8601 UTC, or the bare number where it is no date."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(timestamp)


def format_local(timestamp: int, zone: tzinfo | None = None, timespec: str = "milliseconds") -> str:
    """A timestamp in ms as clocks of a zone show it (None: this machine's), with the offset; else the bare number.

    `timespec` is how exact, as for `datetime.isoformat`. :func:`parse_time` reads the text back, in any zone.
    """
    try:
        moment = datetime.fromtimestamp(timestamp // 1000, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return moment.replace(microsecond=timestamp % 1000 * 1000).isoformat(sep=" ", timespec=timespec)


def parse_zone(text: str) -> tzinfo:
    """A zone by its name (Asia/Shanghai) or as an offset (+08:00); raises ConfigError for what is neither."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # most commands are not asked for a zone

    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    try:
        offset = datetime.strptime(text, "%z").utcoffset()
    except ValueError:
        offset = None
    if offset is None:
        raise ConfigError(f"{text!r} is neither a time zone like Asia/Shanghai nor an offset like +08:00")
    return timezone(offset)


def zone_name(zone: tzinfo | None = None) -> str:
    """What a zone is called, None for this machine's: its name where there is one, else its offset.

    This machine's zone is known by TZ, or by where /etc/localtime leads to; else it is `local time`.
    """
    if zone is not None:
        return str(zone)
    name = os.environ.get("TZ")
    if name is None:
        name = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
        return {"Etc/UTC": "UTC"}.get(name, name) or "local time"
    return name.removeprefix(":") or "UTC"


def _is_calendar(digits: str) -> bool:
    """Whether digits have the form of a time of the calendar rather than that of a number."""
    is_hour = len(digits) == _SECONDS_DIGITS and bool(_HOUR.fullmatch(digits))
    return is_hour or (len(digits) in _CALENDAR_DIGITS and bool(_YEAR.fullmatch(digits)))


def _number(digits: str) -> int:
    """Milliseconds, or seconds where there are ten digits; raises ConfigError for what is no time of ours in either."""
    value = int(digits)
    if len(digits) == _SECONDS_DIGITS:
        return value * 1000
    if value >= LARGEST:
        return LARGEST
    if value > LARGEST_MILLISECONDS:
        raise ConfigError(
            f"{digits!r} is neither milliseconds nor a time like 20240531083000: "
            f"as milliseconds, {len(digits)} digits are beyond the year 2286"
        )
    return value


def _from_now(present: int, sign: str | None, span: str) -> int:
    distance = sum(int(count) * _MILLISECONDS[unit] for count, unit in _PIECE.findall(span))
    return max(min(present + (-distance if sign == "-" else distance), LARGEST), -LARGEST)


def _without_zone(text: str, zone: tzinfo | None) -> tuple[str, tzinfo | None]:
    """A time without the zone that it names, and this zone, or else the one that is passed."""
    found = _BRACKETS.fullmatch(text) or _NAMED.fullmatch(text)
    return (text, zone) if found is None else (found["time"], parse_zone(found["zone"]))


def _moment(text: str, zone: tzinfo | None, present: int) -> datetime:
    """A calendar time, whose offset is the one that it has itself; raises ValueError for what is none."""
    if text[-1:] == "z":
        text = f"{text[:-1]}Z"
    if found := _DAY.fullmatch(text):
        return _on_day(_DAYS[found["day"]], found["clock"] or "00:00", zone, present)
    if _CLOCK.fullmatch(text):
        return _on_day(0, text, zone, present)
    if found := _MIDNIGHT.fullmatch(text):
        return _moment(f"{found['day']}00{found['rest']}", zone, present) + timedelta(days=1)
    if found := _ORDINAL.fullmatch(text):
        first = date(int(found["year"]), 1, 1)
        day = first + timedelta(days=int(found["number"]) - 1)
        if day.year != first.year:
            raise ValueError(text)
        return datetime.fromisoformat(f"{day}{found['rest'] or ''}")
    if found := _MONTH.fullmatch(text):
        return datetime.fromisoformat(f"{found['year']}-{found['month'] or '01'}-01")
    if found := _CLOCK_DIGITS.fullmatch(text):
        part = f".{found['rest']}" if found["rest"] else ""
        return _moment(f"{found['day']}T{found['clock']}{part}", zone, present)
    return datetime.fromisoformat(text)


def _on_day(days: int, clock: str, zone: tzinfo | None, present: int) -> datetime:
    """A time of day, so many days after the present one, in the zone that the time of day has or else in `zone`."""
    at = clock_time.fromisoformat(re.sub(r"^T?([0-9]:)", r"0\1", clock))
    today = (_EPOCH + timedelta(milliseconds=present)).astimezone(at.tzinfo or zone).date()
    return datetime.combine(today + timedelta(days=days), at)


def _in_zone(moment: datetime, zone: tzinfo | None) -> datetime:
    return moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
