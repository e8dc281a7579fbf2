"""Units that say themselves what they are, for tests of how a queue's bounds are found among them."""

import numpy as np

from storage.files.waiting import all_of
from storage.queue.unit_standing import BROKEN, EMPTY, Standing

LOG_BEGIN, LOG_END = 1000, 2000


class FakeUnits:
    """Units of which each says what it is: good, expired, lost, broken, beyond the log, or a stray within it."""

    class name:  # noqa: N801 - stands for a value
        topic, queue_id = "T", 0

    class log:  # noqa: N801
        minimum, end = LOG_BEGIN, LOG_END

    def __init__(self, units: list[str]) -> None:
        self.units = units
        self.judged: list[int] = []

    def standing(self, number):
        self.judged.append(number)
        yield from ()
        return {"good": Standing.SOUND, "expired": Standing.EXPIRED}.get(self.units[number], Standing.DOUBTFUL)

    def physical_offset(self, number):
        yield from ()
        places = {"lost": EMPTY, "broken": BROKEN, "expired": number, "beyond": LOG_END + number}
        return places.get(self.units[number], LOG_BEGIN + number)

    def blocks(self, start: int, stop: int) -> list[tuple[int, int]]:
        found = [(max(first, start), min(first + 7, stop)) for first in range(0, len(self.units), 7)]
        return [(begin, end) for begin, end in found if begin < end]

    def physical_offsets(self, first, stop):
        return np.array((yield from all_of(map(self.physical_offset, range(first, stop)))), np.int64)
