"""What is known of a queue stays known while messages come to it: only the new units are looked at.

A queue ends where a fresh look would find its end (:mod:`storage.consume_queue`): behind its last unit that holds, of
those before the first invalid one.
"""

from typing import NamedTuple, Protocol

from storage.queues.queue_files import QueueFiles
from storage.recently_used import RecentlyUsed

REMEMBERED = 16_384
"""Queues whose ends stay known; of each some hundred bytes, and the list of its files."""


class Known(NamedTuple):
    """What was found out about a queue, in numbers of units: it ends at ``end``; units stand up to ``written``.

    ``generation`` tells when its directory was found; ``log_minimum`` and ``log_end`` are those of the log that it was
    held against. ``last`` is the last unit that holds: a queue that was deleted and made anew may have the same names
    and inodes.
    """

    generation: object
    files: QueueFiles
    log_minimum: int
    log_end: int
    minimum: int
    end: int
    written: int
    last: object

    def renewed(self, generation: object, log_minimum: int, capacity: int) -> "Known | None":
        """The same for the files that are there now, None where they are others; ``capacity`` units fit those known."""
        is_full = self.written >= capacity and self.files.has_successor()
        if generation is self.generation and log_minimum == self.log_minimum and not is_full:
            return self
        files = self.files.renewed()
        return self._replace(generation=generation, files=files) if files.continues(self.files) else None


KnownQueues = RecentlyUsed[Known]


class Units(Protocol):
    """The units of a queue, by their numbers."""

    @property
    def log_end(self) -> int:
        """Where the log ends that they are held against."""
        ...

    def last_within(self, floor: int, end: int) -> int:
        """Behind the last unit of those in [floor, end) that points into the log; ``floor`` where none does."""
        ...

    def is_stray(self, number: int) -> bool:
        """Whether a unit points beyond the log, or to what is no message of the queue."""
        ...


def end_before(units: Units, floor: int, written: int) -> int:
    """Where a queue ends whose units stand up to ``written``, of which those before ``floor`` hold."""
    while written > floor:
        written = units.last_within(floor, written)
        if written > floor and not units.is_stray(written - 1):
            break
        written = max(written - 1, floor)
    return written


def end_after(units: Units, known: Known, written: int) -> int:
    """The same, going on from what is known.

    Where units of an older log are overwritten one by one, ``written`` stays, and there is no need to judge those that
    follow again and again.
    """
    if units.log_end < known.log_end:
        return end_before(units, 0, known.end)
    if written != known.written:
        return end_before(units, known.end, written)
    end = known.end
    while end < written and not units.is_stray(end):
        end += 1
    return end
