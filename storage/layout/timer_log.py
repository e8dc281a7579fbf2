"""`timerlog/`: what a broker's timer has taken from its topic, a unit for each message, in files of 100 MiB.

The units of one slot of `timerwheel` are a list, from the last one back; the wheel and the units name places in
`timerlog/`, and each unit the place of its message in the commit log.

TIMER_UNIT
offset  size  type   field                    meaning
0       4     i32    size                     of the unit; in a BLANK, which closes a file, the bytes that are left
4       8     i64    previous_position        of the unit before it in the slot, by offset over all files; -1: none
12      4     i32    magic                    1 plus 2 (stored again later) plus 4 (cancels another message)
16      8     i64    written_timestamp        when the timer took it, ms
24      4     i32    delay                    from then until it is due, ms
28      8     i64    physical_offset          of the message
36      4     i32    message_size             its bytes
40      4     i32    topic_hash               of its real topic
44      8     i64    reserved                 0

Source: other-formats §5.
"""

from pathlib import Path
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

TIMER_LOG: Final = "timerlog"
TIMER_WHEEL: Final = "timerwheel"
WHEEL_BYTES: Final = 7 * 24 * 3600 * 2 * 32
"""Bytes of the file of the wheel: slots of 32 bytes for each second of two weeks."""
TIMER_UNIT: Final = Struct(">iqiqiqiiq")
TIMER_UNIT_DTYPE: Final = np.dtype(
    [
        ("size", ">i4"),
        ("previous_position", ">i8"),
        ("magic", ">i4"),
        ("written_timestamp", ">i8"),
        ("delay", ">i4"),
        ("physical_offset", ">i8"),
        ("message_size", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)
MOST_MAGIC: Final = 7
"""All bits of a unit's magic."""

TimerUnits = npt.NDArray[Any]


def are_units(units: TimerUnits) -> npt.NDArray[np.bool_]:
    """Which of the units of a file lead to a message, and are neither a BLANK nor what was never written."""
    found: npt.NDArray[np.bool_] = (
        (units["size"] == TIMER_UNIT.size)
        & (units["magic"] > 0)
        & (units["magic"] <= MOST_MAGIC)
        & (units["physical_offset"] >= 0)
    )
    return found


def has_timers(root: Path) -> bool:
    """Whether a store has a timer's files."""
    return (root / TIMER_LOG).is_dir()
