"""The two threads that follow a store while it is served, and read what a running broker writes.

One looks at the end of the log some sixty times a second and wakes the pulls that wait for new messages; the other
looks once a second at everything else. Neither runs on the event loop, which only answers the pulls that were woken.
"""

import logging
import threading
from collections.abc import Callable

from broker.service.long_polling import LongPolling
from protocol.errors import RocketLensError
from storage.store.message_store import MessageStore

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.015
"""Seconds between two looks at the end of the log. Compiled code makes most of them, without the interpreter's lock: to
take that from a busy event loop so often costs it a twentieth of its time (`benchmarks.pull`)."""

WATCH_SECONDS = 1.0
"""Seconds between two looks at files and configuration."""

AFTER_ERROR_SECONDS = 1.0


class FollowingThreads:
    """Keep a served store up to date; `finish_scan` is called when more of the log is to be scanned.

    The problems that the store has at the start count as reported. A later problem is logged once, as a warning, when
    two looks in a row have found it: a broker removes a configuration file for a moment while it writes it anew.
    """

    def __init__(self, store: MessageStore, polls: LongPolling, finish_scan: Callable[[], None]) -> None:
        self._store = store
        self._store_follower = store.follower()
        self._polls = polls
        self._finish_scan = finish_scan
        self._stopped = threading.Event()
        self._logged_errors: dict[str, str] = {}
        self._logged_problems = self._seen_problems = frozenset(store.problems)

    def start(self) -> None:
        """Start the threads; they are daemon threads and do not keep the process alive."""
        for name, work in (("follow", self._follow), ("watch", self._watch)):
            threading.Thread(target=self._run, args=(name, work), name=name, daemon=True).start()

    def stop(self) -> None:
        """Stop following, so that nothing holds the store; a look that has begun is finished."""
        self._stopped.set()

    def _run(self, name: str, work: Callable[[], float]) -> None:
        """Do some work again and again; an error is logged once, and the work is tried again."""
        pause = 0.0
        while not self._stopped.wait(pause):  # no further look after a stop: the process may close the store's files
            try:
                pause = work()
                self._logged_errors.pop(name, None)
            except Exception as error:
                pause = AFTER_ERROR_SECONDS
                self._log_error(name, error)

    def _follow(self) -> float:
        arrivals = self._store_follower.poll()
        if arrivals is not None:
            self._polls.wake(arrivals.queues)
        if arrivals is None or not arrivals.more:
            self._store_follower.rest(POLL_SECONDS)
        return 0.0

    def _watch(self) -> float:
        if self._store_follower.watch():
            self._finish_scan()
        self._log_problems()
        return WATCH_SECONDS

    def _log_problems(self) -> None:
        problems = self._store.problems
        lasting = [problem for problem in problems if problem in self._seen_problems]
        for problem in lasting:
            if problem not in self._logged_problems:
                logger.warning("%s", problem)
        self._logged_problems, self._seen_problems = frozenset(lasting), frozenset(problems)

    def _log_error(self, name: str, error: Exception) -> None:
        if self._logged_errors.get(name) == str(error):
            return
        self._logged_errors[name] = str(error)
        if isinstance(error, RocketLensError):
            logger.warning("the store cannot be followed (%s); what was read before is still served", error)
        else:
            logger.error("the store cannot be followed; what was read before is still served", exc_info=error)
