"""The one table that tells kernels where everything lies: ``catalog``, an int64 array that a snapshot owns.

| index | field | meaning |
|---|---|---|
| 0 | probe | address of the page probe (:data:`storage.kernels.memory.PROBE_ADDRESS`) |
| 1 | segment_count | rows of the segment part |
| 2 | index_count | rows of the index part |
| 3 | tail_count | runs of entries found by scanning the log |
| 4 | tail_runs | address of a row of three native i64 for each run, see below |
| 5 | damage_count | places of the log that are known to be damaged, to which entries of the index rightly point |
| 6 | segment_size | the size that all segments share and by which they adjoin, or 0 |
| 7 | damage_offsets | address of the physical offsets of those places, native i64, ascending |

Rows of six for each segment, ascending, from index 8; then rows of eight for each index file, by falling ``maximum``.

A run is sorted by (hash, physical offset); its row has the number of its entries, the address of their hashes, native
i32, and that of their physical offsets, native i64.
"""

import numpy as np
from numba import njit

from storage.kernels.memory import is_hot, load_native_i64
from storage.kernels.record import BAD_SIZE, COLD, NO_SEGMENT, check_checksums, check_head, check_shape, fetch_record

PROBE = 0
SEGMENT_COUNT = 1
INDEX_COUNT = 2
TAIL_COUNT = 3
TAIL_RUNS = 4
DAMAGE_COUNT = 5
SEGMENT_SIZE = 6
DAMAGE_OFFSETS = 7
HEADER = 8

SEGMENT_ROW = 6
BASE_OFFSET = 0
ADDRESS = 1
VALID_LENGTH = 2
HEAT = 3
DESCRIPTOR = 4
FILE_SIZE = 5

INDEX_ROW = 8
INDEX_ADDRESS = 0
INDEX_SIZE = 1
INDEX_SLOTS = 2
INDEX_ENTRIES = 3
"""Number of the last entry that fits: a broker may put entries behind those that are known."""
INDEX_HEAT = 4
INDEX_DESCRIPTOR = 5
INDEX_MAXIMUM = 6
INDEX_FLAGS = 7

RUN_ROW = 3
RUN_COUNT = 0
RUN_HASHES = 1
RUN_OFFSETS = 2

ASCENDING = 1
"""Flag: physical offsets never fall from one entry of the file to the next."""
HAS_TAGS = 2
"""Flag: the file keeps an entry for each tagged record."""


@njit("int64(int64[::1], int64)", cache=True, nogil=True)
def find_segment(catalog: np.ndarray, physical_offset: int) -> int:
    """Index in ``catalog`` of the row of the segment that holds a physical offset, or −1."""
    count = catalog[SEGMENT_COUNT]
    if count == 0 or physical_offset < catalog[HEADER]:
        return -1
    if catalog[SEGMENT_SIZE] > 0:
        number = min((physical_offset - catalog[HEADER]) // catalog[SEGMENT_SIZE], count - 1)
    else:
        low, high = 0, count - 1
        while low < high:
            middle = (low + high + 1) >> 1
            if catalog[HEADER + middle * SEGMENT_ROW] <= physical_offset:
                low = middle
            else:
                high = middle - 1
        number = low
    row = HEADER + number * SEGMENT_ROW
    return row if physical_offset - catalog[row] < catalog[row + VALID_LENGTH] else -1


@njit(cache=True, nogil=True)
def log_bounds(catalog: np.ndarray) -> tuple[int, int]:
    """Physical offsets at which the log begins and ends; records start between them, if not everywhere."""
    count = catalog[SEGMENT_COUNT]
    if count == 0:
        return 0, 0
    last = HEADER + (count - 1) * SEGMENT_ROW
    return catalog[HEADER], catalog[last] + catalog[last + VALID_LENGTH]


@njit(cache=True, nogil=True)
def is_known_damage(catalog: np.ndarray, physical_offset: int) -> bool:
    """Whether there is no record at a physical offset because the log is damaged there, as far as that is known."""
    low, high = 0, catalog[DAMAGE_COUNT]
    while low < high:
        middle = (low + high) >> 1
        if load_native_i64(catalog[DAMAGE_OFFSETS] + 8 * middle) < physical_offset:
            low = middle + 1
        else:
            high = middle
    if low == catalog[DAMAGE_COUNT]:
        return False
    return bool(load_native_i64(catalog[DAMAGE_OFFSETS] + 8 * low) == physical_offset)


@njit(cache=True, nogil=True)
def segment_is_hot(catalog: np.ndarray, row: int, position: int, length: int, tick: int) -> bool:
    """Whether bytes of the segment of a row are in memory; see :func:`storage.kernels.memory.is_hot`."""
    return is_hot(
        catalog[PROBE], catalog[row + HEAT], catalog[row + DESCRIPTOR], catalog[row + FILE_SIZE], position, length, tick
    )


@njit("int64(int64[::1], int64, int64, int64)", cache=True, nogil=True)
def locate_record(catalog: np.ndarray, physical_offset: int, tick: int, expected: int) -> int:
    """What :func:`check_record` says as long as nobody looks at the checksums.

    With ``expected`` > 0 a record of any other size counts as none; who tells it has asked memory for the record.
    """
    row = find_segment(catalog, physical_offset)
    if row < 0:
        return NO_SEGMENT
    position = physical_offset - catalog[row]
    available = catalog[row + VALID_LENGTH] - position
    record = catalog[row + ADDRESS] + position
    wanted = expected if expected > 0 else 64
    if not segment_is_hot(catalog, row, position, min(available, wanted), tick):
        return COLD
    size = check_head(record, available)
    if size < 0:
        return size
    if expected <= 0:
        if not segment_is_hot(catalog, row, position, size, tick):
            return COLD
        fetch_record(record, size)
    elif size != expected:
        return BAD_SIZE
    size = check_shape(record, available, physical_offset)
    return size if size < 0 else (((row - HEADER) // SEGMENT_ROW) << 32) | size


@njit(cache=True, nogil=True)
def record_address(catalog: np.ndarray, physical_offset: int, found: int) -> int:
    """Address of a record that was found."""
    row = HEADER + (found >> 32) * SEGMENT_ROW
    return int(catalog[row + ADDRESS] + physical_offset - catalog[row])


@njit("int64(int64[::1], int64, int64)", cache=True, nogil=True)
def check_record(catalog: np.ndarray, physical_offset: int, tick: int) -> int:
    """The record that starts at a physical offset: its segment's number times 2³² plus its size, or a negative code.

    Codes are those of :mod:`storage.kernels.record`; COLD where its pages are not known to be in memory.
    """
    found = locate_record(catalog, physical_offset, tick, 0)
    if found < 0:
        return found
    checked = check_checksums(record_address(catalog, physical_offset, found), found & 0xFFFFFFFF)
    return checked if checked < 0 else found
