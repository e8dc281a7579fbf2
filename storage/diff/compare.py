"""Compare the messages of two stores: those that only one of them has, and those that have different contents.

Two messages are equal if they have the same offset in the same queue and a producer sent the same; where they are in
the log does not matter. But if most messages are at the same physical offset in both logs, one log is a copy of the
other, and then every byte of two records at the same physical offset must be equal.
Segments that are equal byte for byte are not read further.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from storage.diff._entries import ENTRY, Buckets, Entries, QueueNames, bucket_count, collect
from storage.diff._log_pieces import Notify, OneLog, compare_segments, open_log
from storage.files.own_directories import temporary_directory

MISSING: Final = "missing"
EXTRA: Final = "extra"
DIFFERENT: Final = "different"
MOST_RANGES: Final = 10_000
"""Ranges that are listed; more are counted."""

_A, _B = 0, 1


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Messages [first, last] of a queue that are `missing` in B, `extra` there, or `different`.

    Of messages that are in no queue `first` and `last` are −1. `physical_offset` is where the first of them lies: in A,
    of extra ones in B.
    """

    kind: str
    topic: str
    queue_id: int
    first: int
    last: int
    count: int
    physical_offset: int


@dataclass
class Difference:
    """What two stores do not have in common."""

    a_range: tuple[int, int]
    b_range: tuple[int, int]
    """Physical offsets [minimum, end) of both logs."""
    first_byte: int | None = None
    """Physical offset of the first byte that is another one in both."""
    compared_bytes: int = 0
    counts: dict[str, int] = field(default_factory=lambda: {MISSING: 0, EXTRA: 0, DIFFERENT: 0})
    ranges: list[QueueRange] = field(default_factory=list)
    more_ranges: int = 0
    damage: dict[str, list[str]] = field(default_factory=lambda: {"a": [], "b": []})

    @property
    def is_none(self) -> bool:
        """Whether both hold the same messages."""
        return not any(self.counts.values())

    @property
    def first(self) -> QueueRange | None:
        """The range that lies first in the logs."""
        return min(self.ranges, key=lambda each: each.physical_offset, default=None)


def compare_stores(a: Path, b: Path, notify: Notify = lambda _: None, work: Path | None = None) -> Difference:
    """Compare two stores; `work` is where to keep what does not fit into memory. Raises StoreError."""
    left, right, first = compare_segments(open_log(a), open_log(b), notify)
    found = Difference(_range(left), _range(right), first, left.size + right.size)
    if left.left or right.left:
        with temporary_directory("rocketlens-diff-", work or Path(tempfile.gettempdir())) as directory:
            _compare_messages(left, right, directory, found, notify)
    for name, one in (("a", left), ("b", right)):
        found.damage[name] += [problem for problem in one.log.problems if problem not in found.damage[name]]
    return found


def _range(one: OneLog) -> tuple[int, int]:
    return one.log.minimum, one.log.end


def _compare_messages(left: OneLog, right: OneLog, directory: Path, found: Difference, notify: Notify) -> None:
    count, names = bucket_count(max(left.left_size, right.left_size)), QueueNames()
    sides = Buckets(directory, "a", count), Buckets(directory, "b", count)
    for one, name, buckets in ((left, "a", sides[_A]), (right, "b", sides[_B])):
        for segment in one.left:
            damage = collect(segment, names, buckets, notify)
            found.damage[name] += [each.sentence() for each in damage]
    ranges: list[QueueRange] = []
    rewritten = Rewritten()
    for number in range(count):
        for kind, entries in differing(sides[_A].read(number), sides[_B].read(number), rewritten):
            found.counts[kind] += len(entries)
            ranges += _ranges(kind, entries, names.names)
            if len(ranges) > 2 * MOST_RANGES:
                ranges = _keep(ranges, found)
    if rewritten.is_copy or len(left.left) < len(left.log.segments):
        entries = np.concatenate(rewritten.entries)
        found.counts[DIFFERENT] += len(entries)
        ranges += _ranges(DIFFERENT, entries, names.names)
    found.ranges = _keep(_joined(ranges), found)


@dataclass
class Rewritten:
    """Pairs of records with equal contents whose bytes differ; in a copy of a log they count as different."""

    pairs: int = 0
    in_place: int = 0
    """How many pairs of messages there are, and how many lie at the same physical offset."""
    entries: list[Entries] = field(default_factory=lambda: [np.empty(0, ENTRY)])

    @property
    def is_copy(self) -> bool:
        """Whether most messages are where they are in the other log."""
        return 2 * self.in_place > self.pairs

    def note(self, a: Entries, b: Entries) -> None:
        """Look at pairs."""
        is_in_place = a["physical_offset"] == b["physical_offset"]
        self.pairs += len(a)
        self.in_place += int(is_in_place.sum())
        self.entries.append(a[is_in_place & (a["raw"] != b["raw"])])


def _keep(ranges: Sequence[QueueRange], found: Difference) -> list[QueueRange]:
    """As many as are listed, those that lie first in the logs."""
    ordered = sorted(ranges, key=lambda each: each.physical_offset)
    found.more_ranges += max(len(ordered) - MOST_RANGES, 0)
    return sorted(ordered[:MOST_RANGES], key=lambda each: (each.topic, each.queue_id, each.kind, each.first))


def differing(a: Entries, b: Entries, rewritten: Rewritten) -> Iterator[tuple[str, Entries]]:
    """Yield the entries that only one of two sets has, and those that differ, by kind.

    Entries with equal contents at the same place of a queue are paired first, then entries at the same place.
    """
    same_a, same_b, a, b = _pair(a, b, ("queue", "offset", "content"))
    rewritten.note(same_a, same_b)
    other, _, a, b = _pair(a, b, ("queue", "offset"))
    yield MISSING, a
    yield EXTRA, b
    yield DIFFERENT, other


def _pair(a: Entries, b: Entries, fields: Sequence[str]) -> tuple[Entries, Entries, Entries, Entries]:
    """Pair the entries of both that agree in some fields; the pairs of each side, then what is left of each."""
    joined = np.concatenate([a, b])
    side = np.repeat([_A, _B], [len(a), len(b)])
    order = np.lexsort((joined["physical_offset"], side, *(joined[name] for name in fields)))
    joined, side = joined[order], side[order]
    starts = np.ones(len(joined), np.bool_)
    starts[1:] = np.logical_or.reduce([joined[name][1:] != joined[name][:-1] for name in fields])
    group = np.cumsum(starts) - 1
    groups = int(group[-1]) + 1 if len(group) else 0
    counts = [np.bincount(group[side == each], minlength=groups) for each in (_A, _B)]
    paired = np.empty(len(joined), np.bool_)
    for each in (_A, _B):
        mine = side == each
        first = np.cumsum(counts[each]) - counts[each]
        ranks = np.arange(int(mine.sum())) - first[group[mine]]
        paired[mine] = ranks < counts[1 - each][group[mine]]
    is_a = side == _A
    return joined[paired & is_a], joined[paired & ~is_a], joined[~paired & is_a], joined[~paired & ~is_a]


def _ranges(kind: str, entries: Entries, names: Sequence[tuple[str, int, bool]]) -> Iterator[QueueRange]:
    """Neighbours in a queue as ranges."""
    if not len(entries):
        return
    entries = entries[np.lexsort((entries["offset"], entries["queue"]))]
    queued = np.array([is_queued for _, _, is_queued in names])[entries["queue"]]
    breaks = (np.diff(entries["queue"]) != 0) | (queued[1:] & (np.diff(entries["offset"]) > 1))
    starts = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    stops = np.concatenate([starts[1:], [len(entries)]])
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        part = entries[start:stop]
        topic, queue_id, is_queued = names[int(part["queue"][0])]
        first, last = (int(part["offset"][0]), int(part["offset"][-1])) if is_queued else (-1, -1)
        yield QueueRange(kind, topic, queue_id, first, last, len(part), int(part["physical_offset"].min()))


def _joined(ranges: Iterable[QueueRange]) -> list[QueueRange]:
    """Ranges that continue each other as one: a bucket ends in the middle of a queue."""
    joined: list[QueueRange] = []
    for each in sorted(ranges, key=lambda each: (each.kind, each.topic, each.queue_id, each.first)):
        last = joined[-1] if joined else None
        if last is not None and (last.kind, last.topic, last.queue_id) == (each.kind, each.topic, each.queue_id) and (
            each.first == last.last + 1 >= 1 or each.first == last.first == -1
        ):  # fmt: skip
            joined[-1] = QueueRange(
                each.kind, each.topic, each.queue_id, last.first, each.last, last.count + each.count,
                min(last.physical_offset, each.physical_offset),
            )  # fmt: skip
        else:
            joined.append(each)
    return joined
