"""Where a broker that starts on a store begins to read its log again: damage from there on ends its log.

A broker steps back from the last segment to the first one whose first record it trusts: after a clean stop one that
the queues reach, after a crash one that the checkpoint vouches for. Brokers have different rules for it
(:class:`Broker`). These rules open no file, so they serve all who know how segments begin. Source: store-format §6.3,
§10.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from storage.layout.checkpoint import Checkpoint

MOST_SEGMENTS: Final = 10
"""Segments that a broker from 5.5 on walks at most (`commitLogRecoverMaxNum`)."""

LAST_SEGMENTS: Final = 3
"""Segments that an old broker walks after a clean stop, whatever they hold."""


class Broker(StrEnum):
    """Brokers whose recoveries start by the same rules."""

    FROM_5_5 = "5.5"
    FROM_5_3_1 = "5.3.1 to 5.4"
    FROM_5_0 = "5.0 to 5.3.0"
    UP_TO_4_9 = "4.x"


CHECKED_BACK: Final = (Broker.FROM_5_5, Broker.FROM_5_3_1)
"""The brokers that look for where to begin after a clean stop too."""


SPARED: Final = CHECKED_BACK
"""The brokers none of which is to cut what a rebuild in place leads to."""


class SegmentHead(NamedTuple):
    """The first record of a segment: what it says of its place, and when it was stored; 0 where there is no record."""

    base_offset: int
    timestamp: int


class StartFacts(NamedTuple):
    """What a recovery goes by: whether `abort` is there, the checkpoint, and up to where the queues reach."""

    has_crashed: bool
    checkpoint: Checkpoint | None
    queues_end: int


def first_walked(count: int, head: Callable[[int], SegmentHead], facts: StartFacts, broker: Broker) -> int:
    """Number of the first of `count` segments that a broker's recovery reads; 0 without any.

    `head` gives the head of a segment by its number; it is asked from the last one on.
    """
    most = MOST_SEGMENTS if broker is Broker.FROM_5_5 else count
    if broker not in CHECKED_BACK and not facts.has_crashed:
        return max(count - LAST_SEGMENTS, 0)
    earliest = max(count - most, 0)
    for number in range(count - 1, earliest, -1):
        found = head(number)
        if found.timestamp and _is_trusted(found, facts, broker):
            return number
    return earliest


def recovery_start(heads: Sequence[SegmentHead], facts: StartFacts, brokers: Iterable[Broker]) -> int:
    """Physical offset at which the recovery of any of several brokers starts at the latest."""
    if not heads:
        return 0
    return min(heads[first_walked(len(heads), heads.__getitem__, facts, broker)].base_offset for broker in brokers)


def _is_trusted(head: SegmentHead, facts: StartFacts, broker: Broker) -> bool:
    if not facts.has_crashed:
        return head.base_offset <= facts.queues_end
    checkpoint = facts.checkpoint or Checkpoint(0, 0, 0, 0, 0, 0)
    if broker is not Broker.FROM_5_5:
        return head.timestamp <= checkpoint.min_timestamp
    if checkpoint.logics_physical_offset > 0:
        return head.base_offset <= checkpoint.logics_physical_offset
    return head.timestamp <= checkpoint.logics_msg_timestamp
