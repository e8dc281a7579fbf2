"""Work on a whole store that takes seconds or minutes, done once for all clients that ask for it at the same time.

An answer may be that it is under way and how far; the client then asks again. The work ends by itself when no client
has asked for a while: closing the page stops it. What came of it is kept, and answered until it is too old.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from protocol.errors import RocketLensError

KEPT_SECONDS: Final = 30.0
"""How long an outcome is answered before the work is done anew, unless a client asks for another age."""

PATIENCE_SECONDS: Final = 5.0
"""How long after the last request a work is given up."""

WAITED_SECONDS: Final = 0.25
"""How long an answer waits for a work that may be done any moment."""

MOST_KEPT: Final = 8
"""Works of one kind whose outcomes are kept, or which run, at the same time."""

Outcome = TypeVar("Outcome")
Report: TypeAlias = Callable[[int], None]
"""Takes a number that says how far the work is; raises where it is to end."""
Work: TypeAlias = Callable[[Report], Outcome]


class _NobodyAsks(Exception):
    """The work is given up."""


@dataclass(frozen=True, slots=True)
class WorkState(Generic[Outcome]):
    """How far a work is, or what came of it: `outcome`, or why nothing did, a sentence.

    While it runs, `progress` is what it reported last, and `outcome` what the work before it brought, if there was one.
    """

    is_running: bool
    progress: int
    seconds: float
    outcome: Outcome | None
    problem: str | None


class KeptWorks(Generic[Outcome]):
    """One work for each of several keys; safe to use from several threads."""

    def __init__(self, thread_name: str, subject: str) -> None:
        """`subject` begins a sentence that says what failed."""
        self._lock = threading.Lock()
        self._by_key: dict[str, _KeptWork[Outcome]] = {}
        self._thread_name, self._subject = thread_name, subject

    def close(self) -> None:
        """Give up what is under way."""
        with self._lock:
            for each in self._by_key.values():
                each.is_closed = True

    def ask(
        self, key: str, work: Work[Outcome], maximum_age: float, waited_seconds: float = WAITED_SECONDS
    ) -> WorkState[Outcome]:
        """How far the work of a key is; it is begun if what is known is older than `maximum_age` seconds.

        Waits up to `waited_seconds` for its end. Raises RocketLensError where `MOST_KEPT` others are running.
        """
        with self._lock:
            if key not in self._by_key and len(self._by_key) >= MOST_KEPT:
                self._give_up_one()
            kept = self._by_key.setdefault(key, _KeptWork(self._thread_name, self._subject))
        return kept.ask(work, maximum_age, waited_seconds)

    def _give_up_one(self) -> None:
        """Forget the outcome that was asked for longest ago."""
        done = [key for key, each in self._by_key.items() if not each.is_running]
        if not done:
            raise RocketLensError(f"{self._subject} is under way for {len(self._by_key)} others: ask again in a while")
        del self._by_key[min(done, key=lambda key: self._by_key[key].asked_at)]


class _KeptWork(Generic[Outcome]):
    """One work, which runs at most once at a time."""

    def __init__(self, thread_name: str, subject: str) -> None:
        self.is_closed = False
        self._thread_name, self._subject = thread_name, subject
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.asked_at = self._started = 0.0
        self._progress = 0
        self._outcome: Outcome | None = None
        self._problem: str | None = None
        self._ended = -KEPT_SECONDS

    @property
    def is_running(self) -> bool:
        """Whether it is under way."""
        return self._thread is not None

    def ask(self, work: Work[Outcome], maximum_age: float, waited_seconds: float) -> WorkState[Outcome]:
        """How far it is, or what came of it."""
        with self._lock:
            self.asked_at = time.monotonic()
            thread = self._thread
            is_known = self._outcome is not None or self._problem is not None
            if thread is None and (time.monotonic() - self._ended > maximum_age or not is_known):
                thread = threading.Thread(target=self._run, args=(work,), name=self._thread_name, daemon=True)
                self._thread, self._started, self._progress = thread, time.monotonic(), 0
                thread.start()
        if thread is not None:
            thread.join(waited_seconds)
        with self._lock:
            is_running = thread is not None and self._thread is thread
            seconds = time.monotonic() - self._started
            problem = None if is_running else self._problem
            return WorkState(is_running, self._progress, seconds, self._outcome, problem)

    def _run(self, work: Work[Outcome]) -> None:
        outcome, problem = None, None
        try:
            outcome = work(self._report)
        except _NobodyAsks:
            pass
        except RocketLensError as error:
            problem = str(error)
        except Exception:
            self._end(None, f"{self._subject} failed; the server's log has the reason")
            raise
        self._end(outcome, problem)

    def _end(self, outcome: Outcome | None, problem: str | None) -> None:
        with self._lock:
            self._thread = None
            self._problem = problem
            if outcome is not None:
                self._outcome = outcome
            if outcome is not None or problem is not None:
                self._ended = time.monotonic()

    def _report(self, progress: int) -> None:
        if self.is_closed or time.monotonic() - self.asked_at > PATIENCE_SECONDS:
            raise _NobodyAsks
        self._progress = progress
