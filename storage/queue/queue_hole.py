"""What the log has for queue offsets whose units lead to no message, or that have none: units made of the log.

A hole is a run of queue offsets and the part of the log between the messages of the nearest sound units, which is
searched in one pass. Its result is a unit for each queue offset, as in a plain queue's file, so that pulls read it as
they read a file. It is valid as long as the files of the queue and of that part of the log are the same; new messages
do not change it.

Two kinds of holes begin or end with what the log has. A :class:`Tail` is what comes after a queue's last unit: if the
last file is lost, the file before it is full; if the only one is lost, the directory is empty; after a crash a file may
contain only zeros. A broker makes a file when it writes the first unit of it (store-format §5.1), so an undamaged queue
looks like this only by chance, or for a moment, and mostly there is nothing. A :class:`Beginning` is the first message
of a queue whose first units are damaged or lost.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Final

from protocol.errors import BeingSearched, QueueBeingSearched
from storage.arrays import np, npt
from storage.kernels.messages import ANY_OFFSET
from storage.kernels.store_view import PROBE_SHIFT, FileView
from storage.log.commit_log import CommitLog
from storage.queue._damaged_run import DamagedRun
from storage.queue._log_search import SoughtMessages, search_piece
from storage.queue.queue_record import batch_in
from storage.queue.unit_standing import JudgedUnits
from storage.queue.unit_struct import UNIT, Unit

MOST_AT_ONCE: Final = 1 << 20
"""Most queue offsets of one hole: 20 MiB of memory."""

NEXT: Final = 64
"""Places of a hole that are compared at first, to find the end of a run of equal ones; the number is doubled each time.
"""

HOLE_WEIGHT: Final = 1024
"""Bytes that a hole takes beside its units."""

COVERED: Final = -2
"""The place of a message in a batch that is not the first one, whose queue offset has the place of the record."""

FIRST_ROOM: Final = 64
"""Number of messages of a tail for which there is room at first; it grows with those that are found."""

UNKNOWN: Final = -1
"""A first queue offset that is not known; it is that of the first message in the log."""

Key = tuple[int, str, int]
"""Bytes of a unit, which are different for each kind of queue; topic; and queue id."""


def key_of(queue: JudgedUnits) -> Key:
    """Return what holes of a queue are found by."""
    return queue.unit_size, queue.name.topic, queue.name.queue_id


class QueueHole:
    """Queue offsets from ``first`` up to ``stop`` whose units lead to no message, and their messages in the log.

    Its results may be used only when ``is_done``. ``is_handed_on`` says that it is left to the background search,
    ``is_reported`` that its result was reported.
    """

    def __init__(self, queue: JudgedUnits, run: DamagedRun) -> None:
        """Prepare the search of a run's part of the log."""
        self.name = queue.name
        self.key = key_of(queue)
        self.files = queue.files
        self.first, self.stop, self.start, self.end, self.is_open = run
        self.has_batches = queue.has_batches
        self.wanted = SoughtMessages(queue.name, run.first, run.stop - run.first)
        self.position = run.start
        self.is_done = self.is_handed_on = self.is_reported = False
        self.lost = 0
        """The number of messages that this part of the log lacks; set when the search is done."""
        self._log: CommitLog | None = queue.log
        self._last_log = weakref.ref(queue.log)
        self._segments = self._segments_of(queue.log)

    @property
    def found(self) -> int:
        """The number of messages that were found."""
        return self.stop - self.first - self.lost

    @property
    def weight(self) -> int:
        """The part of :data:`REMEMBERED` that this hole takes."""
        return UNIT.size * (self.stop - self.first) + HOLE_WEIGHT

    @property
    def file(self) -> FileView:
        """The units from ``first`` up to ``stop``, as a file."""
        content = self.wanted.units.view(np.uint8).data
        return FileView(content, np.zeros((content.nbytes >> PROBE_SHIFT) + 1, np.int32).data, -1)

    def units_from(self, queue_offset: int) -> Iterator[Unit]:
        """Yield the units of messages that were found, from a queue offset on up to the first message that is lost."""
        number, places = self._record_number(queue_offset), self.wanted.places
        while number < places.size and places[number] >= 0:
            offset = self.first + number
            after = self.after(offset) if self.has_batches else offset + 1
            physical_offset, size, tags_code = UNIT.unpack_from(self.wanted.units.data, number * UNIT.size)
            yield offset, after, physical_offset, size, tags_code
            number = after - self.first

    def place(self, queue_offset: int) -> int | None:
        """Return the physical offset of the record with a queue offset, which may be within a batch; None if lost."""
        return self.wanted.place(self._record_number(queue_offset))

    def _record_number(self, queue_offset: int) -> int:
        """The number of the unit of the record with a queue offset: in a batch that of its first message."""
        number, places = queue_offset - self.first, self.wanted.places
        while number > 0 and places[number] == COVERED:
            number -= 1
        return number

    def units_between(self, start: int, stop: int) -> npt.NDArray[np.void]:
        """Return the units of the records that were found for queue offsets in [start, stop)."""
        units = self.wanted.units[self._record_number(start) : stop - self.first]
        return units[units["physical_offset"] >= 0]

    def after(self, queue_offset: int) -> int:
        """Return the queue offset after the record with `queue_offset`, or after the run of lost ones from there on."""
        number = queue_offset - self.first
        places = self.wanted.places
        skipped = -1 if places[number] == -1 else COVERED
        number += 1
        step = NEXT
        while number < places.size:
            others = np.flatnonzero(places[number : number + step] != skipped)
            if others.size:
                return self.first + number + int(others[0])
            number, step = number + step, 2 * step
        return self.stop

    def holds(self, queue: JudgedUnits) -> bool:
        """Whether the results are still valid for a queue as it is now."""
        files, log = queue.files, queue.log
        if files is not self.files and self.files.files and not files.continues(self.files):
            return False
        # Segments that expired meanwhile do not make the results invalid.
        kept = [each for each in self._segments if each[0] >= log.minimum]
        if self._last_log() is not log and self._segments_of(log) != kept:
            return False
        self.files, self._last_log = files, weakref.ref(log)
        return True

    def refuse(self) -> None:
        """Raise BeingSearched if the search is not done."""
        if not self.is_done:
            raise BeingSearched(self.sentence())

    def extend(self, log: CommitLog, end: int) -> None:
        """Continue the search in the new part of the log, for a hole without a sound unit after it."""
        if self.is_done and end > self.end:
            self.is_done, self.is_handed_on = False, False
            self.position, self.end, self._log = self.end, end, log
            self._segments = self._segments_of(log)
            self._make_room()

    def go_on(self, position: int) -> None:
        """Note that the log has been searched up to a physical offset, and finish the search if it is done."""
        self.position = position
        if self.wanted.is_found and self._goes_on():
            return
        if position >= self.end or self.wanted.is_found:
            self._finish()

    def _goes_on(self) -> bool:
        """Search for more messages after all were found, if there may be more; return whether to go on."""
        return False

    def _make_room(self) -> None:
        """Make room for messages in a new part of the log."""

    def log(self) -> CommitLog:
        """The log that is searched."""
        assert self._log is not None
        return self._log

    def sentence(self) -> str:
        """One sentence for people: which messages are looked for, and how far the search has come or what it found."""
        where = f"queue offsets {self.first} to {self.stop - 1} of {self.name.topic}, queue {self.name.queue_id}"
        if self.is_done:
            return (
                f"{where} have damaged units, or none: the log was searched from physical offset {self.start} to "
                f"{self.end}, {self.found} of these messages were found and {self.lost} are lost"
            )
        return self._progress(f"{where} have damaged units, or none", "for these messages")

    def _progress(self, why: str, what: str) -> str:
        done = 100 * (self.position - self.start) // max(self.end - self.start, 1)
        return (
            f"{why}: the log is being searched {what} from physical offset {self.start} to {self.end}, {done}% of "
            "which is done; ask again in a moment"
        )

    def _segments_of(self, log: CommitLog) -> list[tuple[int, tuple[int, ...]]]:
        """Return base offset and identity of each segment that is searched, of growing ones without size and time."""
        known = 2 if self.is_open else None
        return [
            (each.base_offset, each.file.identity[:known])
            for each in log.segments
            if each.base_offset + each.file.size > self.start and each.base_offset < self.end
        ]

    def _finish(self) -> None:
        if self.has_batches:
            self._cover()
        self.lost = int(np.count_nonzero(self.wanted.places == -1))
        self._log = None  # otherwise its maps would be kept as long as this object
        self.is_done = True

    def _cover(self) -> None:
        places = self.wanted.places
        for number in np.flatnonzero(places >= 0).tolist():
            record = self.log().record_at(int(places[number]))
            count = 1 if record is None else batch_in(record, self.first + number)[1]
            inner = places[number + 1 : number + count]
            inner[inner == -1] = COVERED


class Beginning(QueueHole):
    """The first message of a queue in a part of the log, as a hole of that one message."""

    def __init__(self, queue: JudgedUnits, start: int, end: int) -> None:
        """Prepare the search of the log from ``start`` to ``end``."""
        super().__init__(queue, DamagedRun(ANY_OFFSET, ANY_OFFSET + 1, start, end, True))
        self.is_reported = True

    def sentence(self) -> str:
        """One sentence for people: that the beginning of the queue is searched for, and how far the search has come."""
        return self._progress("the queue's first units are damaged or lost", "for where it begins,")

    def refuse(self) -> None:
        """Raise QueueBeingSearched if the search is not done."""
        if not self.is_done:
            raise QueueBeingSearched(f"{self.name.topic}/{self.name.queue_id}", what=self.sentence())


class Tail(Beginning):
    """The messages of a queue from queue offset ``first`` on, in the log from physical offset ``start`` on."""

    def __init__(self, queue: JudgedUnits, first: int, start: int) -> None:
        """Prepare the search; ``first`` is UNKNOWN for a queue without units."""
        super().__init__(queue, start, queue.log.end)
        self.is_reported = False
        self.asked_first = first
        self._is_begun = first != UNKNOWN  # whether the first queue offset is known
        self.first = self.stop = max(first, 0)
        self.wanted = SoughtMessages(queue.name, first, FIRST_ROOM, grows=True)
        self._first_place: int | None = None  # of the first message, where only the number of messages is kept

    @property
    def weight(self) -> int:
        """Bytes that its messages take, as far as they are found."""
        return self.wanted.units.nbytes

    def shed(self) -> int:
        """Keep the number of its messages alone; return the bytes that they took."""
        weight = self.weight
        if weight and self._first_place is None:
            self._first_place = int(self.wanted.places[0])
            self.wanted = SoughtMessages(self.name, self.first, 0)
        return weight - self.weight

    def has_units(self, queue_offset: int) -> bool:
        """Whether it has a unit, or the knowledge that there is none, for a queue offset."""
        return self.first <= queue_offset < self.stop and self._first_place is None

    def holds(self, queue: JudgedUnits) -> bool:
        """Whether the results are still valid for a queue as it is now, whose log may have grown."""
        if self._first_place is not None and (self.end != queue.log.end or self._first_place < queue.log.minimum):
            return False
        return queue.files.files[-1:] == self.files.files[-1:] and super().holds(queue)

    def stop_in(self, log: CommitLog) -> int:
        """Return the queue offset after the last of its messages that `log` has."""
        if log.end >= self.end:
            return self.stop
        beyond = np.flatnonzero(self.wanted.places >= log.end)
        return self.first + int(beyond[0]) if beyond.size else self.stop

    def first_in(self, log: CommitLog) -> int:
        """Return the queue offset of the first of its messages that is not expired, else ``stop``."""
        places = self.wanted.places
        if self.stop == self.first or self._first_place is not None or places[0] >= log.minimum:
            return self.first
        live = np.flatnonzero(places >= log.minimum)
        return self.first + int(live[0]) if live.size else self.stop

    def sentence(self) -> str:
        """One sentence for people: how far the search after the last sound unit has come, or what it found."""
        if self.is_done:
            return QueueHole.sentence(self)
        where = f"the last file of {self.name.topic}, queue {self.name.queue_id}"
        return self._progress(f"{where}, is full or lost, or its last units are damaged", "for later messages")

    def go_on(self, position: int) -> None:
        """Note that the log has been searched up to a physical offset, and make room for more messages."""
        if not self._is_begun and self.wanted.search.first != UNKNOWN:
            self._is_begun, self.first, self.stop = True, self.wanted.search.first, self.wanted.search.first
        if self.wanted.is_full:
            self._widen(2 * self.wanted.places.size)
        super().go_on(position)

    def _goes_on(self) -> bool:
        """Search again with more room after later messages were met, unless they have wrong queue offsets."""
        places = self.wanted.places
        if places.size >= MOST_AT_ONCE:
            return False
        self._widen(2 * places.size)
        self.position = max(int(places.max()), self.start)
        return True

    def _make_room(self) -> None:
        if self._is_begun:
            self._widen(self.stop - self.first + FIRST_ROOM)

    def _widen(self, count: int) -> None:
        self.wanted = SoughtMessages(self.name, self.first, count, self.wanted.units, grows=True)

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


def search_together(holes: list[QueueHole], stop: int) -> None:
    """Continue the search for all holes from the first one's position, in one segment and up to ``stop`` at most.

    The others have come as far as the first one, or further.
    """
    for hole in holes:
        hole.wanted.search.limit(hole.position, hole.end)
    position = search_piece(holes[0].log(), [hole.wanted for hole in holes], holes[0].position, stop)
    for hole in holes:
        hole.go_on(max(position, hole.position))
