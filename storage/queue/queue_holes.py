"""Holes: runs of queue offsets whose units lead to no message, and the units of their messages, made of the log.

A page of zeros destroys 205 units, and a lost file all of its units, but the messages are still in the log. The part of
the log between the nearest sound units is searched in one pass for all messages of the run. A short pass is made at
once by the thread that needs it. A long one is left to a background search, if there is one: a server makes it in
pieces, between other look-ups, and :class:`BeingSearched` is raised until it ends. Otherwise the thread waits for it.

A result is valid as long as the files of the queue and of that part of the log are the same; new messages do not change
it. It is a unit for each queue offset, as in a plain queue's file, so that pulls read it as they read a file. A run of
more than :data:`MOST_AT_ONCE` queue offsets is searched and kept in several pieces, each of which starts where the one
before ended.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

from protocol.errors import BeingSearched, QueueBeingSearched
from storage.arrays import np, npt
from storage.files.mapped_file import FileIdentity
from storage.files.waiting import Lookup, Wait
from storage.kernels.messages import ANY_OFFSET
from storage.kernels.store_view import PROBE_SHIFT, FileView
from storage.log.commit_log import CommitLog
from storage.queue.queue_files import QueueFiles
from storage.queue.queue_record import QueueName, batch_in
from storage.queue.queue_repair import DamagedRun, SoughtMessages, search_piece
from storage.queue.unit_struct import UNIT, Unit

MOST_AT_ONCE: Final = 1 << 20
"""Most queue offsets of one hole: 20 MiB of memory."""

REMEMBERED: Final = 64 * 1024 * 1024
"""Most bytes of all holes that are kept; the least recently used ones are dropped."""

SEARCHED_AT_ONCE: Final = 64 * 1024 * 1024
"""Bytes of log that a thread searches before it leaves a pass to the background search: some 30 ms."""

PIECE: Final = 16 * 1024 * 1024
"""Bytes of log that one step of the background search reads."""

NEAR: Final = 64 * PIECE
"""Bytes by which a pass may be ahead of another one and still wait for it, so that both continue together."""

MOST_TAILS: Final = 8192
"""Most queues for which the messages after their last unit are kept; mostly there are none."""

NEXT: Final = 64
"""Places of a hole that are compared at first, to find the end of a run of equal ones; the number is doubled each time.
"""

TOGETHER: Final = 64
"""Most holes that are searched for in one pass, since each of them costs time for every record."""

HOLE_WEIGHT: Final = 1024
"""Bytes that a hole takes beside its units."""

COVERED: Final = -2
"""The place of a message in a batch that is not the first one, whose queue offset has the place of the record."""

Key = tuple[int, str, int]
"""Bytes of a unit, which are different for each kind of queue; topic; and queue id."""


class HoledQueue(Protocol):
    """A queue, as far as the search of its holes uses it."""

    @property
    def name(self) -> QueueName:
        """Topic and queue id as records spell them."""
        ...

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""
        ...

    @property
    def log(self) -> CommitLog:
        """The log that its units point into."""
        ...

    @property
    def files(self) -> QueueFiles:
        """Its files, as they were listed."""
        ...

    @property
    def has_batches(self) -> bool:
        """Whether a record of the queue may contain several messages."""
        ...

    def around(self, queue_offset: int) -> DamagedRun:
        """Return the run of units that lead to no message around one of them; waits for the disk."""
        ...


class QueueHole:
    """Queue offsets from ``first`` up to ``stop`` whose units lead to no message, and their messages in the log.

    Its results may be used only when ``is_done``. ``is_handed_on`` says that the background search has taken it over,
    ``is_reported`` that its result was reported.
    """

    def __init__(self, queue: HoledQueue, place: DamagedRun, start: int) -> None:
        """Prepare the search of the log from ``start`` to the end of ``place``."""
        self.name = queue.name
        self.key: Key = (queue.unit_size, queue.name.topic, queue.name.queue_id)
        self.files = queue.files
        self.first, self.stop, self.start, self.end = place.first, place.stop, start, place.end
        self.is_open = place.is_open
        self.has_batches = queue.has_batches
        self.wanted = SoughtMessages(queue.name, place.first, place.stop - place.first)
        self.position = start
        self.is_done = self.is_handed_on = self.is_reported = False
        self.lost = 0
        """The number of messages that this part of the log lacks; set when the search is done."""
        self.lock = threading.Lock()
        self._log: CommitLog | None = queue.log
        self._last_log = weakref.ref(queue.log)
        self._segments = _segments(queue.log, start, place.end)

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

    def places(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the physical offsets of the records that were found for queue offsets in [start, stop)."""
        found = self.wanted.places[start - self.first : stop - self.first]
        begun = self.place(start)  # the record of a batch that begins before `start`
        return np.unique(np.append(found[found >= 0], [] if begun is None else [begun]).astype(np.int64))

    def offsets(self, start: int, stop: int) -> list[int]:
        """Return the queue offsets in [start, stop) for which a record was found."""
        is_found = self.wanted.places[start - self.first : stop - self.first] >= 0
        return [start + int(number) for number in np.flatnonzero(is_found)]

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

    def holds(self, queue: HoledQueue) -> bool:
        """Whether the results are still valid for a queue as it is now."""
        if queue.files is not self.files:
            if not queue.files.continues(self.files):
                return False
            self.files = queue.files
        log = queue.log
        if self._last_log() is not log:
            # Segments that expired meanwhile do not make the results invalid.
            kept = [each for each in self._segments if each[0] >= log.minimum]
            if _segments(log, max(self.start, log.minimum), self.end) != kept:
                return False
            self._last_log = weakref.ref(log)
        return True

    def extend(self, log: CommitLog, end: int) -> None:
        """Continue the search in the new part of the log, for a hole without a sound unit after it."""
        with self.lock:
            if self.is_done and end > self.end:
                self.is_done, self.is_handed_on = False, False
                self.end, self._log = end, log
                self._segments = _segments(log, self.start, self.end)

    def search(self, most: int, *, hands_on: bool) -> bool:
        """Search `most` bytes, unless the background search has taken over; return whether it is to take over now."""
        with self.lock:
            stop = self.position + most
            while not self.is_done and not self.is_handed_on and self.position < stop:
                go_on([self], stop)
            if self.is_done or self.is_handed_on or not hands_on:
                return False
            self.is_handed_on = True
            return True

    def go_on(self, position: int) -> None:
        """Note that the log has been searched up to a physical offset, and finish the search if it is done."""
        self.position = position
        if position >= self.end or self.wanted.is_found:
            self._finish()

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
        done = 100 * (self.position - self.start) // max(self.end - self.start, 1)
        return (
            f"{where} have damaged units, or none: the log is being searched for these messages from physical offset "
            f"{self.start} to {self.end}, {done}% of which is done; ask again in a moment"
        )

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


class FirstMessage(QueueHole):
    """The search for the first message of a queue in a part of the log, as a hole of that one message."""

    def __init__(self, queue: HoledQueue, start: int, end: int) -> None:
        """Prepare the search of the log from ``start`` to ``end``."""
        super().__init__(queue, DamagedRun(0, 1, start, end, True), start)
        self.key = _key_of_first(queue)
        self.wanted = SoughtMessages(queue.name, ANY_OFFSET, 1)
        self.has_batches, self.is_reported = False, True

    def sentence(self) -> str:
        """One sentence for people: that the beginning of the queue is searched for, and how far the search has come."""
        done = 100 * (self.position - self.start) // max(self.end - self.start, 1)
        return (
            f"the queue's first units are damaged or lost: the log is being searched for where it begins, from "
            f"physical offset {self.start} to {self.end}, {done}% of which is done; ask again in a moment"
        )


class Tail(QueueHole, ABC):
    """The messages of a queue after its last unit that the log has (:mod:`storage.queue.queue_tail`)."""

    @abstractmethod
    def is_of(self, queue: HoledQueue, first: int) -> bool:
        """Whether it is valid for a queue as it is now; ``first`` is the queue offset at which its files end."""

    @abstractmethod
    def first_in(self, log: CommitLog) -> int:
        """Return the queue offset of the first of its messages that is not expired, else ``stop``."""

    @abstractmethod
    def stop_in(self, log: CommitLog) -> int:
        """Return the queue offset after the last of its messages that are in `log`, which may end before `end`."""


AnyHole = TypeVar("AnyHole", bound=QueueHole)


class QueueHoles:
    """The holes of all queues of a store. Safe to use from several threads."""

    def __init__(self) -> None:
        self._hand_on: Callable[[], None] | None = None
        self._report: Callable[[QueueHole], None] | None = None
        self._lock = threading.Lock()
        self._holes: OrderedDict[tuple[Key, int], QueueHole] = OrderedDict()
        self._firsts: dict[Key, list[int]] = {}
        self._tails: OrderedDict[Key, Tail] = OrderedDict()
        self._waiting: deque[QueueHole] = deque()
        self._weight = 0

    def connect(
        self, *, hand_on: Callable[[], None] | None = None, report: Callable[[QueueHole], None] | None = None
    ) -> None:
        """Set the functions for the background search and its results; without ``hand_on`` look-ups make all searches.

        ``hand_on`` is called, on any thread, when :meth:`step` has work to do. ``report`` is called with each hole
        whose search has ended, on the thread that ended it.
        """
        self._hand_on, self._report = hand_on, report

    @property
    def searching(self) -> int:
        """The number of background searches that are not done."""
        return len(self._waiting)

    def forget(self) -> None:
        """Drop all results, because the log was written anew."""
        with self._lock:
            self._holes.clear()
            self._firsts.clear()
            self._tails.clear()
            self._waiting.clear()
            self._weight = 0

    def known(self, queue: HoledQueue, queue_offset: int) -> QueueHole | None:
        """Return the hole with a queue offset if it was searched before and its message was found, else None."""
        hole = self._known(queue, queue_offset) if self._firsts or self._tails else None
        return hole if hole is not None and hole.is_done and hole.place(queue_offset) is not None else None

    def find(self, queue: HoledQueue, queue_offset: int) -> Lookup[QueueHole]:
        """Return the hole around a queue offset whose unit leads to no message, searched to its end.

        Waits if the hole is new. Raises BeingSearched while the background search is at work on it.
        """
        hole = self._known(queue, queue_offset)
        if hole is not None and hole.is_done and hole.is_open and hole.place(queue_offset) is None:
            self._extend(hole, queue.log, queue.log.end)
        hole = yield from self._begun(queue, hole, lambda: self._add(queue, queue_offset))
        if not hole.is_done:
            raise BeingSearched(hole.sentence())
        return hole

    def find_tail(self, queue: HoledQueue, first: int, make: Callable[[], Tail]) -> Lookup[Tail]:
        """Return the messages in the log from queue offset ``first`` on, for a queue whose files end there.

        ``make`` makes the search if there is none yet. Raises QueueBeingSearched during a background search.
        """
        key: Key = (queue.unit_size, queue.name.topic, queue.name.queue_id)
        with self._lock:
            tail = self._tails.get(key)
            if tail is not None and not tail.is_of(queue, first):
                self._drop_tail(key)
                tail = None
            if tail is not None:
                self._tails.move_to_end(key)
        if tail is not None and tail.is_done and queue.log.end > tail.end:
            yield Wait(f"messages that came behind the last unit of {queue.name.topic} {queue.name.queue_id}")
            self._extend(tail, queue.log, queue.log.end)
        tail = yield from self._begun(queue, tail, lambda: self._remember_tail(key, make()))
        if not tail.is_done:
            raise QueueBeingSearched(f"{queue.name.topic}/{queue.name.queue_id}", what=tail.sentence())
        return tail

    def first_message(self, queue: HoledQueue, start: int, stop: int) -> Lookup[int | None]:
        """Return the physical offset of a queue's first message in [start, stop) of the log, None if there is none.

        Waits if it is not known. Raises QueueBeingSearched while the background search is at work on it.
        """
        place = _key_of_first(queue), 0
        with self._lock:
            hole = self._holes.get(place)
            if hole is not None and not (hole.start <= start and hole.holds(queue)):
                self._drop(hole)
                hole = None
            found = None if hole is None or not hole.is_done else hole.place(0)
            if hole is not None and found is not None and found < start:  # this message expired meanwhile
                self._drop(hole)
                hole = None
        if hole is not None and hole.is_done and hole.place(0) is None:
            self._extend(hole, queue.log, stop)
        hole = yield from self._begun(queue, hole, lambda: self._remember(FirstMessage(queue, start, stop), 0))
        if not hole.is_done:
            raise QueueBeingSearched(f"{queue.name.topic}/{queue.name.queue_id}", what=hole.sentence())
        found = hole.place(0)
        return found if found is not None and found < stop else None

    def step(self) -> None:
        """Search one piece of the log for all background searches that need it."""
        with self._lock:
            together = self._together()
        if not together:
            return
        go_on(together, together[0].position + PIECE)
        done = [hole for hole in together if hole.is_done]
        with self._lock:
            for hole in done:
                if hole in self._waiting:  # otherwise it was dropped meanwhile
                    self._waiting.remove(hole)
        self._report_all(done)

    def _extend(self, hole: QueueHole, log: CommitLog, end: int) -> None:
        """Continue a search in the new part of the log, unless a step of it is not over yet."""
        with self._lock:
            is_waiting = hole in self._waiting
        if not is_waiting:
            hole.extend(log, end)

    def _begun(self, queue: HoledQueue, hole: AnyHole | None, make: Callable[[], AnyHole]) -> Lookup[AnyHole]:
        """Return a hole whose search is done or made in the background; ``make`` makes the hole if it is None."""
        if hole is None or not (hole.is_done or hole.is_handed_on):
            yield Wait(f"messages of {queue.name.topic} {queue.name.queue_id} are to be found in the log")
            hole = make() if hole is None else hole
            self._search(hole)
        return hole

    def _search(self, hole: QueueHole) -> None:
        """Search as much as one look-up may; the background search, if there is one, does the rest."""
        hand_on = self._hand_on
        everything = max(hole.end, 1)  # in an empty log, too, one step has to find that it is at the end
        if hole.search(everything if hand_on is None else SEARCHED_AT_ONCE, hands_on=hand_on is not None):
            with self._lock:
                self._waiting.append(hole)
            if hand_on is not None:
                hand_on()
        if hole.is_done:
            self._report_all([hole])

    def _report_all(self, done: list[QueueHole]) -> None:
        for hole in done:
            with hole.lock:
                is_reported, hole.is_reported = hole.is_reported, hole.stop > hole.first
            if not is_reported and hole.is_reported and self._report is not None:
                self._report(hole)
        with self._lock:
            self._forget_oldest()

    def _add(self, queue: HoledQueue, queue_offset: int) -> QueueHole:
        """Add a new hole, and return it; if another thread has added it meanwhile, return that one."""
        place = queue.around(queue_offset)
        first = queue_offset - max(queue_offset - place.first, 0) % MOST_AT_ONCE
        place = place._replace(first=first, stop=min(max(place.stop, queue_offset + 1), first + MOST_AT_ONCE))
        before = self._known(queue, first - 1)
        start = place.start if before is None else max(place.start, int(before.wanted.places.max()))
        hole = QueueHole(queue, place, start)
        known = self._known(queue, queue_offset)
        if known is not None:
            return known
        return self._remember(hole, queue_offset)

    def _remember(self, hole: QueueHole, queue_offset: int) -> QueueHole:
        """Keep a hole of a queue offset, unless another thread has done so; return the hole that is kept."""
        place = hole.key, hole.first
        with self._lock:
            known = self._holes.get(place)
            if known is not None and known.stop <= queue_offset:  # units after it were sound then, and are not now
                self._drop(known)
            known = self._holes.setdefault(place, hole)
            if known is hole:
                firsts = self._firsts.setdefault(hole.key, [])
                firsts.insert(bisect_right(firsts, hole.first), hole.first)
                self._weight += hole.weight
                self._forget_oldest()
        return known

    def _known(self, queue: HoledQueue, queue_offset: int) -> QueueHole | None:
        key: Key = (queue.unit_size, queue.name.topic, queue.name.queue_id)
        with self._lock:
            firsts = self._firsts.get(key)
            number = 0 if firsts is None else bisect_right(firsts, queue_offset)
            hole = self._holes[key, firsts[number - 1]] if firsts is not None and number else None
            if hole is None or queue_offset >= hole.stop:
                tail = self._tails.get(key)
                is_in_it = tail is not None and tail.first <= queue_offset < tail.stop and tail.holds(queue)
                return tail if is_in_it else None
            if hole.holds(queue):
                self._holes.move_to_end((key, hole.first))
                return hole
            self._drop(hole)
            return None

    def _drop(self, hole: QueueHole) -> None:
        del self._holes[hole.key, hole.first]
        firsts = self._firsts[hole.key]
        firsts.remove(hole.first)
        self._weight -= hole.weight
        if not firsts:
            del self._firsts[hole.key]
        if hole in self._waiting:
            self._waiting.remove(hole)

    def _remember_tail(self, key: Key, tail: Tail) -> Tail:
        """Keep the messages after a queue's last unit, unless another thread has done so; return those kept."""
        with self._lock:
            return self._tails.setdefault(key, tail)

    def _drop_tail(self, key: Key) -> None:
        tail = self._tails.pop(key)
        if tail in self._waiting:
            self._waiting.remove(tail)

    def _forget_oldest(self) -> None:
        """Drop the oldest holes until the rest is within the limits; those whose search is not done are kept."""
        if len(self._tails) > MOST_TAILS:
            for key in [key for key, tail in self._tails.items() if tail.is_done][: len(self._tails) - MOST_TAILS]:
                self._drop_tail(key)
        if self._weight > REMEMBERED:
            for hole in [hole for hole in self._holes.values() if hole.is_done]:
                self._drop(hole)
                if self._weight <= REMEMBERED:
                    break

    def _together(self) -> list[QueueHole]:
        """Return the holes that are searched for next, all in the same piece of the log; pieces take turns."""
        if not self._waiting:
            return []
        self._waiting.rotate(-1)
        lead = self._waiting[-1]
        low = min(hole.position for hole in self._waiting if lead.position - NEAR <= hole.position <= lead.position)
        behind = next(hole for hole in self._waiting if hole.position == low)
        return [behind, *(hole for hole in self._waiting if hole is not behind and _is_with(hole, behind))][:TOGETHER]


def _key_of_first(queue: HoledQueue) -> Key:
    """Return a key for `FirstMessage` that no hole has: the number of bytes in it is negative."""
    return -queue.unit_size, queue.name.topic, queue.name.queue_id


def go_on(holes: list[QueueHole], stop: int) -> None:
    """Continue the search for all holes from the first one's position, in one segment and up to ``stop`` at most."""
    position = holes[0].position
    stop = min(stop, *(hole.end for hole in holes))
    position = search_piece(holes[0].log(), [hole.wanted for hole in holes], position, stop)
    for hole in holes:
        hole.go_on(max(position, hole.position))


def _is_with(hole: QueueHole, lead: QueueHole) -> bool:
    """Whether a hole can be searched for together with another one: the next piece of both is in the same file.

    False if the piece starts before the hole's own part of the log: there may be other messages with its queue offsets,
    of a topic that was deleted and made anew.
    """
    if not lead.position <= hole.position < lead.position + PIECE or hole.end <= lead.position:
        return False
    if hole.start > lead.position:
        return False
    ours, theirs = hole.log().segment_of(hole.position), lead.log().segment_of(lead.position)
    return ours is not None and theirs is not None and ours.file is theirs.file


def _segments(log: CommitLog, start: int, end: int) -> list[tuple[int, FileIdentity]]:
    """Return base offset and identity of each segment of a part of the log."""
    return [
        (segment.base_offset, segment.file.identity)
        for segment in log.segments
        if segment.base_offset + segment.file.size > start and segment.base_offset < end
    ]
