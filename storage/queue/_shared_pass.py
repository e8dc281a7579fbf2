"""Reads the log for all queues whose messages are searched for there, in one pass as far as their parts of it meet.

Whoever needs a search makes it, and all others that wait go along. A server leaves long ones to its background, which
makes them piece by piece. A search that has come far waits for others that began later, where that makes less to read
for both together.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Final

from storage.queue.queue_hole import QueueHole, search_together
from storage.ranges import merge, total_length

PIECE: Final = 16 * 1024 * 1024
"""Bytes of log that are read at once, for some searches; for many proportionately more."""

MANY: Final = 1024
"""Searches for which the time that each of them takes is still short beside that of a piece."""


class SharedPass:
    """The searches that are not done. Safe to use from several threads; one of them reads at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._waiting: dict[QueueHole, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, hole: QueueHole) -> bool:
        return hole in self._waiting

    def add(self, holes: Iterable[QueueHole]) -> None:
        """Have some more holes searched, from now on in the pieces that are read for others too."""
        with self._lock:
            self._waiting |= dict.fromkeys(hole for hole in holes if not hole.is_done)

    def drop(self, hole: QueueHole) -> None:
        """Let a hole go that nobody asks for any more."""
        with self._lock:
            self._waiting.pop(hole, None)

    def clear(self) -> None:
        """Let all holes go."""
        with self._lock:
            self._waiting.clear()

    def progress(self) -> tuple[list[str], int]:
        """Return a sentence about each search for people, and the bytes of log that are still to be read for them."""
        with self._lock:
            waiting = list(self._waiting)
        left = merge((hole.position, hole.end) for hole in waiting)
        return [hole.sentence() for hole in waiting], total_length(left)

    def read_for(self, hole: QueueHole, most: int) -> Iterator[QueueHole]:
        """Search one hole, in up to `most` bytes of the log; yield it and others when they are done."""
        self.add([hole])
        with self._reading:
            stop = hole.position + most
            while not hole.is_done and hole.position < stop:
                yield from self._read_piece(hole, stop)

    def step(self) -> list[QueueHole]:
        """Read the next piece of the log; return the holes that are done."""
        with self._reading:
            lead = self._next()
            return [] if lead is None else self._read_piece(lead, lead.end)

    def _read_piece(self, lead: QueueHole, stop: int) -> list[QueueHole]:
        with self._lock:
            length = PIECE * (1 + len(self._waiting) // MANY)
            stop = max(min(stop, lead.position + length, lead.end), lead.position)
            others = [hole for hole in self._waiting if hole is not lead and _is_with(hole, lead, stop)]
        search_together([lead, *others], stop)
        done = [hole for hole in (lead, *others) if hole.is_done]
        with self._lock:
            for hole in done:
                self._waiting.pop(hole, None)
        return done

    def _next(self) -> QueueHole | None:
        """Return the hole that has least to read, or one behind it for which to wait costs it less than it has left."""
        with self._lock:
            first = min(self._waiting, key=lambda hole: hole.end - hole.position, default=None)
            if first is None:
                return None
            low, high = 2 * first.position - first.end, first.position
            behind = (hole for hole in self._waiting if low <= hole.position < high < hole.end)
            return min(behind, key=lambda hole: hole.position, default=first)


def _is_with(hole: QueueHole, lead: QueueHole, stop: int) -> bool:
    """Whether a piece of the log that is read for one hole, up to `stop`, has the next part of another one's."""
    if not lead.position <= hole.position < stop:
        return False
    if hole.log() is lead.log():
        return True
    ours, theirs = hole.log().segment_of(hole.position), lead.log().segment_of(lead.position)
    return ours is not None and theirs is not None and ours.file is theirs.file
