"""Runs of queue offsets whose units lead nowhere, and what the log has of their messages: searched once, remembered.

A page of zeros takes 205 units, a lost file takes all of its units, and the messages are still in the log. What lies
between the nearest units that hold is searched in one pass for all messages of the run. A short pass is made at once by
the thread that needs it. A long one is handed on where somebody takes it (a server does, in pieces, between other
look-ups); until it ends :class:`BeingSearched` is raised. Elsewhere whoever asks waits for its end.

An outcome holds as long as the files of the queue and of the part of the log are the same; messages that come to a
store change nothing of it. A run is remembered as one i64 for each queue offset; a run of more than
:data:`MOST_AT_ONCE` is searched and remembered in several pieces, each from where the one before ended.
"""

import threading
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from protocol.errors import BeingSearched, QueueBeingSearched
from storage.files.mapped_file import FileIdentity
from storage.files.waiting import Lookup, Wait
from storage.kernels.messages import ANY_OFFSET
from storage.log.commit_log import CommitLog
from storage.queue.queue_files import QueueFiles
from storage.queue.queue_record import QueueName, batch_in
from storage.queue.queue_repair import DamagedRun, SoughtMessages, search_piece

MOST_AT_ONCE: Final = 1 << 20
"""Queue offsets of one hole: 8 MiB of memory."""

REMEMBERED: Final = 8 * MOST_AT_ONCE
"""Queue offsets of all holes that are remembered, 64 MiB; those not used for longest are searched anew."""

SEARCHED_AT_ONCE: Final = 64 * 1024 * 1024
"""Bytes of log that are searched before a pass is handed on: some 30 ms."""

PIECE: Final = 16 * 1024 * 1024
"""Bytes of log that are searched at a time of a pass that was handed on."""

NEAR: Final = 64 * PIECE
"""How far ahead of another pass one may be to wait for it, so that both go on together."""

MOST_TAILS: Final = 8192
"""Ends of queues of which it is remembered what follows in the log; mostly nothing does."""

NEXT: Final = 64
"""Places of a hole that are looked at first for the next one of another kind; of a long run ever more."""

TOGETHER: Final = 64
"""Holes that are searched for in one pass at most: each costs a little of every record."""

HOLE_WEIGHT: Final = 128
"""What a hole counts for besides its queue offsets."""

COVERED: Final = -2
"""Stands for a message in a batch whose record is found under the first one's queue offset."""

Key = tuple[int, str, int]
"""Bytes of a unit (which tells the kind of queue), topic and queue id."""


class HoledQueue(Protocol):
    """A queue, as far as its holes are concerned."""

    name: QueueName

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""
        ...

    @property
    def log(self) -> CommitLog:
        """What its units point into."""
        ...

    @property
    def files(self) -> QueueFiles:
        """Its files, as they were listed."""
        ...

    @property
    def has_batches(self) -> bool:
        """Whether a record of it may hold several messages."""
        ...

    def around(self, queue_offset: int) -> DamagedRun:
        """The run of units that lead nowhere around one of them; waits for the disk."""
        ...


class QueueHole:
    """Queue offsets from ``first`` up to ``stop`` whose units lead nowhere, and where the log has their messages.

    Nothing of it may be asked before ``is_done``. ``is_handed_on`` while others go on with its search, and
    ``is_reported`` once it was.
    """

    def __init__(self, queue: HoledQueue, place: DamagedRun, start: int) -> None:
        """The search of [start, end of ``place``) in the log, of which nothing has been done."""
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
        """Messages that are nowhere in this part of the log, once the search is done."""
        self.lock = threading.Lock()
        self._log: CommitLog | None = queue.log
        self._last_log = weakref.ref(queue.log)
        self._segments = _segments(queue.log, start, place.end)

    @property
    def found(self) -> int:
        """Messages that were found."""
        return self.stop - self.first - self.lost

    @property
    def weight(self) -> int:
        """How much of :data:`REMEMBERED` this hole takes up."""
        return self.stop - self.first + HOLE_WEIGHT

    def place(self, queue_offset: int) -> int | None:
        """Physical offset of the record of a queue offset, also of a batch that began before; None where it is lost."""
        number = queue_offset - self.first
        places = self.wanted.places
        while number > 0 and places[number] == COVERED:
            number -= 1
        return self.wanted.place(number)

    def places(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Physical offsets of the records that are found of queue offsets in [start, stop)."""
        found = self.wanted.places[start - self.first : stop - self.first]
        begun = self.place(start)  # of a batch that began before
        return np.unique(np.append(found[found >= 0], [] if begun is None else [begun]).astype(np.int64))

    def after(self, queue_offset: int) -> int:
        """The queue offset behind the record of one, or behind all that are lost from there on."""
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
        """Whether all of it is still so in a queue as it is now."""
        if queue.files is not self.files:
            if not queue.files.continues(self.files):
                return False
            self.files = queue.files
        log = queue.log
        if self._last_log() is not log:
            # Segments that expired meanwhile speak against nothing.
            kept = [each for each in self._segments if each[0] >= log.minimum]
            if _segments(log, max(self.start, log.minimum), self.end) != kept:
                return False
            self._last_log = weakref.ref(log)
        return True

    def extend(self, log: CommitLog, end: int) -> None:
        """Have the search go on in what has come to the log, where no unit behind the hole says that it is over."""
        with self.lock:
            if self.is_done and end > self.end:
                self.is_done, self.is_handed_on = False, False
                self.end, self._log = end, log
                self._segments = _segments(log, self.start, self.end)

    def search(self, most: int, *, hands_on: bool) -> bool:
        """Search so many bytes, unless others have been given the rest; whether they are given it now."""
        with self.lock:
            stop = self.position + most
            while not self.is_done and not self.is_handed_on and self.position < stop:
                go_on([self], stop)
            if self.is_done or self.is_handed_on or not hands_on:
                return False
            self.is_handed_on = True
            return True

    def go_on(self, position: int) -> None:
        """Take over that everything before a physical offset has been searched."""
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
        self._log = None  # its maps need not live as long as this
        self.is_done = True

    def _cover(self) -> None:
        places = self.wanted.places
        for number in np.flatnonzero(places >= 0).tolist():
            record = self.log().record_at(int(places[number]))
            count = 1 if record is None else batch_in(record, self.first + number)[1]
            inner = places[number + 1 : number + count]
            inner[inner == -1] = COVERED


class FirstMessage(QueueHole):
    """The search for the first message of a queue in a part of the log, as if it were the only one of a hole."""

    def __init__(self, queue: HoledQueue, start: int, end: int) -> None:
        """Nothing has been searched."""
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
    """The messages of a queue behind its last unit, as far as the log has any (:mod:`storage.queue.queue_tail`)."""

    @abstractmethod
    def is_of(self, queue: HoledQueue, first: int) -> bool:
        """Whether it is what is to be known of a queue as it is now, whose files end with a queue offset."""

    @abstractmethod
    def first_in(self, log: CommitLog) -> int:
        """The queue offset of the first of its messages that is not expired; ``stop`` where there is none."""

    @abstractmethod
    def stop_in(self, log: CommitLog) -> int:
        """The queue offset behind the last of its messages that a log has, which may end before what was searched."""


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
        """Say who goes on with long searches and who hears of their results; without ``hand_on`` whoever asks waits.

        ``hand_on`` is called, on any thread, when there is something to :meth:`step`, and ``report`` with each hole
        whose search has ended, on the thread that ended it.
        """
        self._hand_on, self._report = hand_on, report

    @property
    def searching(self) -> int:
        """How many passes have been handed on and are not done."""
        return len(self._waiting)

    def forget(self) -> None:
        """Know nothing any more, as when the log was written anew."""
        with self._lock:
            self._holes.clear()
            self._firsts.clear()
            self._tails.clear()
            self._waiting.clear()
            self._weight = 0

    def find(self, queue: HoledQueue, queue_offset: int) -> Lookup[QueueHole]:
        """The hole around a queue offset whose unit leads nowhere, searched to its end.

        Waits where nothing is known of it. Raises BeingSearched while others search.
        """
        hole = self._known(queue, queue_offset)
        if hole is not None and hole.is_done and hole.is_open and hole.place(queue_offset) is None:
            self._extend(hole, queue.log, queue.log.end)
        hole = yield from self._begun(queue, hole, lambda: self._add(queue, queue_offset))
        if not hole.is_done:
            raise BeingSearched(hole.sentence())
        return hole

    def find_tail(self, queue: HoledQueue, first: int, make: Callable[[], Tail]) -> Lookup[Tail]:
        """What follows in the log from a queue offset on of a queue that ends there, searched to its end.

        ``make`` makes the search where nothing is known of it. Raises as :meth:`find` does.
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
        """Physical offset of the first message of a queue in [start, stop) of the log, None where there is none.

        Waits where it is not known. Raises QueueBeingSearched while others search.
        """
        place = _key_of_first(queue), 0
        with self._lock:
            hole = self._holes.get(place)
            if hole is not None and not (hole.start <= start and hole.holds(queue)):
                self._drop(hole)
                hole = None
            found = None if hole is None or not hole.is_done else hole.place(0)
            if hole is not None and found is not None and found < start:  # it expired meanwhile
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
        """Search one piece of the log for all that wait for it, of those that were handed on."""
        with self._lock:
            together = self._together()
        if not together:
            return
        go_on(together, together[0].position + PIECE)
        done = [hole for hole in together if hole.is_done]
        with self._lock:
            for hole in done:
                if hole in self._waiting:  # else it was forgotten meanwhile
                    self._waiting.remove(hole)
        self._report_all(done)

    def _extend(self, hole: QueueHole, log: CommitLog, end: int) -> None:
        """Have a search go on in what has come to the log, unless a step that ends it is not over yet."""
        with self._lock:
            is_waiting = hole in self._waiting
        if not is_waiting:
            hole.extend(log, end)

    def _begun(self, queue: HoledQueue, hole: AnyHole | None, make: Callable[[], AnyHole]) -> Lookup[AnyHole]:
        """A hole whose search is over, or goes on elsewhere; ``make`` makes it where nothing is known of it."""
        if hole is None or not (hole.is_done or hole.is_handed_on):
            yield Wait(f"messages of {queue.name.topic} {queue.name.queue_id} are to be found in the log")
            hole = make() if hole is None else hole
            self._search(hole)
        return hole

    def _search(self, hole: QueueHole) -> None:
        """Search as much as one look-up may; the rest is handed on where somebody takes it."""
        hand_on = self._hand_on
        if hole.search(hole.end if hand_on is None else SEARCHED_AT_ONCE, hands_on=hand_on is not None):
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
        """A hole of which nothing is known yet; the one that another thread has added meanwhile, if there is one."""
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
        """Remember a hole of a queue offset, unless another thread has; which one is remembered."""
        place = hole.key, hole.first
        with self._lock:
            known = self._holes.get(place)
            if known is not None and known.stop <= queue_offset:  # units behind it held then, and do no more
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
        """Remember what follows a queue's last unit, unless another thread has; which one is remembered."""
        with self._lock:
            return self._tails.setdefault(key, tail)

    def _drop_tail(self, key: Key) -> None:
        tail = self._tails.pop(key)
        if tail in self._waiting:
            self._waiting.remove(tail)

    def _forget_oldest(self) -> None:
        """Forget holes until the rest is little enough; what is being searched is not forgotten."""
        if len(self._tails) > MOST_TAILS:
            for key in [key for key, tail in self._tails.items() if tail.is_done][: len(self._tails) - MOST_TAILS]:
                self._drop_tail(key)
        if self._weight > REMEMBERED:
            for hole in [hole for hole in self._holes.values() if hole.is_done]:
                self._drop(hole)
                if self._weight <= REMEMBERED:
                    break

    def _together(self) -> list[QueueHole]:
        """The holes whose search goes on next, all in the same piece of the log: they take turns."""
        if not self._waiting:
            return []
        self._waiting.rotate(-1)
        lead = self._waiting[-1]
        low = min(hole.position for hole in self._waiting if lead.position - NEAR <= hole.position <= lead.position)
        behind = next(hole for hole in self._waiting if hole.position == low)
        return [behind, *(hole for hole in self._waiting if hole is not behind and _is_with(hole, behind))][:TOGETHER]


def _key_of_first(queue: HoledQueue) -> Key:
    """Beside the keys of holes, whose units have bytes."""
    return -queue.unit_size, queue.name.topic, queue.name.queue_id


def go_on(holes: list[QueueHole], stop: int) -> None:
    """Search on for all of them from where the first one's search stands, in one segment and up to ``stop`` at most."""
    position = holes[0].position
    stop = min(stop, *(hole.end for hole in holes))
    position = search_piece(holes[0].log(), [hole.wanted for hole in holes], position, stop)
    for hole in holes:
        hole.go_on(max(position, hole.position))


def _is_with(hole: QueueHole, lead: QueueHole) -> bool:
    """Whether a hole's search goes on in the next piece of another's, in the same file.

    Not before it starts: the log may have other messages of these queue offsets there, of a topic that was made anew.
    """
    if not lead.position <= hole.position < lead.position + PIECE or hole.end <= lead.position:
        return False
    if hole.start > lead.position:
        return False
    ours, theirs = hole.log().segment_of(hole.position), lead.log().segment_of(lead.position)
    return ours is not None and theirs is not None and ours.file is theirs.file


def _segments(log: CommitLog, start: int, end: int) -> list[tuple[int, FileIdentity]]:
    """The segments of a part of the log as they are."""
    return [
        (segment.base_offset, segment.file.identity)
        for segment in log.segments
        if segment.base_offset + segment.file.size > start and segment.base_offset < end
    ]
