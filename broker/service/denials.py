"""What accounts lacked when their requests were refused, for the log, the page and metrics.

Java clients up to 4.9 and Go clients take every refusal of a route for a topic that is not there, and say so. What they
really lack is known here alone: which account, and which line of its file would give it. A name that is no account's is
kept nowhere, since it may be a secret in the wrong field. What is kept is bounded, whatever clients ask for.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)

MOST_KEPT: Final = 256
"""Different wants that are kept; each of an account beyond them counts as the account's :data:`MORE`."""

AGAIN_SECONDS: Final = 3600.0
"""After so long the same want is a line of the log again."""


class Want(NamedTuple):
    """What a refused request lacked: whose it was, empty for no account's, and the line that would let it in.

    `add` is the member of plain_acl.yml with the line to add to it; empty where no line helps.
    """

    account: str
    lacks: str
    add: str = ""

    def sentence(self) -> str:
        """Say what is wanting, and what to add."""
        whose = f"account {self.account}" if self.account else "a client"
        return f"{whose} lacks {self.lacks}" + (f"; to give it, add to plain_acl.yml: {self.add}" if self.add else "")


NO_KEY: Final = Want("", "an access key, with which clients sign", "accounts: - accessKey: …")
UNKNOWN_KEY: Final = Want("", "an account: none has the access key that it sends", "accounts: - accessKey: …")
MORE: Final = "more than is listed"


@dataclass(slots=True)
class Denial:
    """How often something was wanting, and when last (ms)."""

    want: Want
    count: int = 0
    last_timestamp: int = 0
    logged_seconds: float = float("-inf")


class Denials:
    """The wants of all accounts at one store. Safe to use from several threads."""

    def __init__(self, *, logs: bool = True, clock_seconds: Callable[[], float] = time.monotonic) -> None:
        """With `logs`, log each want when it is new; a worker that reports to worker 0 leaves that to it."""
        self._logs, self._clock_seconds = logs, clock_seconds
        self._lock = threading.Lock()
        self._kept: dict[Want, Denial] = {}

    def note(self, want: Want, count: int = 1) -> None:
        """Count a refused request."""
        with self._lock:
            if want not in self._kept and len(self._kept) >= MOST_KEPT:
                want = Want(want.account, MORE)
            denial = self._kept.setdefault(want, Denial(want))
            denial.count += count
            denial.last_timestamp = time.time_ns() // 1_000_000
            now = self._clock_seconds()
            is_due = self._logs and now - denial.logged_seconds >= AGAIN_SECONDS
            if is_due:
                denial.logged_seconds = now
        if is_due:
            logger.warning("--acl: a request was refused: %s", want.sentence())

    def all(self) -> list[Denial]:
        """List the denials that are kept, the newest first."""
        with self._lock:
            return sorted(self._kept.values(), key=lambda each: -each.last_timestamp)

    def settle(self) -> list[tuple[Want, int]]:
        """Hand the counts since the last call to worker 0, and forget them here."""
        with self._lock:
            kept, self._kept = self._kept, {}
        return [(want, denial.count) for want, denial in kept.items()]

    def take(self, counted: Iterable[tuple[Iterable[str], int]]) -> None:
        """Count what another worker has counted."""
        for want, count in counted:
            self.note(Want(*want), count)
