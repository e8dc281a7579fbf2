"""Finds in the log the messages of a queue after its last file, or of a queue without units, up to the last of them.

A file that is lost between others leaves a gap. If the last file is lost, the file before it is full; if the only one
is lost, the directory is empty; after a crash a file may contain only zeros. A broker makes a file when it writes the
first unit of it (store-format §5.1), so an undamaged queue looks like this only by chance, or for a moment. In these
cases the log is searched for later messages. Mostly there are none, which is found out once. Otherwise they are a hole
(:mod:`.queue_holes`) that ends with the last of them.
"""

from __future__ import annotations

from typing import Final

from storage.arrays import np
from storage.files.waiting import Lookup
from storage.kernels.messages import ANY_OFFSET
from storage.log.commit_log import CommitLog
from storage.queue.queue_holes import MOST_AT_ONCE, HoledQueue, QueueHoles, Tail
from storage.queue.queue_record import batch_in
from storage.queue.queue_repair import DamagedRun, SoughtMessages

FIRST_ROOM: Final = 512
"""Number of messages that are searched at first, 10 KiB of memory; it grows with those that are found."""

UNKNOWN: Final = -1
"""A first queue offset that is not known; it is that of the first message in the log."""

SegmentIdentity = tuple[int, int, int]


class QueueTail(Tail):
    """The messages of a queue from queue offset ``first`` on, in the log from physical offset ``start`` on."""

    def __init__(self, queue: HoledQueue, first: int, start: int) -> None:
        """Prepare the search; ``first`` is UNKNOWN for a queue without units."""
        super().__init__(queue, DamagedRun(max(first, 0), max(first, 0), start, queue.log.end, False), start)
        self._asked_first = first
        self._is_begun = first != UNKNOWN  # whether the first queue offset is known
        self._identities = _identities(queue.log, self.end)
        self.wanted = (
            SoughtMessages(queue.name, ANY_OFFSET, 1)
            if first == UNKNOWN
            else SoughtMessages(queue.name, first, FIRST_ROOM)
        )

    def is_of(self, queue: HoledQueue, first: int) -> bool:
        """Whether it is valid for a queue as it is now, whose log may have grown."""
        files, known = queue.files, self.files
        if first != self._asked_first or files.files[-1:] != known.files[-1:]:
            return False
        if files is not known:
            if known.files and not files.continues(known):
                return False
            self.files = files
        # Segments that expired meanwhile do not make the results invalid.
        kept = [each for each in self._identities if each[0] >= queue.log.minimum]
        return self._last_log() is queue.log or _identities(queue.log, self.end) == kept

    def holds(self, queue: HoledQueue) -> bool:
        """Whether the results are still valid for a queue as it is now."""
        return self.is_of(queue, self._asked_first)

    def extend(self, log: CommitLog, end: int) -> None:
        """Continue the search in the new part of the log, up to its new end."""
        with self.lock:
            if self.is_done and end > self.end:
                self.is_done, self.is_handed_on = False, False
                self.position, self.end, self._log = self.end, end, log
                self._identities = _identities(log, end)
                if self._is_begun:
                    self._widen(self.stop - self.first + FIRST_ROOM)

    def stop_in(self, log: CommitLog) -> int:
        """Return the queue offset after the last of its messages that `log` has."""
        if log.end >= self.end:
            return self.stop
        beyond = np.flatnonzero(self.wanted.places >= log.end)
        return self.first + int(beyond[0]) if beyond.size else self.stop

    def first_in(self, log: CommitLog) -> int:
        """Return the queue offset of the first of its messages that is not expired, else ``stop``."""
        places = self.wanted.places
        if self.stop == self.first or places[0] >= log.minimum:
            return self.first
        live = np.flatnonzero(places >= log.minimum)
        return self.first + int(live[0]) if live.size else self.stop

    def go_on(self, position: int) -> None:
        """Note that the log has been searched up to a physical offset; finish the search if nothing is left."""
        self.position = position
        if self.wanted.is_found and self._goes_on():
            return
        if position >= self.end or self.wanted.is_found:
            self._finish()

    def sentence(self) -> str:
        """One sentence for people: how far the search after the last file has come, or what it found."""
        if self.is_done:
            return f"the last file of a queue is lost: {super().sentence()}"
        done = 100 * (self.position - self.start) // max(self.end - self.start, 1)
        return (
            f"the last file of {self.name.topic}, queue {self.name.queue_id}, is full or lost: the log is being "
            f"searched for later messages from physical offset {self.start} to {self.end}, {done}% of which is done; "
            "ask again in a moment"
        )

    def _goes_on(self) -> bool:
        """Search for more messages after all were found, or later ones were met; return whether to go on."""
        places = self.wanted.places
        last = int(places.max())
        if not self._is_begun:
            record = self.log().record_at(last)
            queue_offset = None if record is None else self.name.offset_in(record, last)
            if queue_offset is None:
                return False
            self._is_begun, self.first, self.stop = True, queue_offset, queue_offset
            self.wanted = SoughtMessages(self.name, queue_offset, FIRST_ROOM)
        elif places[-1] != -1 or places.size < MOST_AT_ONCE:
            self._widen(2 * places.size)
        else:
            return False  # the messages have wrong queue offsets
        self.position = max(last, self.start)
        return True

    def _widen(self, count: int) -> None:
        self.wanted = SoughtMessages(self.name, self.first, count, self.wanted.units)

    def _finish(self) -> None:
        places = self.wanted.places if self._is_begun else self.wanted.places[:0]
        found = np.flatnonzero(places >= 0)
        count = int(found[-1]) + 1 if found.size else 0
        if count and self.has_batches:
            record = self.log().record_at(int(places[count - 1]))
            count += 0 if record is None else batch_in(record, self.first + count - 1)[1] - 1
            self._widen(max(count, places.size))
        if self._is_begun:
            self.wanted.units = self.wanted.units[:count].copy()
        self.stop = self.first + count
        super()._finish()
        self.lost = int(np.count_nonzero(self.wanted.places == -1)) if count else 0


def tail_of(holes: QueueHoles, queue: HoledQueue, first: int, last_place: int) -> Lookup[tuple[int, int]]:
    """Return the range of queue offsets, from and to, that the log has after ``first``, where a queue's files end.

    Both are equal if it has none. ``last_place`` is the physical offset in the last unit; the log is searched from
    there, or from its beginning if that has left the log. Raises BeingSearched while the log is being searched.
    """
    log = queue.log
    start = last_place if log.minimum <= last_place < log.end else log.minimum
    tail = yield from holes.find_tail(queue, first, lambda: QueueTail(queue, first, start))
    return tail.first_in(log), tail.stop_in(log)


def _identities(log: CommitLog, end: int) -> list[SegmentIdentity]:
    """Return what identifies the segments before a physical offset, without the times of their last writes."""
    return [
        (segment.base_offset, segment.file.identity.device, segment.file.identity.inode)
        for segment in log.segments
        if segment.base_offset < end
    ]
