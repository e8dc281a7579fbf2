"""One budget of bytes for all that registries remember of what clients told: groups, members, offsets, locks, filters.

Counts alone bound nothing: a client chooses how long its names are. Each registry has a room in the budget, which may
take a part of it, so that one kind of flood leaves the others what they need. What no longer fits is refused to who is
new; whoever is in keeps what he has.
"""

import sys
import threading
from typing import Final

from protocol.errors import RocketLensError

DEFAULT_BYTES: Final = 256 * 1024 * 1024


class BudgetSpent(RocketLensError):
    """There is no room left for what a client wants remembered; it is answered SYSTEM_BUSY."""


class RegistryBudget:
    """The bytes of one server process. Safe to use from several threads."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self._refused = 0
        # What ends a filter may come in the middle of taking room, on the same thread.
        self._lock = threading.RLock()

    def room(self, what: str, part: int) -> "Room":
        """A room for `what`, in the plural, which takes at most 1/`part` of the budget."""
        return Room(self, what, self.limit // part)

    def take(self, room: "Room", size: int) -> bool:
        """Count in `size` bytes of a room unless that is more than there is; fewer bytes than none always fit."""
        with self._lock:
            if size > 0 and not room.fits(size):
                self._refused += 1
                return False
            self.used += size
            room.count(size)
            return True

    def new_refusals(self) -> int:
        """How often something was refused for want of room since this was last asked."""
        with self._lock:
            refused, self._refused = self._refused, 0
            return refused


class Room:
    """The bytes of one registry. `limit` is the most it may take, even while others take nothing."""

    def __init__(self, budget: RegistryBudget, what: str, limit: int) -> None:
        self._budget = budget
        self._what = what
        self.limit = limit
        self.used = 0

    def take(self, size: int) -> bool:
        """Count in so many bytes, or out where `size` is below 0; False if they do not fit, and nothing is counted."""
        return self._budget.take(self, size)

    def count(self, size: int) -> None:
        """Note so many bytes that the budget has counted in, or out; called by the budget alone."""
        self.used += size

    def give_back(self, size: int) -> None:
        """Count out so many bytes."""
        self._budget.take(self, -size)

    def fits(self, size: int) -> bool:
        """Whether so many bytes would fit now."""
        return self.used + size <= self.limit and self._budget.used + size <= self._budget.limit

    @property
    def spent(self) -> BudgetSpent:
        """The error of who wants more than is left."""
        return BudgetSpent(
            f"{self._what} of all clients hold as many bytes as this server gives them (--limit registry_bytes="
            f"{self._budget.limit}); try again when others have left"
        )


def room_apart(what: str) -> Room:
    """A room in a budget of its own, for a registry that stands alone."""
    return RegistryBudget().room(what, 1)


def size_of(*texts: str) -> int:
    """Bytes that texts take in memory."""
    return sum(map(sys.getsizeof, texts))
