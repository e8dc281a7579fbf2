"""The queues of a tier: each a plain queue over a log of its own, both in files that grow by appends.

The records of such a log name their own positions in it, so a queue with its log is read by the very code that reads a
queue of a store (:class:`storage.queue.consume_queue.ConsumeQueue`). What differs is where files are, that they are no
larger than what was written, and that each queue has its log. A log's end is looked for from the record of the queue's
last unit on, since the broker writes units after their records.

Source: other-formats §4.
"""

import os
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from storage.files.mapped_file import FileIdentity, list_segment_files, read_piece
from storage.files.open_files import OpenFiles
from storage.files.recently_used import RecentlyUsed
from storage.files.waiting import Lookup, Wait
from storage.layout.tier_layout import TIER_LOG, TIER_QUEUE, TierLayout, metadata_problems
from storage.log.commit_log import CommitLog
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_record import QueueName
from storage.queue.unit_struct import UNIT

TIER_QUEUES: Final = 512
"""Queues of a tier that are kept open; each holds the maps of all files of its log."""

MOST_NAMED: Final = 5
"""Most damaged logs that are reported one by one."""

_State = tuple[tuple[str, int, int], ...]
"""Names, inodes and sizes of the files that may change: the last one of the units, and the first one of the log."""


class Tier:
    """The queues of one tier at one moment: found by topic and queue id, opened when they are asked for.

    Safe to use from several threads.
    """

    def __init__(self, layout: TierLayout, previous: "Tier | None" = None) -> None:
        """List the topics; logs of ``previous`` are taken over as far as their files are the same."""
        self.layout = layout
        before = _modified_ns(layout.broker)  # a topic that comes after the next line has to be seen as a change
        self.topics = layout.topics()
        # Read once: a broker writes it with every commit, before the next look at the files.
        self._named_problems: list[str] = metadata_problems(layout) if previous is None else previous._named_problems
        self._log_problems: dict[str, str] = {} if previous is None else previous._log_problems
        self.holes: QueueHoles = QueueHoles() if previous is None else previous.holes
        self._open_files: OpenFiles = OpenFiles() if previous is None else previous._open_files
        self._open_files.forget_changed()
        self._logs: RecentlyUsed[CommitLog] = RecentlyUsed(TIER_QUEUES)
        self._queues: RecentlyUsed[ConsumeQueue] = RecentlyUsed(TIER_QUEUES)
        self._states: dict[tuple[str, int], _State] = {}
        self._listed = (before, *self._listing()[1:])
        for key, log in () if previous is None else previous._logs.remembered():
            self._logs.put(key, log)

    def has_changed(self) -> bool:
        """Whether topics came, or a queue that was opened has other files by now. Waits for the disk."""
        if self._listing() != self._listed:
            return True
        known = [key for key, _ in self._queues.remembered() if not isinstance(key, str)]
        return any(self._states.get(key) != self._state_of(*key) for key in known)

    def queue_ids(self, topic: str) -> frozenset[int]:
        """The ids of a topic's queues; none for a topic that the tier lacks. Raises StoreError if not to be listed."""
        if topic not in self.topics:
            return frozenset()
        return self.layout.queue_ids(topic)

    def log_bytes(self, topic: str, queue_id: int) -> int:
        """Bytes of the files of a queue's log."""
        files = _files(self.layout.queue_directory(topic, queue_id) / TIER_LOG)
        return sum(max(_stated(path)[2], 0) for _, path in files)

    def queue_lookup(self, topic: str, queue_id: int) -> Lookup[ConsumeQueue | None]:
        """One queue, whose begin and end are found; None where the tier lacks it."""
        key = topic, queue_id
        known = self._queues.find(key)
        if known is not None:
            return known
        if topic not in self.topics or not self.layout.queue_directory(topic, queue_id).is_dir():
            return None
        yield Wait(f"the tier's files of {topic} {queue_id}")
        state = self._state_of(topic, queue_id)
        queue = self._open(topic, queue_id)
        if queue is None:
            return None
        opened = yield from queue.measured()
        self._states[key] = state
        return self._queues.get(key, lambda: opened)

    def _open(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Open a queue; None for one into which nothing was written yet. Raises StoreError where a half is missing."""
        directory = self.layout.queue_directory(topic, queue_id)
        log = open_tier_log(directory, self._logs.find((topic, queue_id)))
        name = QueueName(topic, queue_id)
        queue = ConsumeQueue(name, directory / TIER_QUEUE, None, log, self._open_files, None, self.holes)
        if not queue.files.files and not log.end:
            return None
        if not log.end:
            raise StoreError(directory / TIER_LOG, what="has no record, though the queue has units; restore its files")
        if not queue.files.files:
            raise StoreError(directory / TIER_QUEUE, what="has no unit, though the log has records; restore its files")
        self._logs.put((topic, queue_id), log)
        self._note(directory, log)
        return queue

    def _note(self, directory: Path, log: CommitLog) -> None:
        """Remember what is missing or damaged in the log of a queue."""
        self._log_problems.pop(str(directory), None)
        found = [f"{directory / TIER_LOG}: {problem}; the rest is served" for problem in log.problems]
        if found:
            more = "" if len(found) == 1 else f" ({len(found)} such places)"
            self._log_problems[str(directory)] = f"{found[0]}{more}"

    @property
    def problems(self) -> list[str]:
        """Sentences about files that are missing or cut, as far as they were looked for."""
        found = list(self._log_problems.values())
        more = [f"{len(found) - MOST_NAMED} more logs of the tier are damaged"] if len(found) > MOST_NAMED else []
        return [*self._named_problems, *found[:MOST_NAMED], *more]

    def _listing(self) -> tuple[int, ...]:
        """Times that change when topics or queues come or go (ns)."""
        broker = self.layout.broker
        return tuple(map(_modified_ns, (broker, *(broker / name for name in sorted(self.topics)))))

    def _state_of(self, topic: str, queue_id: int) -> _State:
        directory = self.layout.queue_directory(topic, queue_id)
        return (*_last_file(directory / TIER_QUEUE), *_first_file(directory / TIER_LOG))


def open_tier_log(directory: Path, previous: CommitLog | None = None) -> CommitLog:
    """The log in the directory of a queue, whose end is looked for from the record of the last unit on.

    It has no segment if there is no file of it. Raises StoreError as :meth:`CommitLog.open` does.
    """
    return CommitLog.open([directory / TIER_LOG], previous, _known_ends(directory))


def _known_ends(directory: Path) -> dict[FileIdentity, int]:
    """Where the record of the last unit starts, for the segment that holds it, if it is the last one of the log."""
    try:
        units, segments = list_segment_files(directory / TIER_QUEUE)[0], list_segment_files(directory / TIER_LOG)[0]
        if not units or not segments:
            return {}
        size = os.stat(units[-1][1]).st_size
        unit = read_piece(units[-1][1], max(size - size % UNIT.size - UNIT.size, 0), UNIT.size)
        base, last = segments[-1]
        place = UNIT.unpack(unit)[0] if len(unit) == UNIT.size else 0
        return {FileIdentity.of(os.stat(last)): place} if place > base else {}
    except (OSError, StoreError):  # reported when the files are opened
        return {}


def _modified_ns(directory: Path) -> int:
    try:
        return os.stat(directory).st_mtime_ns
    except OSError:
        return -1


def _last_file(directory: Path) -> _State:
    return tuple(_stated(path) for _, path in _files(directory)[-1:])


def _first_file(directory: Path) -> _State:
    return tuple(_stated(path) for _, path in _files(directory)[:1])


def _files(directory: Path) -> list[tuple[int, Path]]:
    try:
        return list_segment_files(directory)[0]
    except StoreError:
        return []


def _stated(path: Path) -> tuple[str, int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return path.name, -1, -1
    return path.name, status.st_ino, status.st_size
