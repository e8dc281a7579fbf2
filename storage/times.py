"""Times as a person writes and reads them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from protocol.errors import ConfigError

LARGEST: Final = 2**63 - 1
"""Milliseconds; later times are taken for this one."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str) -> int:
    """Read milliseconds since 1970, or an ISO 8601 time, which is this machine's local time unless it has an offset.

    Returns milliseconds since 1970; raises ConfigError for any other text.
    """
    if re.fullmatch(r"[0-9]{1,19}", text):
        return min(int(text), LARGEST)
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(f"{text!r} is neither milliseconds nor a time like 2024-05-31T08:30:00") from error
    return to_timestamp(moment)


def to_timestamp(moment: datetime) -> int:
    """A time in ms since 1970; one without an offset is this machine's local time. Raises ConfigError."""
    try:
        return (moment.astimezone() - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(f"{moment} is outside the calendar") from error


def format_timestamp(timestamp: int) -> str:
    """A timestamp in ms as ISO 8601 UTC, or the bare number where it is no date."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
