"""Let a busy worker wait until other threads on its core are done, so that it finds more requests in each read.

Workers and clients of one machine may be more than its cores. Linux lets a thread that wakes up interrupt the one that
runs: a worker then takes the first request from a client that is about to send more, and so does the next worker. Each
turn answers less, and a request costs a quarter more CPU (`benchmarks.workers`). Under SCHED_BATCH a thread that wakes
up waits until a core is free or a slice of some milliseconds is over. Where cores are idle nothing changes.

A worker that has little to do, or a single client, stays prompt: it has nothing to gain.

It is separate from `broker.server`, which starts it: it is about the scheduler of Linux, and a server runs without it.
"""

import os
import time
from collections.abc import Callable
from typing import Final

LOOK_SECONDS: Final = 0.1
"""How often the CPU time of the event loop is looked at."""

BUSY_SHARE: Final = 0.25
IDLE_SHARE: Final = 0.1
"""Shares of one core from which on a worker is busy, and below which it is no longer."""

FEWEST_CONNECTIONS: Final = 2


class CoreSharing:
    """Sets the scheduling of the calling thread, by what that thread has done since it was last asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, spent: Callable[[], float] = time.thread_time):
        """`clock` returns the time and `spent` the CPU time of the calling thread, both in seconds."""
        self._clock, self._spent = clock, spent
        self._last = clock(), spent()
        self.is_possible = hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER
        """Whether the scheduling is ours to set: not where somebody chose another for this process."""
        self.is_sharing = False

    def look(self, connections: int) -> None:
        """Share the core, or no longer; call it every `LOOK_SECONDS` with the number of open connections."""
        now, spent = self._clock(), self._spent()
        share = (spent - self._last[1]) / max(now - self._last[0], 1e-9)
        self._last = now, spent
        is_busy = share >= (IDLE_SHARE if self.is_sharing else BUSY_SHARE) and connections >= FEWEST_CONNECTIONS
        if self.is_possible and is_busy != self.is_sharing:
            self._set(is_busy)

    def _set(self, is_sharing: bool) -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_BATCH if is_sharing else os.SCHED_OTHER, os.sched_param(0))
        except OSError:  # a sandbox may forbid it
            self.is_possible = False
        else:
            self.is_sharing = is_sharing
