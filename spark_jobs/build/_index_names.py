"""Names for index files: 17 digits of local time, in an order that a broker's next file continues.

A broker names a file by its clock, in the zone of its JVM, and loads files in the order of their names; so names must
rise along the log, lie above those that are kept and below the present (store-format §3.6). Nothing reads the time
back, but people do: it is the store time of the file's first entry wherever order allows.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

from protocol.errors import ConfigError

DIGITS: Final = 17
QUARTER: Final = timedelta(minutes=15)
_MILLISECOND: Final = timedelta(milliseconds=1)
_FURTHEST: Final = timedelta(hours=15)
_LATEST: Final = 253_370_000_000_000  # in the year 9998: any zone's offset can be added to it
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def implied_zone(files: Sequence[tuple[str, int]]) -> tzinfo | None:
    """The zone that names of index files imply, given each file's begin timestamp (ms); None where they imply none.

    A file is named when its first entry is about to be written, so both differ by the zone's offset and by little
    more. Most of the files must agree; the machine's own zone is taken where it explains that many as well.
    """
    offsets = [
        (offset, timestamp) for name, timestamp in files if (offset := _implied_offset(name, timestamp)) is not None
    ]
    if not offsets or all(_moment(timestamp).astimezone().utcoffset() == offset for offset, timestamp in offsets):
        return None
    offset, count = Counter(offset for offset, _ in offsets).most_common(1)[0]
    return timezone(offset if count * 2 > len(offsets) else offsets[-1][0])


def name_files(timestamps: Sequence[int], zone: tzinfo | None, *, above: str, now: datetime) -> list[str]:
    """Names for files whose first entries were stored at `timestamps` (ms), rising, above a name and below `now`.

    `zone` None is the machine's. Raises ConfigError where no name lies between: the clock is behind the store's.
    """
    present = _local(now, zone)
    moments: list[datetime] = []
    latest = present - _MILLISECOND
    for timestamp in reversed(timestamps):
        latest = min(latest, _local(_moment(timestamp), zone))
        moments.append(latest)
        latest -= _MILLISECOND
    names: list[str] = []
    lowest = above
    for moment in reversed(moments):
        name = _format(moment)
        if name <= lowest:
            name = _next(lowest)
        names.append(name)
        lowest = name
    if names and names[-1] >= _format(present):
        raise ConfigError(
            f"index file {above} has a name in the future (now is {_format(present)} in the time zone of "
            "names): a broker would write its next file in front of it; check the clock and --tz"
        )
    return names


def _implied_offset(name: str, timestamp: int) -> timedelta | None:
    try:
        moment = _parse(name)
    except ValueError:
        return None
    difference = moment - _local(_moment(timestamp), UTC)
    offset = QUARTER * round(difference / QUARTER)
    is_near = abs(difference - offset) < QUARTER / 3 and abs(offset) < _FURTHEST
    return offset if timestamp > 0 and is_near else None


def _moment(timestamp: int) -> datetime:
    """A timestamp (ms), as far as a calendar goes."""
    return _EPOCH + timedelta(milliseconds=min(max(timestamp, 0), _LATEST))


def _local(moment: datetime, zone: tzinfo | None) -> datetime:
    """A moment as a wall clock shows it, without its zone."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _next(name: str) -> str:
    try:
        return _format(_parse(name) + _MILLISECOND)
    except ValueError:  # no time of any calendar: still a number
        return f"{int(name) + 1:0{DIGITS}d}"


def _parse(name: str) -> datetime:
    if len(name) != DIGITS or not name.isdecimal():
        raise ValueError(name)
    return datetime.strptime(f"{name[:14]}{name[14:]}000", "%Y%m%d%H%M%S%f")


def _format(moment: datetime) -> str:
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
