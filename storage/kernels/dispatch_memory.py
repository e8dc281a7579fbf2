"""The memory that a dispatch scan works in: one named tuple of addresses, and the places in its small tables.

Kernels allocate nothing. Addresses, not arrays, as numba counts references to arrays whenever one is passed on, which
took longer than the scan itself. All numbers are native i64 unless it says otherwise.
"""

from typing import NamedTuple

from numba import njit, types

from storage.kernels.memory import load_native_i64, store_native_i64

NUMBER_BYTES = 8
HASH_BYTES = 4

RECORDS = 0
ROWS = 1
ENTRIES = 2
UNITS = 3
QUEUES = 4
NAME_BYTES = 5
FIRST_OFFSET = 6
LAST_RECORD = 7
LAST_TIMESTAMP = 8
CODE = 9
STATE = 10
"""How much there is so far: records, those with entries, entries, units, queues, bytes of their names."""

ROW_OFFSET = 0
ROW_TIMESTAMP = 1
ROW_ENTRIES = 2
ROW_TAGGED = 3
ROW = 4


class DispatchMemory(NamedTuple):
    """What goes into a scan, and where what comes out of it is written."""

    wants_tags: int
    wants_checksums: int
    wants_light: int
    wants_entries: int
    wants_units: int
    delays: int
    """Address: ms of each delay level."""
    delay_levels: int
    batch_topics: int
    """Address: address and length of the name of each topic of batches."""
    batch_topic_count: int
    state: int
    """Address: STATE numbers."""
    found: int
    """Address: PROPERTIES numbers, see :mod:`storage.kernels.properties`."""
    parsed: int
    """Address: one number, the last one parsed."""
    rows: int
    """Address: ROW numbers for each record with entries; its offset counts from the first one."""
    row_room: int
    hashes: int
    """Address: hashes of the entries, i32."""
    hash_room: int
    units: int
    """Address: UNIT_ROW numbers each, see :mod:`storage.kernels.queue_table`."""
    unit_room: int
    queues: int
    """Address: QUEUE_ROW numbers each, see there."""
    queue_room: int
    names: int
    """Address: names of the queues, one behind the other."""
    name_room: int
    table: int
    """Address: i32, see there."""
    table_mask: int
    """Length of the table less one; a power of two less one."""


MEMORY_TYPE = types.NamedUniTuple(  # type: ignore[no-untyped-call]
    types.int64, len(DispatchMemory._fields), DispatchMemory
)
"""What numba knows it by."""


@njit(cache=True, nogil=True, inline="always")
def get(table: int, index: int) -> int:
    """A number of a table."""
    return load_native_i64(table + NUMBER_BYTES * index)


@njit(cache=True, nogil=True, inline="always")
def put(table: int, index: int, value: int) -> None:
    """Set a number of a table."""
    store_native_i64(table + NUMBER_BYTES * index, value)


@njit(cache=True, nogil=True, inline="always")
def increase(table: int, index: int, by: int) -> None:
    """Add to a number of a table."""
    put(table, index, get(table, index) + by)
