"""The counters of the server's hot path: plain additions to Python's own numbers, once a turn as far as possible.

A turn is what becomes of one read. Its requests are noted by number and counted together when their answers were
handed to the socket; each of them took as long as the turn. What the fast lane answers is counted by compiled code and
read off here; of its turns only the durations are noted. Four times a second all of it is added to the worker's row,
where the others see it: shared memory would cost twice as much a number. Everything but :meth:`Meter.searched` and
:meth:`Meter.hole_searched` is the event loop's alone.
"""

import time
from array import array
from collections import deque
from collections.abc import Mapping
from threading import Lock
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from broker.metrics.metrics_rows import (
    ACCEPTED,
    BUCKET_OF,
    BUCKETS,
    CPU,
    DROPPED,
    EVENT_LOOP,
    GONE,
    HEARTBEAT,
    HELD_TOTAL,
    HOLE_MESSAGES,
    LANE_REQUESTS,
    POOL_WAIT,
    RECEIVED_BYTES,
    SEARCH,
    SENT_BYTES,
    SLOW,
    STATE,
    TURNS,
    WAITED,
    MetricsRows,
    Row,
    call_places_of,
    places_of,
)
from broker.metrics.slow_queries import SlowQueries, Visit
from protocol.codes import RequestCode
from protocol.command import Command
from storage.kernels.lookups import Found

RESULT_BITS: Final = 16
"""Code and result of a request in one number: the code above so many bits of the result."""
RESULT_MASK: Final = (1 << RESULT_BITS) - 1

NEVER: Final = 1 << 62

Places = npt.NDArray[np.int64]

LANE_CODES: Final = (
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.QUERY_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
)
"""What a fast lane answers, in the order in which it counts them."""

LANE_QUERIES: Final = 1
"""The place of key queries among the lane's counts."""

MOST_NOTED: Final = 1 << 16
"""Requests that are noted before they are added up, should that not have been done for long."""

BUCKET_OF_BITS: Final = np.array(BUCKET_OF)


class LaneCounts(Protocol):
    """A fast lane, as far as it counts."""

    def counts(self) -> list[int]:
        """Its counts so far: requests by LANE_CODES, then the costs of its key queries."""


class MeteredClient(Protocol):
    """A client's connection, as far as a line about a slow turn names it."""

    @property
    def peer_address(self) -> object:
        """The client's own address."""


class Meter:
    """Counts what one worker does for one store; `slow` None: slow queries are not logged.

    A session appends each answer that it makes to `answers`. Of the meters of a worker with several stores one
    `counts_cpu`.
    """

    def __init__(self, row: Row | None = None, slow: SlowQueries | None = None, *, counts_cpu: bool = True) -> None:
        """Count in `row`; None means in one of its own."""
        self.row = MetricsRows().begin(0) if row is None else row
        self.answers: list[int] = []
        """The requests of this turn that were answered, by code and result."""
        self._received = self._sent = 0
        self._turns, self._keys, self._times = array("q"), array("q"), array("q")
        self._note_turn = self._turns.append
        self._limit = NEVER if slow is None else slow.limit
        self._slow = slow
        self._searches: deque[tuple[int, ...]] = deque()
        """What key queries cost, SEARCH_FIGURES each, as far as it is not added up."""
        self._lane_counts: list[int] = []
        self._lock = Lock()
        self._reported_cpu = 0
        self._counts_cpu = counts_cpu

    # ------------------------------------------------------------------ what connections report

    def note_received(self, size: int) -> None:
        """Count bytes that came."""
        self._received += size

    def note_sent(self, size: int) -> None:
        """Count bytes that are written outside of a turn."""
        self._sent += size

    def end_turn(self, started: int, sent: int, client: MeteredClient, received: int = 0) -> None:
        """Count a turn that began at `started` (ns of perf_counter) and wrote so many bytes, and what it answered.

        `received` are the bytes that came for it, unless :meth:`note_received` has counted them.
        """
        self._received += received
        self._sent += sent
        elapsed = time.perf_counter_ns() - started
        self._note_turn(elapsed)
        if elapsed > self._limit:
            self._report_turn(elapsed, client.peer_address)
        if self.answers:
            self._note_answers(elapsed)

    def _note_answers(self, elapsed: int) -> None:
        """Note the answers to requests that took so many ns."""
        answers = self.answers
        if len(answers) == 1:
            self._keys.append(answers[0])
            self._times.append(elapsed)
        else:
            self._keys.extend(answers)
            self._times.extend([elapsed] * len(answers))
        answers.clear()
        if len(self._keys) >= MOST_NOTED:
            self._add_requests()

    def _report_turn(self, elapsed: int, peer: object) -> None:
        """Log a turn that took too long; before its answers are counted."""
        if self._slow is not None:
            self.row[SLOW + EVENT_LOOP] += 1
            first = self.answers[0] if self.answers else 0
            self._slow.report_turn(first >> RESULT_BITS, first & RESULT_MASK, len(self.answers), peer, elapsed)

    def begin_wait(self, visit: Visit) -> None:
        """Count a request that cannot be answered at once."""
        self.row[WAITED + visit.kind] += 1

    def end_wait(self, command: Command, visit: Visit, sent: int, peer: object) -> None:
        """Count the one answer that was noted last, to a request that had to wait."""
        elapsed = time.perf_counter_ns() - visit.asked
        self._sent += sent
        self.row[POOL_WAIT] += visit.queued
        if elapsed > self._limit and self._slow is not None:
            self.row[SLOW + visit.reason(elapsed)] += 1
            self._slow.report_waited(command, self.answers[0] & RESULT_MASK, peer, elapsed, visit)
        self._note_answers(elapsed)

    def answered_later(self, code: int, result: int, count: int) -> None:
        """Count requests that were held until messages came; their durations mean nothing and are not counted."""
        self.row[places_of(code, result)[0]] += count

    def called(self, method: str, result: str, elapsed: int) -> None:
        """Count a call by gRPC that took so many ns."""
        place, durations = call_places_of(method, result)
        self.row[place] += 1
        self.row[durations + BUCKET_OF[elapsed.bit_length()]] += 1
        self.row[durations + BUCKETS] += elapsed

    def held(self) -> None:
        """Count a pull that is held until messages come."""
        self.row[HELD_TOTAL] += 1

    def connected(self) -> None:
        """Count a connection in."""
        self.row[ACCEPTED] += 1

    def dropped(self) -> None:
        """Count a connection that is closed because of what its client does, or because there are too many."""
        self.row[DROPPED] += 1

    # ------------------------------------------------------------------ what others report

    def searched(self, found: Found) -> None:
        """Note what a key query cost, by what its lookup found; on any thread."""
        self._searches.append((1, found.walked, found.refused, found.bad_pointers, found.strays))

    def hole_searched(self, found: int, lost: int) -> None:
        """Count what became of the messages of damaged queue units; on any thread."""
        with self._lock:
            self.row[HOLE_MESSAGES] += found
            self.row[HOLE_MESSAGES + 1] += lost

    def publish(self, present: Mapping[int, int], lane: "LaneCounts | None" = None) -> None:
        """Add up what was counted, here and by the lane, and what is so at present, by its place in the row.

        The time of it is the worker's sign of life.
        """
        row = self.row
        for place, number in present.items():
            row[place] = number
        self.add_up(lane)
        if self._counts_cpu:
            used = time.process_time_ns()
            row[CPU] += used - self._reported_cpu
            self._reported_cpu = used
        row[HEARTBEAT] = time.monotonic_ns()

    def enter(self, state: int) -> None:
        """Note that the worker serves, or stops."""
        self.row[STATE] = state
        self.row[HEARTBEAT] = time.monotonic_ns() if state != GONE else 0

    # ------------------------------------------------------------------ adding up

    def add_up(self, lane: "LaneCounts | None" = None) -> None:
        """Add to the row what was counted since the last time."""
        row = self.row
        row[RECEIVED_BYTES] += self._received
        row[SENT_BYTES] += self._sent
        self._received = self._sent = 0
        self._add_turns()
        self._add_requests()
        while self._searches:
            for place, count in enumerate(self._searches.popleft(), SEARCH):
                row[place] += count
        if lane is not None:
            self._add_lane(lane.counts())

    def _add_turns(self) -> None:
        noted, self._turns = self._turns, array("q")
        self._note_turn = self._turns.append
        if noted:
            times = np.frombuffer(noted, np.int64)
            self._add(TURNS + _buckets(times))
            self.row[TURNS + BUCKETS] += int(times.sum())

    def _add_requests(self) -> None:
        keys, self._keys = self._keys, array("q")
        noted, self._times = self._times, array("q")
        if keys:
            kinds, numbers = np.unique(np.frombuffer(keys, np.int64), return_inverse=True)
            places = [places_of(key >> RESULT_BITS, key & RESULT_MASK) for key in kinds.tolist()]
            requests, durations = np.array(places)[numbers].T
            times = np.frombuffer(noted, np.int64)
            self._add(requests)
            self._add(durations + _buckets(times))
            self._add(durations + BUCKETS, times)

    def _add(self, places: Places, weights: Places | None = None) -> None:
        """Add 1, or what each weighs, to as many places of the row."""
        sums = np.bincount(places, weights)
        for place in np.nonzero(sums)[0].tolist():
            self.row[place] += int(sums[place])

    def _add_lane(self, counts: list[int]) -> None:
        row = self.row
        more = [now - before for now, before in zip(counts, self._lane_counts or [0] * len(counts), strict=True)]
        self._lane_counts = counts
        for code, count in zip(LANE_CODES, more, strict=False):
            row[places_of(int(code), 0)[0]] += count
            row[LANE_REQUESTS] += count
        for place, count in enumerate([more[LANE_QUERIES], *more[len(LANE_CODES) :]], SEARCH):
            row[place] += count


def _buckets(times: Places) -> Places:
    """The bucket of each of some durations in ns.

    The exponent of a float is how many bits the integer takes, as long as that has no more than 53: for 104 days.
    """
    found: Places = BUCKET_OF_BITS[np.frexp(times.astype(np.float64))[1]]
    return found
