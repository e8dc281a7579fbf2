"""Units that say themselves what they are, for tests of how a queue's bounds are found among them."""

from collections.abc import Iterator

import numpy as np

from storage.queue.unit_standing import BROKEN, EMPTY, Places, Standing

LOG_BEGIN, LOG_END = 1000, 2000


class FakeUnits:
    """Units of which each says what it is: good, expired, lost, broken, beyond the log, or a stray within it."""

    class name:  # noqa: N801 - stands for a value
        topic, queue_id = "T", 0

    class log:  # noqa: N801
        minimum = LOG_BEGIN

    log_end = LOG_END

    def __init__(self, units: list[str]) -> None:
        self.units = units
        self.judged: list[int] = []

    def standing(self, number: int) -> Standing:
        self.judged.append(number)
        return {"good": Standing.SOUND, "expired": Standing.EXPIRED}.get(self.units[number], Standing.DOUBTFUL)

    def physical_offset(self, number: int) -> int:
        places = {"lost": EMPTY, "broken": BROKEN, "expired": number, "beyond": LOG_END + number}
        return places.get(self.units[number], LOG_BEGIN + number)

    def physical_offsets(self, start: int, stop: int) -> Iterator[tuple[int, Places]]:
        for first in reversed(range(0, len(self.units), 7)):
            begin, end = max(first, start), min(first + 7, stop)
            if begin < end:
                yield begin, np.array([self.physical_offset(number) for number in range(begin, end)], np.int64)
