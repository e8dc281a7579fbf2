"""How many messages groups have consumed in the last minute, hour and day, counted by the offsets that they commit.

A broker counts messages as it sends them. Here a pull counts nothing; a commit counts the messages between the offset
that was committed before and the new one. So messages that are pulled and not committed yet are not counted. A group's
first commit counts from the offset that the store recorded, and counts nothing where there is none.

Samples of the running total are kept as a broker keeps them: every ten seconds for the last minute, every ten minutes
for the last hour, every hour for the last day.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.service.registry_budget import Room, room_apart, size_of

PAIRS_LIMIT: Final = 10_000
"""Pairs of group and topic that are counted; clients can make up groups."""

PAIR_BYTES: Final = 8192
"""Bytes that a pair is counted with, besides its names: the samples of a day."""

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
SPANS: Final = ((MINUTE, 10.0), (HOUR, 600.0), (DAY, 3600.0))
"""Each span in seconds, and the seconds between two of its samples."""


class Rate(NamedTuple):
    """The number of messages of a span of time, in all and per second."""

    total: int = 0
    per_second: float = 0.0


class _Samples:
    """The running total of a pair, since when it has this value, and its values before."""

    __slots__ = ("since", "spans", "total")

    def __init__(self, now: float) -> None:
        self.since, self.total = now, 0
        self.spans = [deque([(now, 0)], maxlen=2 * int(span / step) + 2) for span, step in SPANS]

    def add(self, now: float, count: int) -> None:
        """Count messages; where a sample is due, the total up to now is kept as a sample too."""
        for samples, (_, step) in zip(self.spans, SPANS, strict=True):
            if now - samples[-1][0] >= step:
                if self.since > samples[-1][0]:
                    samples.append((self.since, self.total))
                samples.append((now, self.total + count))
        self.since = now
        self.total += count

    def rate(self, number: int, now: float) -> Rate:
        """The rate since the newest sample that is as old as span `number`, else since the first sample."""
        span, samples = SPANS[number][0], self.spans[number]
        if self.since <= now - span:
            return Rate()
        since, before = next((each for each in reversed(samples) if each[0] <= now - span), samples[0])
        count = self.total - before
        return Rate(count, count / min(max(now - since, 1.0), span))


class ConsumeRates:
    """The rates of all pairs of group and topic. Safe to use from several threads."""

    def __init__(self, clock_seconds: Callable[[], float] = time.monotonic, room: Room | None = None) -> None:
        self._clock_seconds = clock_seconds
        self._lock = threading.Lock()
        self._pairs: dict[tuple[str, str], _Samples] = {}
        self.room = room_apart("rates") if room is None else room
        """The part of the budget in which pairs are counted."""

    def add(self, group: str, topic: str, count: int) -> None:
        """Count messages that a group has consumed."""
        now = self._clock_seconds()
        with self._lock:
            samples = self._pairs.get((group, topic))
            if samples is None:
                if len(self._pairs) >= PAIRS_LIMIT or not self.room.take(PAIR_BYTES + size_of(group, topic)):
                    return
                samples = self._pairs[group, topic] = _Samples(now)
            samples.add(now, count)

    def total(self) -> tuple[Rate, Rate, Rate]:
        """The rates of all pairs together in the last minute, hour and day."""
        now = self._clock_seconds()
        with self._lock:
            spans = [[samples.rate(number, now) for samples in self._pairs.values()] for number in range(len(SPANS))]
        minute, hour, day = (
            Rate(sum(rate.total for rate in rates), sum(rate.per_second for rate in rates)) for rates in spans
        )
        return minute, hour, day

    def rates(self, group: str, topic: str) -> tuple[Rate, Rate, Rate]:
        """The rates of one pair in the last minute, hour and day."""
        now = self._clock_seconds()
        with self._lock:
            samples = self._pairs.get((group, topic))
            if samples is None:
                return Rate(), Rate(), Rate()
            return samples.rate(0, now), samples.rate(1, now), samples.rate(2, now)
