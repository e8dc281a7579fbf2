"""Days and pauses as a person writes them, and days as numbers of ms; nothing else is loaded for them."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

from protocol.errors import ConfigError

DAY_MILLISECONDS: Final = 24 * 60 * 60 * 1000
EPOCH: Final = date(1970, 1, 1)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_day(text: str, now: datetime | None = None) -> date:
    """Read a day, `2026-11-23` or `7d` for so many days before today (UTC); raises ConfigError."""
    if text.endswith("d") and text[:-1].isascii() and text[:-1].isdigit():
        today = (now or datetime.now(UTC)).date()
        try:
            return today - timedelta(days=int(text[:-1]))
        except (OverflowError, ValueError) as error:  # the latter for thousands of digits
            raise ConfigError(f"{text!r} is before the first day of the calendar") from error
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is neither a day like 2026-11-23 nor a number of days like 7d") from error


def start_of(day: date) -> int:
    """Return the first ms of a day in UTC."""
    return (day - EPOCH).days * DAY_MILLISECONDS


def parse_pause(text: str) -> int:
    """Read a time like `30s`, `5m`, `2h` or `1d`, in seconds; raises ConfigError."""
    found = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    if found is None:
        raise ConfigError(f"{text!r} is no time like 30s, 5m, 2h or 1d")
    return int(found[1]) * _UNITS[found[2]]
