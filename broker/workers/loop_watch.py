"""Finds workers that no longer serve although they live, because their event loops stand still.

Each loop writes a sign of life to memory that it shares with the supervisor (`broker.metrics.metrics_rows`). A worker
that waits for the disk or works on threads of its pool goes on giving it; one that was stopped, or computes without end
where its loop should turn, does not.

Time is counted in looks of the supervisor. When the machine was suspended, or the supervisor itself had to wait for a
core, that look counts for no more than two, so that nobody is held to be silent while all stood still.
"""

import time
from collections.abc import Callable, Collection

from broker.metrics.metrics_rows import HEARTBEAT, STUCK, MetricsRows

LONGEST_INTERVAL_SECONDS = 1.0


class LoopWatch:
    """Counts for how long each worker has given no sign of life."""

    def __init__(
        self, rows: MetricsRows, limit_seconds: float, clock_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        """A worker that is silent for `limit_seconds` is to be ended."""
        self.limit_seconds = limit_seconds
        self.interval_seconds = min(LONGEST_INTERVAL_SECONDS, limit_seconds / 4)
        """How often `look` is to be called."""
        self._rows, self._clock_seconds = rows, clock_seconds
        self._looked_seconds = clock_seconds()
        self._known: dict[int, tuple[int, float]] = {}

    def look(self, serving: Collection[int]) -> list[int]:
        """Return the numbers of those workers that have been silent for too long, of those that are `serving`."""
        now = self._clock_seconds()
        passed = min(now - self._looked_seconds, 2 * self.interval_seconds)
        self._looked_seconds = now
        signs = self._rows.column(HEARTBEAT)
        before, self._known = self._known, {}
        for number in serving:
            sign, silent_seconds = before.get(number, (None, 0.0))
            self._known[number] = signs[number], silent_seconds + passed if sign == signs[number] else 0.0
        return [number for number, (_, silent_seconds) in self._known.items() if silent_seconds >= self.limit_seconds]

    def count(self, number: int) -> None:
        """Count a worker that was ended, for the metrics."""
        self._rows.add(number, STUCK)
