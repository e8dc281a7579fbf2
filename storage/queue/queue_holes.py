"""Searches the log for the holes of all queues, and keeps what was found.

A page of zeros destroys 205 units, and a lost file all of its units, but the messages are still in the log. A short
pass over it is made at once by the thread that needs it. A long one is left to a background search, if there is one: a
server makes it in pieces, between other look-ups, and :class:`BeingSearched` is raised until it ends. Otherwise the
thread waits for it. Either way it is made for all holes that need the same part of the log
(:mod:`storage.queue._shared_pass`).

A run of more than :data:`MOST_AT_ONCE` queue offsets is searched and kept in several pieces, each of which starts where
the one before ended.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from storage.files.waiting import Lookup, Wait
from storage.kernels.messages import ANY_OFFSET
from storage.log.commit_log import CommitLog
from storage.queue._shared_pass import SharedPass
from storage.queue.queue_hole import MOST_AT_ONCE, UNKNOWN, Beginning, Key, QueueHole, Tail, key_of
from storage.queue.unit_standing import JudgedUnits

REMEMBERED: Final = 64 * 1024 * 1024
"""Most bytes of all holes that are kept; the least recently used ones are dropped."""

SEARCHED_AT_ONCE: Final = 64 * 1024 * 1024
"""Bytes of log that a thread searches before it leaves a pass to the background search: some 30 ms."""

MOST_TAILS: Final = 8192
"""Most queues for which the messages after their last unit are kept; mostly there are none."""

TAILS_REMEMBERED: Final = 256 * 1024 * 1024
"""Most bytes of these messages. Beyond, only their number is kept; of searches, the one that has come furthest."""

LostQueues = Callable[[], Iterable[JudgedUnits]]
"""The queues of a store that lost their directories, as far as the log was not searched for them before."""

MOST_ROUNDS: Final = 3
"""Times that the searches which some work needs are made together: where a queue ends, and then where it begins."""

Result = TypeVar("Result")
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
        self._pass = SharedPass()
        self._weight = 0
        self._gathering: set[int] = set()

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
        return len(self._pass)

    @property
    def is_background_wanted(self) -> bool:
        """Whether :meth:`step` has work to do for a background search."""
        return self._hand_on is not None and len(self._pass) > 0

    def searches(self) -> tuple[list[str], int]:
        """Return a sentence about each of them for people, and the bytes of log that are still to be read for them."""
        return self._pass.progress()

    def in_one_pass(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` returns, which takes BeingSearched for an answer where a search is not done.

        The searches that it leaves over so are made together, and it is done again then; without a background search
        each would be made by itself, and each may read the whole log.
        """
        for _ in range(MOST_ROUNDS if self._hand_on is None else 0):
            thread = threading.get_ident()
            self._gathering.add(thread)
            try:
                result = work()
            except BaseException:
                self._pass.clear()
                raise
            finally:
                self._gathering.discard(thread)
            if not self._pass:
                return result
            while self._pass:
                self.step()
        return work()

    def forget(self) -> None:
        """Drop all results, because the log was written anew."""
        with self._lock:
            self._holes.clear()
            self._firsts.clear()
            self._tails.clear()
            self._pass.clear()
            self._weight = 0

    def known(self, queue: JudgedUnits, queue_offset: int) -> QueueHole | None:
        """Return the hole with a queue offset if it was searched before and its message was found, else None."""
        hole = self._known(queue, queue_offset) if self._firsts or self._tails else None
        return hole if hole is not None and hole.is_done and hole.place(queue_offset) is not None else None

    def find(self, queue: JudgedUnits, queue_offset: int) -> Lookup[QueueHole]:
        """Return the hole around a queue offset whose unit leads to no message, searched to its end.

        Waits if the hole is new. Raises BeingSearched while the background search is at work on it.
        """
        hole = self._known(queue, queue_offset)
        if hole is not None and hole.is_done and hole.is_open and hole.place(queue_offset) is None:
            self._extend(hole, queue.log, queue.log.end)
        return (yield from self._searched(queue, hole, lambda: self._add(queue, queue_offset)))

    def tail(
        self, queue: JudgedUnits, first: int, last_place: int, beside: LostQueues | None = None
    ) -> Lookup[tuple[int, int]]:
        """Return the range of queue offsets, from and to, that the log has after ``first``, where a queue's files end.

        Both are equal if it has none; ``first`` is UNKNOWN for a queue without units. ``last_place`` is the physical
        offset in the last unit; the log is searched from there, or from its beginning if that has left the log, in one
        pass with the queues `beside` this one. Raises QueueBeingSearched while the background search is at work on it.
        """
        key, log = key_of(queue), queue.log
        start = last_place if log.minimum <= last_place < log.end else log.minimum
        with self._lock:
            tail = self._tails.get(key)
            if tail is not None and not (tail.asked_first == first and tail.holds(queue)):
                self._drop_tail(key)
                tail = None
            if tail is not None:
                self._tails.move_to_end(key)
        if tail is not None and tail.is_done and log.end > tail.end:
            yield Wait(f"messages that came behind the last unit of {queue.name.topic} {queue.name.queue_id}")
            self._extend(tail, log, log.end)
        tail = yield from self._searched(queue, tail, lambda: self._remember_tail(Tail(queue, first, start), beside))
        return tail.first_in(log), tail.stop_in(log)

    def first_message(self, queue: JudgedUnits, start: int, stop: int) -> Lookup[int | None]:
        """Return the physical offset of a queue's first message in [start, stop) of the log, None if there is none.

        Waits if it is not known. Raises QueueBeingSearched while the background search is at work on it.
        """
        with self._lock:
            hole = self._holes.get((key_of(queue), ANY_OFFSET))
            found = None if hole is None or not hole.is_done else hole.place(ANY_OFFSET)
            # It may have expired meanwhile.
            is_valid = hole is not None and hole.start <= start and hole.holds(queue) and (found or start) >= start
            if hole is not None and not is_valid:
                self._drop(hole)
                hole = None
        if hole is not None and hole.is_done and found is None:
            self._extend(hole, queue.log, stop)
        make = partial(self._remember, Beginning(queue, start, stop), ANY_OFFSET)
        found = (yield from self._searched(queue, hole, make)).place(ANY_OFFSET)
        return found if found is not None and found < stop else None

    def step(self) -> None:
        """Search one piece of the log for all background searches that need it."""
        self._report_all(self._pass.step())

    def _extend(self, hole: QueueHole, log: CommitLog, end: int) -> None:
        """Continue a search in the new part of the log, unless a step of it is not over yet."""
        with self._lock:
            if hole not in self._pass:
                hole.extend(log, end)
                self._pass.add([hole])

    def _searched(self, queue: JudgedUnits, hole: AnyHole | None, make: Callable[[], AnyHole]) -> Lookup[AnyHole]:
        """Return a hole that is searched to its end; ``make`` makes the hole if it is None.

        Raises BeingSearched while the background search is at work on it.
        """
        if hole is None or not (hole.is_done or hole.is_handed_on):
            yield Wait(f"messages of {queue.name.topic} {queue.name.queue_id} are to be found in the log")
            hole = make() if hole is None else hole
            self._search(hole)
        hole.refuse()
        return hole

    def _search(self, hole: QueueHole) -> None:
        """Search as much as one look-up may; the background search, if there is one, does the rest, errors or not."""
        if threading.get_ident() in self._gathering:
            self._pass.add([hole])
            return
        hand_on = self._hand_on
        everything = max(hole.end, 1)  # in an empty log, too, one step has to find that it is at the end
        try:
            self._report_all(self._pass.read_for(hole, everything if hand_on is None else SEARCHED_AT_ONCE))
        except BaseException:
            if hand_on is None:  # nobody goes on with it
                self._pass.drop(hole)
            raise
        finally:
            if hand_on is not None and len(self._pass):
                hole.is_handed_on = True
                hand_on()

    def _report_all(self, done: Iterable[QueueHole]) -> None:
        for hole in done:
            is_reported, hole.is_reported = hole.is_reported, hole.stop > hole.first
            if not is_reported and hole.is_reported and self._report is not None:
                self._report(hole)
        with self._lock:
            self._forget_oldest()

    def _add(self, queue: JudgedUnits, queue_offset: int) -> QueueHole:
        """Add a new hole, and return it; if another thread has added it meanwhile, return that one."""
        run = queue.around(queue_offset)
        first = queue_offset - max(queue_offset - run.first, 0) % MOST_AT_ONCE
        stop = min(max(run.stop, queue_offset + 1), first + MOST_AT_ONCE)
        before = self._known(queue, first - 1)
        start = run.start if before is None else max(run.start, int(before.wanted.places.max()))
        hole = QueueHole(queue, run._replace(first=first, stop=stop, start=start))
        return self._known(queue, queue_offset) or self._remember(hole, queue_offset)

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

    def _known(self, queue: JudgedUnits, queue_offset: int) -> QueueHole | None:
        key = key_of(queue)
        with self._lock:
            firsts = self._firsts.get(key)
            number = 0 if firsts is None else bisect_right(firsts, queue_offset)
            hole = self._holes[key, firsts[number - 1]] if firsts is not None and number else None
            if hole is None or queue_offset >= hole.stop:
                tail = self._tails.get(key)
                is_in_it = tail is not None and tail.has_units(queue_offset) and tail.holds(queue)
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
        self._pass.drop(hole)

    def _remember_tail(self, tail: Tail, beside: LostQueues | None) -> Tail:
        """Keep the messages after a queue's last unit, unless another thread has done so; return those kept."""
        others = [
            Tail(each, UNKNOWN, each.log.minimum) for each in islice(() if beside is None else beside(), MOST_TAILS)
        ]
        with self._lock:
            kept = self._tails.setdefault(tail.key, tail)
            others = [each for each in others if self._tails.setdefault(each.key, each) is each]
        for each in others:
            each.is_handed_on = self._hand_on is not None
        self._pass.add(others)
        return kept

    def _drop_tail(self, key: Key) -> None:
        self._pass.drop(self._tails.pop(key))

    def _forget_oldest(self) -> None:
        """Drop the oldest results until the rest is within the limits; holes whose search is not done are kept."""
        over = sum(tail.weight for tail in self._tails.values()) - TAILS_REMEMBERED
        for tail in [tail for tail in self._tails.values() if tail.is_done] if over > 0 else ():
            over -= tail.shed()
        searching = sorted((tail for tail in self._tails.values() if not tail.is_done), key=lambda tail: tail.position)
        for tail in searching[:-1] if over > 0 else ():  # the one that has come furthest comes to its end
            over -= tail.weight
            self._drop_tail(tail.key)
        if len(self._tails) > MOST_TAILS:
            for key in [key for key, tail in self._tails.items() if tail.is_done][: len(self._tails) - MOST_TAILS]:
                self._drop_tail(key)
        if self._weight > REMEMBERED:
            for hole in [hole for hole in self._holes.values() if hole.is_done]:
                self._drop(hole)
                if self._weight <= REMEMBERED:
                    break
