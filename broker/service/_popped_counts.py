"""What groups of a served store have popped and not acknowledged, counted at times, for all who ask."""

import time
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from broker.service.kept_work import KEPT_SECONDS, KeptWorks, Report, WorkState
from protocol.errors import RocketLensError
from storage.store.message_store import MessageStore

Counts: TypeAlias = dict[str, dict[str, dict[int, int]]]
"""Messages by group, topic and queue id."""


class CountedPops(NamedTuple):
    """The counts, None where they are not known, and when they were made, by the monotonic clock."""

    counts: Counts | None
    counted_at: float


class PoppedCounts:
    """The counts of one store; safe to use from several threads. What they need is loaded when they are first asked."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._works: KeptWorks[CountedPops] = KeptWorks("popped", "counting what was popped")

    def ask(self) -> WorkState[CountedPops]:
        """How far counting is, or the counts of not longer than `KEPT_SECONDS` ago."""
        return self._works.ask("", self._counted, KEPT_SECONDS)

    def wait(self, check: Callable[[], None]) -> Counts | None:
        """The counts, once they are made; `check` is called meanwhile, and may raise. Raises RocketLensError."""
        while True:
            check()
            state = self.ask()
            if state.problem is not None:
                raise RocketLensError(state.problem)
            if not state.is_running and state.outcome is not None:
                return state.outcome.counts

    def _counted(self, report: Report) -> CountedPops:
        from storage.life.pop_log import count_popped  # few servers are asked

        started = time.monotonic()
        return CountedPops(count_popped(self._store, report), started)
