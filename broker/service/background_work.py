"""The thread that does for a served store what no request can wait for.

It checks index files, scans the log for keys, derives queues, and searches the log for messages of damaged queue units
(:mod:`storage.store._upkeep`), whenever it is woken because there is something to do. Each hole (units that are damaged
or lost) is reported once, with the numbers of its messages that were found and are lost.
"""

import logging
import threading
from typing import Final

from broker.metrics.metrics_meter import Meter
from storage.queue.queue_hole import QueueHole
from storage.store.message_store import FAILED_SECONDS, MessageStore

logger = logging.getLogger(__name__)

MOST_LOGGED: Final = 10_000
"""Most holes that are remembered as reported, so that they are not reported again when they are searched again."""


class BackgroundWork:
    """The work of one store, from `start` to `stop`."""

    def __init__(self, store: MessageStore, meter: Meter | None = None) -> None:
        self._store, self._meter = store, meter
        self._wanted = threading.Event()
        self._must_stop = threading.Event()
        self._logged: set[tuple[str, int, int]] = set()
        self._reporting = threading.Lock()

    def connect(self) -> None:
        """Take over the long searches that look-ups leave over, before the first of them."""
        self._store.queue_holes.connect(hand_on=self.wake, report=self._report)

    def start(self) -> None:
        """Begin."""
        self.wake()
        # A daemon, for it must not keep a stopped process alive.
        threading.Thread(target=self._run, name="scan", daemon=True).start()

    def stop(self) -> None:
        """Begin no further step; answers go on to say what is not known yet."""
        self._must_stop.set()
        self.wake()

    def wake(self) -> None:
        """Have done what there is to do. May be called on any thread."""
        self._wanted.set()

    def _run(self) -> None:
        pause: float | None = None
        while True:
            self._wanted.wait(pause)
            self._wanted.clear()
            if self._must_stop.is_set():
                return
            try:
                self._store.finish_scan(self._must_stop.is_set)
                pause = None
            except Exception:
                logger.exception(
                    "the log could not be scanned or searched; answers say what they may lack; next try in %g s",
                    FAILED_SECONDS,
                )
                pause = FAILED_SECONDS

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
