"""Long searches of the log for messages of damaged queue units, made in pieces on the threads of look-ups.

One piece is some milliseconds of work. When it is done the next one is queued behind the look-ups that came meanwhile,
on one thread at a time, so that even a search of a hundred gigabytes delays no request, and stops with the server. Each
hole (units that are damaged or lost) is reported once, with the numbers of its messages that were found and are lost.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from broker.metrics.metrics_meter import Meter
from storage.queue.queue_hole import QueueHole
from storage.queue.queue_holes import QueueHoles

logger = logging.getLogger(__name__)

RunInPool: TypeAlias = Callable[[Callable[[], None]], "asyncio.Future[None]"]

RETRY_SECONDS: Final = 5.0
"""Seconds after which a failed search is tried again; until it succeeds, pulls are answered that it is under way."""

MOST_LOGGED: Final = 10_000
"""Most holes that are remembered as reported, so that they are not reported again when they are searched again."""


class HoleSearch:
    """Makes the long searches that look-ups leave over, from `start` to `stop`; both are called on the event loop."""

    def __init__(self, holes: QueueHoles, run_in_pool: RunInPool, meter: Meter | None = None) -> None:
        self._holes = holes
        self._run_in_pool = run_in_pool
        self._meter = meter
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_at_work = False
        self._logged: set[tuple[str, int, int]] = set()
        self._reporting = threading.Lock()

    @property
    def searching(self) -> int:
        """The number of holes whose messages are being searched for."""
        return self._holes.searching

    def start(self) -> None:
        """Begin to make the long searches, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._holes.connect(hand_on=self._wake, report=self._report)

    def stop(self) -> None:
        """Begin no further piece; pulls for messages that are not found yet are answered that they are searched for."""
        self._loop = None

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        if self._loop is not None and not self._is_at_work and self._holes.searching:
            self._is_at_work = True
            self._run_in_pool(self._holes.step).add_done_callback(self._done)

    def _done(self, piece: "asyncio.Future[None]") -> None:
        self._is_at_work = False
        if piece.cancelled():
            return
        error = piece.exception()
        if error is not None:
            logger.error(
                "the log could not be searched for messages of damaged queue units; next try in %g s",
                RETRY_SECONDS,
                exc_info=error,
            )
            if self._loop is not None:
                self._loop.call_later(RETRY_SECONDS, self._go_on)
            return
        self._go_on()

    def _report(self, hole: QueueHole) -> None:
        """Log and count the result of a hole's search, once. Called on any thread."""
        place = (hole.name.topic, hole.name.queue_id, hole.first)
        with self._reporting:
            if place in self._logged or len(self._logged) >= MOST_LOGGED:
                return
            self._logged.add(place)
        if self._meter is not None:
            self._meter.hole_searched(hole.found, hole.lost)
        logger.warning("%s; rocketlens rebuild queues makes the units anew", hole.sentence())
