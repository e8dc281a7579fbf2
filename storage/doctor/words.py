"""The words for what is wrong with a store: a quick look and a reading of everything use the same for one finding."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.amounts import counted
from storage.kernels.records import BAD_NUMBER
from storage.log.damaged_ranges import REASONS, ZEROS


class Words(NamedTuple):
    """The expected and the actual state of a place."""

    expected: str
    found: str


INDEX_DIRECTORY: Final = Words("an index file", "a directory")
STRAY_UNIT: Final = "a unit that points to no message of this queue"
LEFT_OVER_UNIT: Final = Words("the end of the queue", STRAY_UNIT)
MISPLACED_UNIT: Final = Words("a message of this queue", STRAY_UNIT)
MISPLACED_BATCH: Final = Words("the unit of a batch of this queue", "another one, or none")
HEADER_PLACES: Final = {
    "begin_timestamp": 0,
    "end_timestamp": 8,
    "begin_physical_offset": 16,
    "end_physical_offset": 24,
    "slot_count": 32,
    "index_count": 36,
}
"""Where the fields of an index file's header lie."""

OF_ANOTHER_HISTORY: Final = (
    "they may be left over from another history, where a replica cut its log and wrote on: a broker that starts here "
    "takes them for new messages"
)
COMPARE: Final = (
    "no command decides this: before a broker starts, compare the store with that of another replica (rocketlens diff)"
)


def damaged_record(code: int) -> Words:
    """The words for bytes of the log that hold no intact record; `code` is ZEROS or one of the record check."""
    if code == ZEROS:
        return Words("an intact record", "zeros")
    if code == BAD_NUMBER:
        return Words("an intact record", "a record one of whose properties is no number")
    return Words("an intact record", f"a damaged record: {REASONS.get(code, 'it cannot be read')}")


def header_field(name: str) -> str:
    """Name a field of an index file's header."""
    return f"header {name}"


def unit_name(first: int, count: int = 1) -> str:
    """Name units of a queue by their places."""
    return f"unit {first}" if count == 1 else f"units {first} to {first + count - 1}"


def lost_units(count: int) -> Words:
    """The words for bytes in the middle of a queue that are no units."""
    return Words(f"units of {counted(count, 'message')}", "bytes that are no units")


def field_position(dtype: npt.DTypeLike, field: str) -> int:
    """Where a field begins in a record, or with no name the record itself."""
    fields = np.dtype(dtype).fields
    return int(fields[field][1]) if field and fields else 0
