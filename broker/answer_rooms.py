"""Memory for the answers of the fast lane, which transports send from where they were written.

Answers of some length are not copied but handed on as they lie. Mostly they are sent at once, and the same memory takes
the next ones, which keeps it in the processor's cache; a client that reads slowly keeps its own, and others get another
room. A room is free once nobody refers to it but this list, which CPython's reference counts tell.
"""

from sys import getrefcount

import numpy as np
import numpy.typing as npt

MOST_ROOMS = 8
"""Rooms there are at most; while all others wait to be sent, answers in the last one are copied."""

SHORTEST_HANDED_ON = 64 * 1024
"""Bytes of answers that are handed on as they lie; connections join fewer with others."""

Room = npt.NDArray[np.uint8]


class AnswerRooms:
    """Rooms of one size, for one thread."""

    def __init__(self, size: int) -> None:
        """``size`` in bytes."""
        self._size = size
        self._rooms: list[Room] = []
        self._addresses: list[int] = []
        self._current = self._add_room()
        self._idle = getrefcount(self._rooms[0])

    def __len__(self) -> int:
        return len(self._rooms)

    def address(self) -> int:
        """Where the next answers are to be written."""
        if getrefcount(self._rooms[self._current]) != self._idle:
            self._current = self._find_free()
        return self._addresses[self._current]

    def take(self, length: int) -> bytes | memoryview:
        """The first ``length`` bytes of what was written at that address."""
        written = self._rooms[self._current].data[:length]
        is_last = self._current == MOST_ROOMS - 1
        return bytes(written) if length < SHORTEST_HANDED_ON or is_last else written

    def _find_free(self) -> int:
        """The number of a room that nobody sends from: the first, or a new one."""
        for number in range(len(self._rooms)):
            if getrefcount(self._rooms[number]) == self._idle:
                return number
        return self._add_room()

    def _add_room(self) -> int:
        room: Room = np.zeros(self._size, dtype=np.uint8)
        self._addresses.append(room.ctypes.data)
        self._rooms.append(room)
        return len(self._rooms) - 1
