"""How far the units of a queue stand, byte for byte, where a rebuild puts them."""

from typing import Any

import msgspec
import numpy as np

from storage.doctor.queues.unit_files import UnitFiles, Units


class CleanFront(msgspec.Struct, frozen=True):
    """Units in the places [start, end) that are as they should be, and the bytes of the last of them."""

    start: int
    end: int
    last: bytes = b""

    def last_unit(self, dtype: np.dtype[Any]) -> Units:
        """The last of the units, or none."""
        return np.frombuffer(self.last, dtype)

    def next_number(self, dtype: np.dtype[Any]) -> int:
        """The number of the message that should follow, −1 where none is known."""
        for unit in self.last_unit(dtype):
            return int(unit["base_offset"]) + int(unit["batch_size"]) if "base_offset" in unit.dtype.names else self.end
        return -1


class FrontCheck:
    """Compares a queue's messages, as they come, with its files; `front` is what is sound of it so far."""

    def __init__(
        self, files: UnitFiles, front: CleanFront | None = None, *, is_batch: bool = False, goes_on: bool = False
    ) -> None:
        """Nothing is sound yet but a `front`, if it is known. `goes_on`: messages come that follow others.

        Batches stand behind one another: their first one is looked for then, at the place that its offset leads to.
        """
        self._files, self._is_batch, self._goes_on = files, is_batch, goes_on
        self.front = front or CleanFront(files.first, files.first)

    def stand_in_place(self, number: int, units: Units) -> bool:
        """Whether messages follow those before them, and their units do too, byte for byte; then they are sound."""
        front, following = self.front, self.front.next_number(self._files.dtype)
        is_first = front.end == front.start
        place = number
        if self._is_batch:
            begins_within = is_first and self._goes_on
            place += self._files.place_of(int(units["physical_offset"][0])) if begins_within else front.start
            expected = np.concatenate([[following], (units["base_offset"] + units["batch_size"])[:-1]])
            follow = bool((units["base_offset"] == expected)[is_first:].all())
        else:
            follow = number == following or (is_first and number >= front.start)
        if not follow or self._files.read(place, len(units)).tobytes() != units.tobytes():
            return False
        self.front = CleanFront(place if is_first else front.start, place + len(units), units[-1:].tobytes())
        return True
