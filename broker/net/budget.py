"""The budget of all connections of a server, and which connection is closed first when it is exceeded.

Connections whose clients have sent part of a request are in one line, those whose clients do not read in another, in
the order in which that began; the first of a line is closed first. Everything here happens on the event loop.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from broker.limits import Limits
from storage.amounts import counted

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 0.25
"""How often the lines are looked at. What waits to be read is summed up only then."""

COMPLAINTS = 20
"""Lines about clients that are logged in one period; a client must not be able to fill a disk with them."""

COMPLAINTS_SECONDS = 10.0

PENDING_REQUEST_BYTES = 2048
"""Bytes that a waiting request is counted with, besides its own."""


class BudgetedConnection(Protocol):
    """A connection, as far as its share of the budget is concerned."""

    @property
    def owes_rest(self) -> bool:
        """Whether its client has sent part of a request and can send the rest, so that the client is the slow one."""

    def drop(self, reason: str) -> None:
        """Close at once, and say why."""


class ConnectionBudget:
    """The running totals of one server. `clock_seconds` never goes back."""

    def __init__(self, limits: Limits, clock_seconds: Callable[[], float]) -> None:
        self.limits = limits
        self.in_flight = 0
        """Bytes that waiting requests hold."""
        self.received = 0
        """Bytes received of requests that cannot be answered yet."""
        self.unsent = 0
        """Bytes that waited to be read by their clients when that was last looked at."""
        self._clock_seconds = clock_seconds
        self._senders: dict[BudgetedConnection, tuple[int, float]] = {}
        self._slow_readers: dict[BudgetedConnection, float] = {}
        self._complaints = 0
        self._complaints_end = 0.0

    # ------------------------------------------------------------------ what connections report

    def count_waiting(self, size: int) -> None:
        """Count in the bytes that a waiting request holds, or out where `size` is below 0."""
        self.in_flight += size

    def holds(self, connection: BudgetedConnection, size: int, *, is_new: bool) -> None:
        """Note that a connection holds `size` bytes; `is_new` when a request has been completed since the last time."""
        before = self._senders.pop(connection, None) if is_new else self._senders.get(connection)
        known, since = before or (0, self._clock_seconds())
        self.received += size - known
        if is_new and before is not None:
            since = self._clock_seconds()
        if size:
            self._senders[connection] = size, since
        elif before is not None and not is_new:
            del self._senders[connection]
        while self.received > self.limits.received_bytes and self._senders:
            self._drop_first_sender("more bytes of unfinished requests are held than received_bytes allows")

    def reads_slowly(self, connection: BudgetedConnection) -> None:
        """Note that a client gets no further answers until it has read."""
        self._slow_readers.setdefault(connection, self._clock_seconds())

    def reads_again(self, connection: BudgetedConnection) -> None:
        """Note that a client has read again."""
        self._slow_readers.pop(connection, None)

    def forget(self, connection: BudgetedConnection) -> None:
        """Remove a connection that is gone from all lines."""
        size, _ = self._senders.pop(connection, (0, 0.0))
        self.received -= size
        self._slow_readers.pop(connection, None)

    # ------------------------------------------------------------------ what the server asks

    def sweep(self, unsent: Mapping[Any, Callable[[], int]]) -> None:
        """Close connections that have been slow for too long, or hold too many bytes.

        `unsent` has for each open connection a function that returns how many bytes wait for its client to read them.
        """
        now = self._clock_seconds()
        self._sweep_senders(now)
        for connection, since in list(self._slow_readers.items()):
            if now - since < self.limits.reader_seconds:
                break
            del self._slow_readers[connection]
            connection.drop(f"has not read its answers for {self.limits.reader_seconds} s (reader_seconds)")
        # All of ten thousand connections in half a millisecond, so that nobody waits for it.
        self.unsent = sum([size() for size in unsent.values()])
        if self.unsent > self.limits.unsent_bytes:
            self._drop_readers(
                {connection: size for connection, unsent_size in unsent.items() if (size := unsent_size())}
            )

    def complain(self, text: str, *arguments: object) -> None:
        """Log a warning about a client, unless there were many of late."""
        now = self._clock_seconds()
        if now >= self._complaints_end:
            if self._complaints > COMPLAINTS:
                more = counted(self._complaints - COMPLAINTS, "more such warning was", "more such warnings were")
                logger.warning("%s not logged", more)
            self._complaints, self._complaints_end = 0, now + COMPLAINTS_SECONDS
        self._complaints += 1
        if self._complaints <= COMPLAINTS:
            logger.warning(text, *arguments)

    def _sweep_senders(self, now: float) -> None:
        for connection, (size, since) in list(self._senders.items()):
            if now - since < self.limits.frame_seconds:
                break
            if connection.owes_rest:
                self._drop_first_sender(f"took longer than {self.limits.frame_seconds} s for a request (frame_seconds)")
            else:
                # It waits for us: its time begins again, and it goes to the end of the line.
                del self._senders[connection]
                self._senders[connection] = size, now

    def _drop_first_sender(self, reason: str) -> None:
        connection = next(iter(self._senders))
        size, _ = self._senders.pop(connection)
        self.received -= size
        connection.drop(reason)

    def _drop_readers(self, unsent: dict[BudgetedConnection, int]) -> None:
        """Close clients that have not read for longest, then those with most to read, until the sum is in its limit."""
        rest = sorted(unsent.keys() - self._slow_readers.keys(), key=lambda each: -unsent[each])
        for connection in [*self._slow_readers, *rest]:
            if self.unsent <= self.limits.unsent_bytes:
                break
            self.unsent -= unsent.get(connection, 0)
            connection.drop("more bytes wait to be read than unsent_bytes allows")
