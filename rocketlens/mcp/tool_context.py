"""One call of a tool as its function sees it: whom to ask, until when, and who hears how far it is."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

from protocol.errors import RocketLensError
from rocketlens.mcp.rpc import JsonObject, RpcId, notification
from rocketlens.source import Source

Kept = TypeVar("Kept")

MOST_SECONDS: Final = 10
"""That a tool can be given for its answer."""

PROGRESS_SECONDS: Final = 0.25
"""Between two notifications about one call."""


class StillRunning(RocketLensError):
    """Work that is not done when the time of a call is over: it goes on, and a later call gets what comes of it."""


class ToolContext(ABC):
    """What a tool works with; `deadline` is of the monotonic clock."""

    deadline = float("inf")

    def __init__(self, token: RpcId | None, send: Callable[[JsonObject], None]) -> None:
        """Have notifications about progress sent with a token; without one nobody wants them."""
        self._token, self._send = token, send
        self._reported_at, self._last = 0.0, -1.0

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

    def report(self, done: float, total: float | None, text: str) -> None:
        """Send a notification how far it is, if one is wanted, and the last was not just now."""
        now = time.monotonic()
        if self._token is None or self.is_cancelled or done <= self._last:
            return
        if now - self._reported_at < PROGRESS_SECONDS and done != total:
            return
        self._reported_at, self._last = now, done
        known = {} if total is None else {"total": total}
        params = {"progressToken": self._token, "progress": done, **known, "message": text}
        self._send(notification("notifications/progress", params))
