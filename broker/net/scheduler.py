"""Decide whose burst of requests is answered next, so that no client waits long for the bursts of others.

A connection answers what it reads at once, up to the length of one turn. The rest of a burst waits in a line that all
connections share: each turn of the event loop serves one connection of it, and then looks at the sockets again. And
when the bursts that were read in one turn of the loop have had their share, further ones join that line unanswered.
"""

from collections.abc import Callable
from typing import Protocol

TURN_BYTES = 256 * 1024
"""Bytes of answers after which a turn is over: they are written, and a slow reader is noticed."""

TURN_FRAMES = 128
"""Requests after which a turn is over."""

SLICE_FRAMES = 32
"""Requests after which a turn is over while other bursts wait."""

SMALL_READ = 16 * 1024
"""Bytes of requests up to which a read is no burst: a hundred and sixty views, or sixteen pulls of fifty tags each. By
`benchmarks.pull --rates` such a pull takes 0.28 of a Java broker's CPU with 8 KiB, and 0.18 with 16."""

SHARE_BYTES = 16 * 1024
"""Bytes of bursts that one turn of the event loop answers before the others have to wait for the next."""

SLICE_BYTES = 4 * 1024
"""Bytes of a burst that the fast lane answers at a time while other bursts wait."""


class ScheduledConnection(Protocol):
    """A connection that has received more than was answered."""

    def go_on(self) -> None:
        """Answer for one turn; join the line again for what is left over."""


class Scheduler:
    """The line of the bursts of one event loop; `call_soon` has work done in the loop's next turn."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._line: dict[ScheduledConnection, None] = {}
        self._spent = 0
        self._is_due = False

    def must_wait(self, size: int) -> bool:
        """Whether a read of `size` bytes is a burst for which this turn of the event loop has no time left."""
        return size > SMALL_READ and self._spent >= SHARE_BYTES

    @property
    def is_crowded(self) -> bool:
        """Whether bursts wait."""
        return bool(self._line)

    def stop(self, size: int) -> int:
        """Up to where to answer `size` bytes of requests in one go."""
        return SLICE_BYTES if self._line and size > SMALL_READ else size

    def spend(self, size: int) -> None:
        """Note that `size` bytes of requests were answered."""
        if size > SMALL_READ:
            self._spent += size
            self._run_soon()

    def join(self, connection: ScheduledConnection) -> None:
        """Put a connection at the end of the line, unless it is in the line already."""
        self._line[connection] = None
        self._run_soon()

    def _run_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._run)

    def _run(self) -> None:
        """Have the first in the line go on."""
        self._is_due, self._spent = False, 0
        if self._line:
            connection = next(iter(self._line))
            del self._line[connection]
            if self._line:
                self._run_soon()
            connection.go_on()
