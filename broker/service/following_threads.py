"""The two threads that follow a store while it is served, and take in what a running broker writes.

One looks at the end of the log some sixty times a second and wakes the pulls that wait for what came; the other looks
once a second at everything else. Neither is the event loop's: it only answers the pulls that were woken.
"""

import logging
import threading
import time
from collections.abc import Callable

from broker.service.long_polling import LongPolling
from protocol.errors import RocketLensError
from storage.store.message_store import MessageStore

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.015
"""Between two looks at the end of the log. Most of what a look costs is that the thread is woken for it."""

WATCH_SECONDS = 1.0
"""Between two looks at files and configuration."""

AFTER_ERROR_SECONDS = 1.0


class FollowingThreads:
    """Keep a served store up to date; `finish_scan` is called when more of the log is to be scanned.

    The problems that the store has at first count as reported. A problem that comes later is logged once, as a warning,
    when two looks in a row have found it: a broker takes a configuration file away while it writes it anew.
    """

    def __init__(self, store: MessageStore, polls: LongPolling, finish_scan: Callable[[], None]) -> None:
        self._store = store
        self._store_follower = store.follower()
        self._polls = polls
        self._finish_scan = finish_scan
        self._must_stop = False
        self._logged_errors: dict[str, str] = {}
        self._logged_problems = self._seen_problems = frozenset(store.problems)

    def start(self) -> None:
        """Follow from now on, on threads that keep no stopped process alive."""
        for name, work in (("follow", self._follow), ("watch", self._watch)):
            threading.Thread(target=self._run, args=(name, work), name=name, daemon=True).start()

    def stop(self) -> None:
        """Follow no longer; what is being looked at is looked at to its end."""
        self._must_stop = True

    def _run(self, name: str, work: Callable[[], float]) -> None:
        """Do some work again and again; what goes wrong is said once, and tried again."""
        pause = 0.0
        while not self._must_stop:
            time.sleep(pause)  # half the price of waiting for an event
            try:
                pause = work()
                self._logged_errors.pop(name, None)
            except Exception as error:
                pause = AFTER_ERROR_SECONDS
                self._log_error(name, error)

    def _follow(self) -> float:
        arrivals = self._store_follower.poll()
        if arrivals is None:
            return POLL_SECONDS
        self._polls.wake(arrivals.queues)
        return 0.0 if arrivals.more else POLL_SECONDS

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
