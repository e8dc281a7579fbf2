"""Which bytes of `timerlog/` are units."""

import numpy as np

from storage.layout.timer_log import TIMER_UNIT, TIMER_UNIT_DTYPE, are_units


def test_blanks_and_what_was_never_written_are_no_units() -> None:
    rows = [
        (52, -1, 1, 1, 1, 0, 9, 0, 0),
        (52, -1, 7, 1, 1, 99, 9, 0, 0),
        (104, 0, -875286124, 0, 0, 0, 0, 0, 0),
        (0, 0, 0, 0, 0, 0, 0, 0, 0),
        (52, -1, 8, 1, 1, 0, 9, 0, 0),
        (52, -1, 1, 1, 1, -1, 9, 0, 0),
    ]
    units = np.frombuffer(b"".join(TIMER_UNIT.pack(*row) for row in rows), TIMER_UNIT_DTYPE)
    assert are_units(units).tolist() == [True, True, False, False, False, False]
