"""All that takes the disk in a store's log, in one answer."""

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.mask import NO_MASK, Mask
from storage.log.commit_log import CommitLog
from storage.space.breakdown import NameCount, counts_are_masked, inexact_counts, name_counts
from storage.space.broker_settings import BrokerSettings
from storage.space.forecast import Forecast, make_forecast
from storage.space.measure import problems_of
from storage.space.tally import MOST_LARGEST, Tally


@dataclass(frozen=True, slots=True)
class Space:
    """What takes the disk in a store's log: messages, and the bytes of their records.

    Each count has its `names`, `messages` and `size` in bytes, those with the most bytes first: by topic, by topic and
    queue id, by topic and tag (None: without one), by the sender's address; and by the hour in which messages were
    stored, its beginning in ms, from the newest on.
    """

    messages: int
    size: int
    topics: tuple[NameCount, ...]
    queues: tuple[NameCount, ...]
    tags: tuple[NameCount, ...]
    hosts: tuple[NameCount, ...]
    hours: tuple[NameCount, ...]
    largest: tuple[tuple[int, int], ...]
    """Bytes and physical offsets of the largest messages, at most 100, the largest first."""
    forecast: Forecast | None
    """How the log grows, and until when there is room; None for a log without segments, and for some times of it."""
    notes: tuple[str, ...] = ()
    """Sentences: what could not be counted, and which counts are not exact."""
    oldest_timestamp: int | None = None
    """When the messages were stored: the first time of all, in ms, and the last; None for no messages."""
    newest_timestamp: int | None = None
    damaged_places: int = 0
    """Places of the log without an intact record, and the bytes in them, which are not counted."""
    damaged_bytes: int = 0

    def counts_by(self, kind: str) -> tuple[NameCount, ...]:
        """The counts by one of :data:`storage.space.breakdown.COUNTED_BY`; none where a mask hides what they say."""
        by_kind = {
            "topic": self.topics,
            "queue": self.queues,
            "tag": self.tags,
            "host": self.hosts,
            "hour": self.hours,
        }
        return by_kind[kind]


def space_of(
    log: CommitLog,
    tally: Tally,
    settings: BrokerSettings,
    lacks: Iterable[str] = (),
    mask: Mask = NO_MASK,
    *,
    is_narrowed: bool = False,
) -> Space:
    """Make the report of a counted log; counts by what `mask` hides are left out. `lacks`: parts that are not read.

    There is no forecast where the count `is_narrowed` to some times: the growth is that of the end of the log.
    """
    return Space(
        messages=tally.messages,
        size=tally.size,
        topics=tuple(name_counts(tally, "topic")),
        queues=tuple(name_counts(tally, "queue")),
        tags=() if counts_are_masked(mask, "tag") else tuple(name_counts(tally, "tag")),
        hosts=() if counts_are_masked(mask, "host") else tuple(name_counts(tally, "host")),
        hours=tuple(name_counts(tally, "hour")),
        largest=tuple(tally.largest_messages(MOST_LARGEST)),
        forecast=None if is_narrowed else make_forecast(log, tally, settings),
        notes=(*problems_of(log, tally), *inexact_counts(tally), *lacks),
        oldest_timestamp=tally.oldest if tally.messages else None,
        newest_timestamp=tally.newest if tally.messages else None,
        damaged_places=tally.damaged_places,
        damaged_bytes=tally.damaged_bytes,
    )
