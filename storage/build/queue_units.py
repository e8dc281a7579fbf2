"""Units that stand for no message of their own, and where a run of units is cut.

A queue's units are found by queue offset, so where messages are lost the units behind them must not move up: consumers
would find other messages under the offsets that they remember. What stands in for the lost ones must not mislead a
stock broker either (`DefaultMessageStore.getMessage`):

* A unit that points to bytes that cannot be read makes a pull go on behind that unit's *segment*. Messages of the same
  segment that follow within the units of one pull (800, or as many as were asked for) are passed over, for good.
* A unit that repeats the following message is harmless: that message is delivered once more.

So right before a message stand repetitions of it: all of a small gap, and as many as a pull can see where the messages
before and behind a gap lie in one segment. What is left of a larger gap are unreadable units that point to where the
unit before them does, but with a size that runs out of the segment: physical offsets ascend, as a broker's searches for
the minimum offset need it, and no addition of its overflows. Source: store-format §5.2–§5.4.
"""

from typing import Final, NamedTuple

from storage.queue.unit_struct import FILLER, FILLER_SIZE, UNIT

PRE_BLANK: Final = UNIT.pack(*FILLER)
SMALL_GAP: Final = 64
"""Lost messages that repetitions of the following one replace: two pulls of 32."""

PULL_UNITS: Final = 1024
"""More than a pull looks at: 800 by a broker's defaults, or as many messages as the largest pull batch."""


class GapFilling(NamedTuple):
    """How units of lost messages are replaced: first by so many unreadable ones, then by repetitions."""

    unreadable: int
    repeated: int


def share_gap(count: int, *, in_one_segment: bool, repeat: bool = True) -> GapFilling:
    """Choose units for `count` lost ones; `repeat` off for a queue whose readers pass over unreadable units singly."""
    if not repeat:
        return GapFilling(count, 0)
    repeated = min(count, SMALL_GAP if count <= SMALL_GAP else PULL_UNITS if in_one_segment else 0)
    return GapFilling(count - repeated, repeated)


def unreadable_unit(unit: bytes, segment_size: int) -> bytes:
    """Make a unit that points to where `unit` does, but beyond its segment; before any unit: a broker's filler."""
    if not unit:
        return PRE_BLANK
    physical_offset, _, _ = UNIT.unpack(unit)
    beyond = segment_size - physical_offset % segment_size + 1
    return UNIT.pack(physical_offset, min(beyond, FILLER_SIZE), 0)


def physical_offset_of(unit: "memoryview | bytes") -> int:
    """Where the record of a unit starts; plain and batch units both begin with it."""
    return int.from_bytes(unit[:8], "big", signed=True)


def units_before(units: memoryview, unit_size: int, stop_offset: int) -> memoryview:
    """The units of a run whose records start before `stop_offset`; physical offsets ascend within a run."""
    low, high = 0, len(units) // unit_size
    if not high or physical_offset_of(units[(high - 1) * unit_size :]) < stop_offset:
        return units
    while low < high:
        middle = (low + high) // 2
        if physical_offset_of(units[middle * unit_size :]) < stop_offset:
            low = middle + 1
        else:
            high = middle
    return units[: low * unit_size]
