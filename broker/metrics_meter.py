"""What the server's hot path tells: plain additions to Python's own numbers, once a turn as far as possible.

A turn is what becomes of one read. Its requests are noted by number and counted together when their answers were
handed to the socket; each of them took as long as the turn. What the fast lane answers is counted by compiled code and
read off here. Four times a second all of it is added to the worker's row, where the others see it: shared memory would
cost twice as much a number. Everything but :meth:`Meter.searched` is the event loop's alone.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final

from broker.fast_lane import LANE_CODES, FastLane
from broker.metrics_rows import (
    ACCEPTED,
    BUCKET_OF,
    BUCKETS,
    CPU,
    DROPPED,
    EVENT_LOOP,
    GONE,
    HEARTBEAT,
    HELD_TOTAL,
    IN_FLIGHT_BYTES,
    LANE_REQUESTS,
    POOL_SEARCH,
    POOL_WAIT,
    RECEIVED_BYTES,
    SEARCH,
    SENT_BYTES,
    SLOW,
    STATE,
    TURNS,
    UNFINISHED_BYTES,
    UNSENT_BYTES,
    WAITED,
    MetricsRows,
    Row,
    places_of,
)
from broker.slow_queries import SlowQueries, Visit
from protocol.command import Command
from storage.kernels import lookup as kernel
from storage.residency import may_wait

if TYPE_CHECKING:
    from broker.costs import Costs

RESULT_BITS: Final = 16
"""Code and result of a request in one number: the code above so many bits of the result."""
RESULT_MASK: Final = (1 << RESULT_BITS) - 1

NEVER: Final = 1 << 62

SEARCH_RESULTS: Final = (
    kernel.RESULT_WALKED,
    kernel.RESULT_REFUSED,
    kernel.RESULT_BAD_POINTERS,
    kernel.RESULT_STRAYS,
)
"""Where a lookup's numbers have SEARCH_FIGURES behind the first."""

LANE_QUERIES: Final = 1
"""The place of key queries among the lane's counts."""

BITS: Final = 65
"""Durations are first counted by how many bits their ns take."""

MOST_KINDS: Final = 1024
"""Kinds of requests counted between two times of adding up: clients can make up codes."""


class Tally:
    """Requests of one kind since they were added up: how many, the sum of their durations in ns, and by BITS."""

    __slots__ = ("bits", "count", "total")

    def __init__(self) -> None:
        self.count = self.total = 0
        self.bits = [0] * BITS

    def add(self, count: int, elapsed: int) -> None:
        """Count requests that took `elapsed` ns each."""
        self.count += count
        self.total += elapsed * count
        self.bits[elapsed.bit_length()] += count


class Meter:
    """Counts what one worker does for one store; `slow` None tells of no slow query.

    Where things happen, bytes are added to `received` and `sent`, and answers noted in `answers`. Of the meters of a
    worker with several stores one `counts_cpu`.
    """

    def __init__(self, row: Row | None = None, slow: SlowQueries | None = None, *, counts_cpu: bool = True) -> None:
        """Count in `row`; None means in one of its own."""
        self.row = MetricsRows().begin(0) if row is None else row
        self.answers: list[int] = []
        """The requests of this turn that were answered, by code and result."""
        self.received = self.sent = 0
        self.turns = Tally()
        self.limit = NEVER if slow is None else slow.limit
        """What takes more ns is told of."""
        self.lane: FastLane | None = None
        self._slow = slow
        self._tallies: dict[int, Tally] = {}
        self._lane_counts: list[int] = []
        self._lock = Lock()
        self._told_cpu = 0
        self._counts_cpu = counts_cpu

    # ------------------------------------------------------------------ what connections tell

    def end_turn(self, started: int, size: int, peer: object) -> None:
        """Count a turn that began at `started` (ns of perf_counter) and wrote so many bytes."""
        elapsed = time.perf_counter_ns() - started
        turns = self.turns
        turns.total += elapsed
        turns.bits[elapsed.bit_length()] += 1
        self.sent += size
        if elapsed > self.limit:
            self._tell_turn(elapsed, peer)
        if self.answers:
            self._count_answers(elapsed)

    def _count_answers(self, elapsed: int) -> None:
        """Count the answers that were noted, to requests that took so many ns."""
        answers = self.answers
        first, count = answers[0], len(answers)
        if count == 1 or answers.count(first) == count:
            self._tally(first).add(count, elapsed)
        else:
            for key, some in Counter(answers).items():
                self._tally(key).add(some, elapsed)
        answers.clear()

    def _tell_turn(self, elapsed: int, peer: object) -> None:
        """Tell of a turn that took too long; before its answers are counted."""
        if self._slow is not None:
            self.row[SLOW + EVENT_LOOP] += 1
            first = self.answers[0] if self.answers else 0
            self._slow.tell_turn(first >> RESULT_BITS, first & RESULT_MASK, len(self.answers), peer, elapsed)

    def begin_wait(self, visit: Visit) -> None:
        """Count a request that cannot be answered at once."""
        self.row[WAITED + visit.kind] += 1

    def end_wait(self, command: Command, visit: Visit, sent: int, peer: object) -> None:
        """Count the one answer that was noted last, to a request that had to wait."""
        elapsed = time.perf_counter_ns() - visit.asked
        self.sent += sent
        self.row[POOL_WAIT] += visit.queued
        if elapsed > self.limit and self._slow is not None:
            self.row[SLOW + visit.reason(elapsed)] += 1
            self._slow.tell_waited(command, self.answers[0] & RESULT_MASK, peer, elapsed, visit)
        self._count_answers(elapsed)

    def answered_later(self, code: int, result: int, count: int) -> None:
        """Count requests that were held until there was something to tell; how long says nothing."""
        self.row[places_of(code, result)[0]] += count

    def held(self) -> None:
        """Count a pull that is held until messages come."""
        self.row[HELD_TOTAL] += 1

    def connected(self) -> None:
        """Count a connection in."""
        self.row[ACCEPTED] += 1

    def dropped(self) -> None:
        """Count a connection that is closed because of what its client does, or because there are too many."""
        self.row[DROPPED] += 1

    # ------------------------------------------------------------------ what others tell

    def searched(self, numbers: Sequence[int]) -> None:
        """Count what a key query cost, by the numbers of its lookup; on any thread."""
        if may_wait():
            with self._lock:
                self._add_search(POOL_SEARCH, numbers)
        else:
            self._add_search(SEARCH, numbers)

    def _add_search(self, first: int, numbers: Sequence[int]) -> None:
        row = self.row
        row[first] += 1
        for place, number in enumerate(SEARCH_RESULTS, first + 1):
            row[place] += numbers[number]

    def publish(self, costs: "Costs", present: Mapping[int, int]) -> None:
        """Add up what was counted, and say what is so at `present`; the time of it is the worker's sign of life."""
        row = self.row
        row[IN_FLIGHT_BYTES], row[UNFINISHED_BYTES], row[UNSENT_BYTES] = costs.in_flight, costs.received, costs.unsent
        for place, number in present.items():
            row[place] = number
        self.add_up()
        if self._counts_cpu:
            used = time.process_time_ns()
            row[CPU] += used - self._told_cpu
            self._told_cpu = used
        row[HEARTBEAT] = time.monotonic_ns()

    def enter(self, state: int) -> None:
        """Note that the worker serves, or stops."""
        self.row[STATE] = state
        self.row[HEARTBEAT] = time.monotonic_ns() if state != GONE else 0

    # ------------------------------------------------------------------ adding up

    def add_up(self) -> None:
        """Add to the row what was counted since the last time."""
        row = self.row
        row[RECEIVED_BYTES] += self.received
        row[SENT_BYTES] += self.sent
        self.received = self.sent = 0
        turns, self.turns = self.turns, Tally()
        _add_durations(row, TURNS, turns)
        tallies, self._tallies = self._tallies, {}
        for key, tally in tallies.items():
            request, duration = places_of(key >> RESULT_BITS, key & RESULT_MASK)
            row[request] += tally.count
            _add_durations(row, duration, tally)
        if self.lane is not None:
            self._add_lane(self.lane.counts())

    def _add_lane(self, counts: list[int]) -> None:
        row = self.row
        more = [now - before for now, before in zip(counts, self._lane_counts or [0] * len(counts), strict=True)]
        self._lane_counts = counts
        for code, count in zip(LANE_CODES, more, strict=False):
            row[places_of(int(code), 0)[0]] += count
            row[LANE_REQUESTS] += count
        for place, count in enumerate([more[LANE_QUERIES], *more[len(LANE_CODES) :]], SEARCH):
            row[place] += count

    def _tally(self, key: int) -> Tally:
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) == MOST_KINDS:
                self.add_up()
            tally = self._tallies[key] = Tally()
        return tally


def _add_durations(row: Row, first: int, tally: Tally) -> None:
    if tally.total:
        for bits, count in enumerate(tally.bits):
            if count:
                row[first + BUCKET_OF[bits]] += count
        row[first + BUCKETS] += tally.total
