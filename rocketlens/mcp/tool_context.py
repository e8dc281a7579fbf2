"""One call of a tool as its function sees it: whom to ask, until when, and who hears how far it is."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from protocol.errors import RocketLensError
from rocketlens.source import Source

Kept = TypeVar("Kept")


class StillRunning(RocketLensError):
    """Work that is not done when the time of a call is over: it goes on, and a later call gets what comes of it."""


class ToolContext(ABC):
    """What a tool works with; `deadline` is of the monotonic clock."""

    deadline = float("inf")

    def allow(self, seconds: float) -> None:
        """Set how long the work may take from now on."""
        self.deadline = time.monotonic() + seconds

    def should_stop(self) -> bool:
        """Whether to end here: the time is over, or nobody waits any more."""
        return self.is_cancelled or time.monotonic() >= self.deadline

    @property
    @abstractmethod
    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""

    @abstractmethod
    def source(self, store: str | None) -> Source:
        """What is asked: the store of that name, else all that there are. Raises ConfigError for another name."""

    @abstractmethod
    def stores(self) -> list[str]:
        """The names of all stores that may be asked."""

    @abstractmethod
    def kept(self, key: str, work: Callable[[], Kept], *, goes_on: bool) -> Kept:
        """What some work brings; raises :class:`StillRunning` where that takes longer than there is time.

        `goes_on`: an earlier call has begun it, so what has come of it meanwhile is taken.
        """

    @abstractmethod
    def report(self, done: float, total: float | None, text: str) -> None:
        """Say how far it is, to who wants to know."""
