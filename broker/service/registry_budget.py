"""One budget of bytes for everything that clients report: groups, members, offsets, locks, filters.

Counts of entries alone do not limit memory, since a client chooses how long its names are. Each registry has a room in
the budget: the part of it that it may take at most, so that a flood of one kind leaves memory for the others. A new
entry that no longer fits is refused; entries that are kept already stay.
"""

import sys
import threading
from typing import Final

from protocol.errors import RocketLensError

DEFAULT_BYTES: Final = 256 * 1024 * 1024


class BudgetSpent(RocketLensError):
    """The budget has no bytes left for what a client reports; its request is answered SYSTEM_BUSY."""


class RegistryBudget:
    """The bytes of one server process. Safe to use from several threads."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self._refused = 0
        # The finalizer of a filter may run in the middle of `take`, on the same thread.
        self._lock = threading.RLock()

    def room(self, what: str, part: int) -> "Room":
        """Make a room that takes at most 1/`part` of the budget; `what` names its entries, in the plural."""
        return Room(self, what, self.limit // part)

    def take(self, room: "Room", size: int) -> bool:
        """Add `size` bytes to a room; return False, and add none, if they do not fit. A negative size always fits."""
        with self._lock:
            if size > 0 and not room.fits(size):
                self._refused += 1
                return False
            self.used += size
            room.count(size)
            return True

    def new_refusals(self) -> int:
        """Return the number of refusals since the last call."""
        with self._lock:
            refused, self._refused = self._refused, 0
            return refused


class Room:
    """The bytes of one registry. `limit` is the most that it may take, even while others take nothing."""

    def __init__(self, budget: RegistryBudget, what: str, limit: int) -> None:
        self._budget = budget
        self._what = what
        self.limit = limit
        self.used = 0

    def take(self, size: int) -> bool:
        """Add `size` bytes, or subtract them where it is negative; return False, and add none, if they do not fit."""
        return self._budget.take(self, size)

    def count(self, size: int) -> None:
        """Add `size` bytes without a check; called by the budget alone."""
        self.used += size

    def give_back(self, size: int) -> None:
        """Subtract `size` bytes."""
        self._budget.take(self, -size)

    def fits(self, size: int) -> bool:
        """Whether `size` bytes would fit now."""
        return self.used + size <= self.limit and self._budget.used + size <= self._budget.limit

    @property
    def spent(self) -> BudgetSpent:
        """The error for a request that needs more bytes than are left."""
        return BudgetSpent(
            f"{self._what} of all clients hold as many bytes as this server gives them (--limit registry_bytes="
            f"{self._budget.limit}); try again when others have left"
        )


def room_apart(what: str) -> Room:
    """Make a room in a budget of its own, for a registry that is used alone."""
    return RegistryBudget().room(what, 1)


def size_of(*texts: str) -> int:
    """The number of bytes that texts take in memory."""
    return sum(map(sys.getsizeof, texts))
