"""How a log grows, and what comes first: that its oldest messages are deleted for their age, or that the disk is full.

A broker deletes a segment, at the hour `deleteWhen`, once it has not been written to for `fileReservedTime` hours, and
at any hour while more of the disk is used than `diskMaxUsedSpaceRatio`. Source: store-format §1.
"""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from storage.log.commit_log import CommitLog
from storage.space.broker_settings import BrokerSettings
from storage.space.tally import HOUR_MS, Tally

GROWTH_HOURS: Final = 24
"""Hours before the last message from which the growth is reckoned."""

SHORTEST_MS: Final = 600_000
"""A log of a shorter time says nothing about its growth."""

DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Forecast:
    """Bytes, and times in ms. None for what cannot be said: a log of some minutes, one that does not grow,
    or one of which a broker deleted what is needed for it meanwhile.

    `growth` is bytes of records a day, over the `growth_hours` before the last message. `disk` is the directory that is
    written to. At that growth its file system is full at `full_timestamp`, the broker begins to delete for lack of room
    at `crowded_timestamp` (which may be past), and the log, once it is as old as a broker keeps it, is `kept_size`
    long. The oldest segment may be deleted for its age from `expiry_timestamp` on.
    """

    growth: int | None
    growth_hours: float
    disk: Path
    disk_size: int
    disk_used: int
    disk_free: int
    full_timestamp: int | None
    crowded_timestamp: int | None
    expiry_timestamp: int | None
    kept_size: int | None
    log_size: int
    settings: BrokerSettings

    @property
    def is_full_first(self) -> bool | None:
        """Whether the disk is full before the log is as old as a broker keeps it; None where growth is not known."""
        return None if self.kept_size is None else self.kept_size - self.log_size > self.disk_free

    def fields(self) -> dict[str, int | float | str | list[str] | None]:
        """The forecast as JSON has it."""
        return {
            "bytesPerDay": self.growth,
            "growthHours": self.growth_hours,
            "disk": str(self.disk),
            "diskBytes": self.disk_size,
            "diskUsedBytes": self.disk_used,
            "diskFreeBytes": self.disk_free,
            "fullTimestamp": self.full_timestamp,
            "crowdedTimestamp": self.crowded_timestamp,
            "expiryTimestamp": self.expiry_timestamp,
            "keptBytes": self.kept_size,
            "logBytes": self.log_size,
            "isFullFirst": self.is_full_first,
            "reservedHours": self.settings.reserved_hours,
            "mostUsedPercent": self.settings.most_used,
            "assumed": sorted(self.settings.assumed),
        }


def make_forecast(
    commit_log: CommitLog, tally: Tally, settings: BrokerSettings, now_timestamp: int | None = None
) -> Forecast | None:
    """What a log's growth means for its disk; None for a log without segments.

    Raises StoreError where its file system cannot be asked.
    """
    if not commit_log.segments:
        return None
    now = time.time_ns() // 1_000_000 if now_timestamp is None else now_timestamp
    # What is gone behind records that are counted may be of the last day; at the log's beginning it is not missed.
    is_whole = all(start == commit_log.minimum for start, _ in tally.gone)
    growth, hours = growth_of(tally, commit_log.last_store_timestamp()) if is_whole else (None, 0.0)
    first, last = commit_log.segments[0].file.path, commit_log.segments[-1].file.path
    try:
        disk = shutil.disk_usage(last.parent)
    except OSError as error:
        raise StoreError(last.parent, what=f"its file system cannot be asked: {error.strerror}") from error
    written = _written(first)
    crowded = settings.most_used * disk.total // 100 - disk.used
    return Forecast(
        growth=growth,
        growth_hours=hours,
        disk=last.parent,
        disk_size=disk.total,
        disk_used=disk.used,
        disk_free=disk.free,
        full_timestamp=_when(now, disk.free, growth),
        crowded_timestamp=_when(now, crowded, growth),
        # The last segment is being written to.
        expiry_timestamp=None if written is None or first == last else written + settings.reserved_hours * HOUR_MS,
        kept_size=None if growth is None else growth * settings.reserved_hours // 24,
        log_size=sum(segment.file.size for segment in commit_log.segments)
        - sum(stop - start for start, stop in tally.gone),
        settings=settings,
    )


def growth_of(tally: Tally, last_timestamp: int) -> tuple[int | None, float]:
    """Bytes a day that were stored in the last hours, and how many hours these are; None for too short a time.

    They end when the last message was stored, at `last_timestamp` in ms: one before it may be of a clock ahead.
    """
    if not tally.messages:
        return None, 0.0
    last_hour = last_timestamp // HOUR_MS
    first_hour = max(tally.oldest // HOUR_MS, last_hour - GROWTH_HOURS + 1)
    span = last_timestamp - max(tally.oldest, first_hour * HOUR_MS)
    if span < SHORTEST_MS:
        return None, span / HOUR_MS
    stored = sum(tally.hours[hour][1] for hour in tally.hours if first_hour <= hour <= last_hour)
    return stored * DAY_MS // span, span / HOUR_MS


def _written(segment: Path) -> int | None:
    """When a segment was last written to, in ms; None for one that a broker has deleted meanwhile."""
    try:
        return os.stat(segment).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(segment, what=f"cannot be asked when it was written: {error.strerror}") from error


def _when(now: int, room: int, growth: int | None) -> int | None:
    return None if not growth else now + room * DAY_MS // growth
