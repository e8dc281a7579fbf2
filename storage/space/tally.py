"""Messages and bytes, counted by what they have in common; tallies of parts of a log are added to one of the whole.

Names are counted exactly up to a number of them and of their bytes. Beyond it those with the fewest bytes are given up,
again and again, as in lossy counting: what is left has at least the bytes that are said, and at most `error` more.
"""

import bisect
import heapq
import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

HOUR_MS: Final = 3_600_000

MOST_NAMES: Final = 20_000
"""Names that a tally keeps of each kind; twice as many before some are given up."""

MOST_NAME_BYTES: Final = 4 << 20
"""Bytes of the names that a tally keeps of each kind; twice as many before some are given up."""

MOST_LARGEST: Final = 100
"""Messages that are kept as the largest ones."""

MOST_PLACES: Final = 20
"""Damaged places of a log that are named."""

Name = TypeVar("Name", bound=Hashable)


def _length(name: object) -> int:
    """Bytes of the texts in a name."""
    if isinstance(name, tuple):
        return sum(map(_length, name))
    return len(name) if isinstance(name, bytes | str) else 0


class Counts(Generic[Name]):
    """Messages and bytes by name. `error`: bytes that any name may have more, 0 where all counts are exact."""

    __slots__ = ("_limit", "_name_bytes", "_rows", "error", "given_up_bytes", "given_up_messages")

    def __init__(self, limit: int = MOST_NAMES) -> None:
        """Keep at least `limit` names, those with the most bytes, or as many as `MOST_NAME_BYTES` have room for."""
        self._limit = limit
        self._name_bytes = 0
        self._rows: dict[Name, tuple[int, int]] = {}
        self.given_up_messages = self.given_up_bytes = self.error = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: Name) -> tuple[int, int]:
        """Messages and bytes of a name, zeros for one that is not known."""
        return self._rows.get(name, (0, 0))

    def __iter__(self) -> Iterator[Name]:
        return iter(self._rows)

    def add(self, name: Name, messages: int, size: int) -> None:
        """Count some messages of one name."""
        if name not in self._rows:
            self._name_bytes += _length(name)
        before_messages, before = self._rows.get(name, (0, 0))
        self._rows[name] = before_messages + messages, before + size
        if len(self._rows) > 2 * self._limit or self._name_bytes > 2 * MOST_NAME_BYTES:
            self._give_up()

    def merge(self, other: "Counts[Name]") -> None:
        """Add what another one has counted."""
        for name, (messages, size) in other._rows.items():
            self.add(name, messages, size)
        self.given_up_messages += other.given_up_messages
        self.given_up_bytes += other.given_up_bytes
        self.error += other.error

    def largest(self, count: int | None = None) -> list[tuple[Name, int, int]]:
        """Names with messages and bytes, the most bytes first, `count` of them at most."""
        rows = [(name, messages, size) for name, (messages, size) in self._rows.items()]
        rows.sort(key=lambda row: (-row[2], -row[1], str(row[0])))
        return rows[:count]

    def shrink(self) -> None:
        """Give up names beyond the limits, so that little is sent to another process."""
        if len(self._rows) > self._limit or self._name_bytes > MOST_NAME_BYTES:
            self._give_up()

    def _give_up(self) -> None:
        rows = self.largest()
        lengths = list(itertools.accumulate(_length(name) for name, _, _ in rows[: self._limit]))
        kept = bisect.bisect_right(lengths, MOST_NAME_BYTES)
        gone = rows[kept:]
        self._rows = {name: (messages, size) for name, messages, size in rows[:kept]}
        self._name_bytes = lengths[kept - 1] if kept else 0
        self.given_up_messages += sum(messages for _, messages, _ in gone)
        self.given_up_bytes += sum(size for _, _, size in gone)
        self.error += gone[0][2]


@dataclass(slots=True)
class Tally:
    """What some stretch of the log holds.

    Topics and tags are bytes as stored, a tag None for messages without one; hosts are 4 or 16 bytes of an address, or
    the name in lower case that a proxy passed on; hours count from 1970. `largest` is a heap of (bytes, physical
    offset). Damage is bytes without an intact record: places, bytes in all, and the first places as ranges of physical
    offsets. `gone` are such ranges whose segments were deleted before they were counted. Times are ms, `oldest` above
    `newest` where there is no message.
    """

    messages: int = 0
    size: int = 0
    oldest: int = 2**63 - 1
    newest: int = -(2**63)
    topics: Counts[bytes] = field(default_factory=Counts)
    queues: Counts[tuple[bytes, int]] = field(default_factory=Counts)
    tags: Counts[tuple[bytes, bytes | None]] = field(default_factory=Counts)
    hosts: Counts[bytes | str] = field(default_factory=Counts)
    hours: Counts[int] = field(default_factory=Counts)
    largest: list[tuple[int, int]] = field(default_factory=list)
    damaged_places: int = 0
    damaged_bytes: int = 0
    damage: list[tuple[int, int]] = field(default_factory=list)
    gone: list[tuple[int, int]] = field(default_factory=list)

    def add_largest(self, size: int, physical_offset: int) -> None:
        """Keep a message if it is one of the largest; of several of one size, those that were stored first."""
        entry = size, -physical_offset
        if len(self.largest) < MOST_LARGEST:
            heapq.heappush(self.largest, entry)
        elif entry > self.largest[0]:
            heapq.heapreplace(self.largest, entry)

    def add_damage(self, start: int, stop: int) -> None:
        """Count a range of physical offsets that holds no intact record."""
        self.damaged_places += 1
        self.damaged_bytes += stop - start
        if len(self.damage) < MOST_PLACES:
            self.damage.append((start, stop))

    def add_gone(self, start: int, stop: int) -> None:
        """Note a range of physical offsets whose segment is not there any more; neighbours become one range."""
        if self.gone and self.gone[-1][1] == start:
            start, _ = self.gone.pop()
        self.gone.append((start, stop))

    def largest_messages(self, count: int) -> list[tuple[int, int]]:
        """Bytes and physical offsets of the largest messages, the largest first."""
        return [(size, -negative) for size, negative in sorted(self.largest, reverse=True)[:count]]

    def merge(self, other: "Tally") -> None:
        """Add what lies behind this stretch."""
        self.messages += other.messages
        self.size += other.size
        self.oldest, self.newest = min(self.oldest, other.oldest), max(self.newest, other.newest)
        self.topics.merge(other.topics)
        self.queues.merge(other.queues)
        self.tags.merge(other.tags)
        self.hosts.merge(other.hosts)
        self.hours.merge(other.hours)
        for size, negative in other.largest:
            self.add_largest(size, -negative)
        self.damaged_places += other.damaged_places
        self.damaged_bytes += other.damaged_bytes
        self.damage = [*self.damage, *other.damage][:MOST_PLACES]
        for start, stop in other.gone:
            self.add_gone(start, stop)

    def shrink(self) -> None:
        """Make it as small as its limits allow."""
        for counts in (self.topics, self.queues, self.tags, self.hosts, self.hours):
            counts.shrink()
