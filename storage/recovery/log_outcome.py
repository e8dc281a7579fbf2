"""What a broker's start does to the log: where its end is put, what is deleted, how many messages that costs.

The recovery reads from where it starts to the first thing that it takes for no record
(:mod:`storage.recovery._broker_walk`) and puts the end of the log there; the segments behind are deleted. What we serve
behind that place is lost (store-format §6.3). Foretold for brokers with their default configuration, neither in
controller mode nor with DLedger.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from storage.files.mapped_file import MappedFile
from storage.kernels.records import AT_DAMAGE, KeptChecksums, find_record, walk_records
from storage.log.commit_log import CommitLog, Segment
from storage.log.segment_list import boundaries, list_segments
from storage.recovery._broker_walk import MOST_WALKED, RULES, BrokerWalk, Rules
from storage.recovery.queue_outcome import QueueOutcome
from storage.recovery.start_place import Broker, StartFacts, first_walked

MOST_COUNTED: Final = 2 * 1024 * 1024 * 1024
"""Bytes in which messages are counted; for more the same density is assumed."""

MOST_PLACES: Final = 10_000
"""Places of damage in one segment behind which messages are counted."""


@dataclass(frozen=True, slots=True)
class LogOutcome:
    """What a start makes of a log: it is read again from `start` on, and ends at `end`.

    `cut_bytes` and `cut_messages` are what is served now and lies behind that, the latter estimated where it is much;
    `cut_topics` are the topics whose queues lead there; `deleted` are the paths of the segments that go.
    `is_complete`: all was read; else damage may be met earlier. `refused` says on what the broker ends before it
    reads the log at all; empty where it starts. Records from `dispatched_from` on are put into queues and index
    again; `queues` are those that lose something then, and `deleted_index_files` the paths of index files that go.
    """

    broker: Broker
    start: int
    end: int
    cut_bytes: int
    cut_messages: int
    deleted: tuple[str, ...]
    is_complete: bool
    cut_topics: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    dispatched_from: int = 0
    queues: tuple[QueueOutcome, ...] = ()
    deleted_index_files: tuple[str, ...] = ()

    @property
    def unqueued_messages(self) -> int:
        """How many messages that the log keeps are in no queue any more."""
        return sum(queue.lost for queue in self.queues)


class LogForecast:
    """Foretells starts on one log; what was read for one is not read again for another."""

    def __init__(self, log: CommitLog, directories: Iterable[Path]) -> None:
        """``directories`` are those of the log, of which files count as well that hold nothing."""
        self._log = log
        self._segments = tuple(_all_segments(log, directories))
        self._walks: dict[Rules, BrokerWalk] = {}
        self._counted: dict[int, int] = {}

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All files of the log, also those behind its end."""
        return self._segments

    def outcome(self, facts: StartFacts, broker: Broker) -> LogOutcome:
        """Foretell the start of one kind of broker. Waits for the disk."""
        walk, is_checked = self._walk_by(RULES[broker]), broker is Broker.FROM_5_5
        number = first_walked(len(walk.segments), lambda each: walk.head(each, is_checked=is_checked), facts, broker)
        end = walk.end_from(number)
        cut = max(self._log.end - end, 0)
        if end not in self._counted:
            self._counted[end] = count_messages(self._log, end) if cut else 0
        return LogOutcome(
            broker=broker,
            start=walk.segments[number].base_offset,
            end=end,
            cut_bytes=cut if self._counted[end] else 0,
            cut_messages=self._counted[end],
            deleted=tuple(str(each.file.path) for each in walk.segments if each.base_offset > end),
            is_complete=walk.is_complete,
        )

    def _walk_by(self, rules: Rules) -> BrokerWalk:
        if rules not in self._walks:
            self._walks[rules] = BrokerWalk(self._segments, MOST_WALKED, rules)
        return self._walks[rules]


def count_messages(log: CommitLog, start: int, most_bytes: int = MOST_COUNTED) -> int:
    """Number of intact records from a physical offset on; about, where there are more than so many bytes."""
    found = counted = 0
    for segment in log.segments:
        position = max(start - segment.base_offset, 0)
        if position >= segment.valid_length or counted >= most_bytes:
            continue
        records, reached = _count(segment, position)
        found, counted = found + records, counted + reached - position
    total = sum(max(each.end - max(start, each.base_offset), 0) for each in log.segments)
    return found * total // counted if counted else 0


def _count(segment: Segment, position: int) -> tuple[int, int]:
    """Intact records of a segment from a position on, and the position up to which they were counted."""
    region, stop, base, sums, found = segment.file.region, segment.valid_length, segment.base_offset, KeptChecksums(), 0
    for _ in range(MOST_PLACES):
        walk = walk_records(region, position, stop, base, segment.boundary, True, sums)
        found += walk.records
        if walk.reason != AT_DAMAGE:
            return found, stop
        position = find_record(region, walk.position + 1, stop, base, sums)
        if position >= stop:
            return found, stop
    return found, position


def _all_segments(log: CommitLog, directories: Iterable[Path]) -> Iterator[Segment]:
    """The segments of a log, and the files behind its end, which a broker loads as well."""
    known = {segment.file.path: segment for segment in log.segments}
    opened: list[tuple[int, MappedFile]] = []
    for base_offset, path in list_segments(directories, []):
        try:
            opened.append((base_offset, known[path].file if path in known else MappedFile.open(path)))
        except StoreError:  # the check of segments names it
            continue
    bases = boundaries([(base_offset, file.size) for base_offset, file in opened])
    for (base_offset, file), boundary in zip(opened, bases, strict=True):
        if file.size:
            yield known.get(file.path) or Segment(base_offset, file, 0, boundary)
