"""How far the units of a queue stand, byte for byte, where a rebuild puts them."""

from typing import NamedTuple

import numpy as np

from storage.doctor.queues.unit_files import UnitFiles, Units


class CleanFront(NamedTuple):
    """Units in the places [start, end) that are as they should be, and the last of them."""

    start: int
    end: int
    last: Units

    @property
    def next_number(self) -> int:
        """The number of the message that should follow, −1 where none is known."""
        if self.last.size and "base_offset" in (self.last.dtype.names or ()):
            return int(self.last["base_offset"][0]) + int(self.last["batch_size"][0])
        return self.end if self.last.size else -1


class FrontCheck:
    """Holds a queue's messages, as they come, against its files; `front` is what is sound of it so far."""

    def __init__(self, files: UnitFiles, front: CleanFront | None = None, *, is_batch: bool = False) -> None:
        """Nothing is sound yet but a `front`, if it is known."""
        self._files, self._is_batch = files, is_batch
        self.front = front or CleanFront(files.first, files.first, np.zeros(0, files.dtype))

    def stand_in_place(self, number: int, units: Units) -> bool:
        """Whether messages follow those before them, and their units do too, byte for byte; then they are sound."""
        front = self.front
        is_first = front.end == front.start
        place = number + (front.start if self._is_batch else 0)
        if self._is_batch:
            expected = np.concatenate([[front.next_number], (units["base_offset"] + units["batch_size"])[:-1]])
            follow = bool((units["base_offset"] == expected)[is_first:].all())
        else:
            follow = number == front.next_number or (is_first and number >= front.start)
        if not follow or self._files.read(place, len(units)).tobytes() != units.tobytes():
            return False
        self.front = CleanFront(place if is_first else front.start, place + len(units), units[-1:].copy())
        return True
