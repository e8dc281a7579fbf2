"""One query, one call: walk the chains of a key in every index file, check each record, copy the hits out.

The index is only a hint. An entry proposes a physical offset; what lies there counts only if it is an intact record
whose topic, key (or unique key, or tag) and store time match, so hash collisions, whole seconds, wild pointers and
stale entries can neither hide nor invent a message. A chain may only go down, which bounds every walk by the number
of entries.

Scratch memory of a call, by address (:class:`storage.lookup_call.Scratch`):

| position | content |
|---|---|
| 0 | the needle: UTF-8 of ``topic#key`` or ``topic#T#tag`` |
| NEEDLE_BYTES | i64 results, see the ``RESULT_`` constants |
| NEEDLE_BYTES + 8 · RESULT_HITS | hits, three i64 each: physical offset, address, size; ascending |
| NEEDLE_BYTES + RESULT_BYTES | the hits' bytes, up to BODY_BYTES |
"""

import numpy as np
from numba import njit

from storage.kernels import catalog as c
from storage.kernels.catalog import find_segment, is_known_damage, segment_is_hot
from storage.kernels.java_string import fold_hash, hash_utf8
from storage.kernels.memory import (
    copy_bytes,
    equal_bytes,
    is_hot,
    load_i16,
    load_i32,
    load_i64,
    load_native_i32,
    load_native_i64,
    prefetch,
    store_native_i64,
)
from storage.kernels.record import (
    KEYS_NAME,
    TAGS_NAME,
    UNIQUE_KEY_NAME,
    check_checksums,
    check_head,
    check_shape,
    fetch_record,
    find_property,
    has_piece,
    store_timestamp,
    topic_length,
    topic_position,
)

NEEDLE_BYTES = 65536
RESULT_BYTES = 16384
BODY_BYTES = 1 << 20
MAXIMUM_HITS = 512

RESULT_COUNT = 0
RESULT_TOTAL = 1
RESULT_WALKED = 2
RESULT_REFUSED = 3
RESULT_MORE = 4
RESULT_CUT = 5
RESULT_COLD_HEAT = 6
RESULT_COLD_POSITION = 7
RESULT_COLD_LENGTH = 8
RESULT_BAD_POINTERS = 9
RESULT_FILES = 10
RESULT_STRAYS = 11
"""Entries with the key's hash that point into the log where no record starts, unless damage is known there.

Then where the last one was met: the heat of its file, and the physical offset.
"""
RESULT_STRAY_HEAT = 12
RESULT_STRAY_OFFSET = 13
RESULT_HITS = 16

FOUND = 0
FOUND_UNCOPIED = 1
STOPPED_COLD = -1
STOPPED_LONG = -2

KIND_ANY = 0
KIND_KEY = 1
KIND_UNIQUE = 2
KIND_TAG = 3

INDEX_HEADER = 40
SLOT_BYTES = 4
ENTRY_BYTES = 20

LONG_CHAIN = 64
"""Steps after which a chain's next entries are fetched ahead: a hot tag's chain would else wait at each for memory."""

AHEAD_BYTES = 4096
CACHE_LINE = 64

MATCH_COLD = -1
NO_RECORD = -2
NO_MATCH = 0


@njit(cache=True, nogil=True)
def matches_key(properties: int, length: int, key: int, key_length: int, kind: int) -> bool:
    """Whether a record's property block carries the key in the way that the kind of query asks for."""
    if kind == KIND_TAG:
        found = find_property(properties, length, 4, TAGS_NAME)
        return (
            found >= 0 and (found & 0xFFFF) == key_length and equal_bytes(properties + (found >> 16), key, key_length)
        )
    if kind != KIND_KEY:
        found = find_property(properties, length, 8, UNIQUE_KEY_NAME)
        if found >= 0 and (found & 0xFFFF) == key_length and equal_bytes(properties + (found >> 16), key, key_length):
            return True
        if kind == KIND_UNIQUE:
            return False
    found = find_property(properties, length, 4, KEYS_NAME)
    return found >= 0 and has_piece(properties + (found >> 16), found & 0xFFFF, key, key_length)


@njit(cache=True, nogil=True)
def stop_cold(results: np.ndarray, heat: int, position: int, length: int) -> int:
    """Note which bytes of which file were not in memory."""
    results[RESULT_COLD_HEAT] = heat
    results[RESULT_COLD_POSITION] = position
    results[RESULT_COLD_LENGTH] = length
    return STOPPED_COLD


@njit(cache=True, nogil=True)
def match_record(catalog: np.ndarray, query: np.ndarray, physical_offset: int, results: np.ndarray, tick: int) -> int:
    """Size of the record at a physical offset if it is intact and matches the query, or one of the codes above.

    NO_RECORD says that none starts there although the log has that place.
    """
    row = find_segment(catalog, physical_offset)
    if row < 0:
        return NO_MATCH
    position = physical_offset - catalog[row]
    available = catalog[row + c.VALID_LENGTH] - position
    if not segment_is_hot(catalog, row, position, min(available, 64), tick):
        stop_cold(results, catalog[row + c.HEAT], position, min(available, 64))
        return MATCH_COLD
    record = catalog[row + c.ADDRESS] + position
    size = check_head(record, available)
    if size < 0:
        return NO_RECORD
    if not segment_is_hot(catalog, row, position, size, tick):
        stop_cold(results, catalog[row + c.HEAT], position, size)
        return MATCH_COLD
    fetch_record(record, size)
    if check_shape(record, available, physical_offset) < 0:
        return NO_RECORD
    needle, topic, key, key_length, kind = query[0], query[1], query[2], query[3], query[4]
    at = topic_position(record)
    length = topic_length(record)
    if length != topic or not equal_bytes(record + at, needle, length):
        return NO_MATCH
    if kind != KIND_UNIQUE:
        stored = store_timestamp(record)
        if stored < query[5] or stored > query[6]:
            return NO_MATCH
    at += length
    if not matches_key(record + at + 2, load_i16(record + at), key, key_length, kind):
        return NO_MATCH
    return size if check_checksums(record, size) > 0 else NO_MATCH


@njit(cache=True, nogil=True)
def keep_hit(hits: int, results: np.ndarray, capacity: int, physical_offset: int, address: int, size: int) -> int:
    """Insert a hit among the ``capacity`` newest, ascending; the oldest falls out of a full list."""
    count = int(results[RESULT_COUNT])
    place = count
    while place > 0 and load_native_i64(hits + 24 * (place - 1)) > physical_offset:
        place -= 1
    if place > 0 and load_native_i64(hits + 24 * (place - 1)) == physical_offset:
        return count
    if count == capacity:
        place -= 1
        for i in range(place):
            copy_bytes(hits + 24 * i, hits + 24 * (i + 1), 24)
    else:
        for i in range(count, place, -1):
            copy_bytes(hits + 24 * i, hits + 24 * (i - 1), 24)
        count += 1
    store_native_i64(hits + 24 * place, physical_offset)
    store_native_i64(hits + 24 * place + 8, address)
    store_native_i64(hits + 24 * place + 16, size)
    results[RESULT_COUNT] = count
    return count


@njit(cache=True, nogil=True)
def is_wanted(hits: int, results: np.ndarray, capacity: int, physical_offset: int) -> bool:
    """Whether a hit at this offset could still be among the newest, and is not kept already."""
    count = results[RESULT_COUNT]
    if count == 0:
        return True
    oldest = load_native_i64(hits)
    if count == capacity and physical_offset <= oldest:
        return False
    for i in range(count):  # noqa: SIM110 — compiled: a generator would not be
        if load_native_i64(hits + 24 * i) == physical_offset:
            return False
    return True


@njit(cache=True, nogil=True)
def propose(
    catalog: np.ndarray, query: np.ndarray, physical_offset: int, results: np.ndarray, hits: int, tick: int
) -> int:
    """Check one proposed offset and keep it when it matches; STOPPED_COLD when its record is not in memory."""
    capacity = query[7] + 1
    if physical_offset >= query[8] or not is_wanted(hits, results, capacity, physical_offset):
        return FOUND
    size = match_record(catalog, query, physical_offset, results, tick)
    if size == MATCH_COLD:
        return STOPPED_COLD
    if size <= NO_MATCH:
        results[RESULT_REFUSED] += 1
        if size == NO_RECORD and not is_known_damage(catalog, physical_offset):
            results[RESULT_STRAYS] += 1
        return FOUND
    row = find_segment(catalog, physical_offset)
    keep_hit(hits, results, capacity, physical_offset, catalog[row + c.ADDRESS] + physical_offset - catalog[row], size)
    return FOUND


@njit(cache=True, nogil=True)
def search_run(
    catalog: np.ndarray,
    query: np.ndarray,
    run: int,
    key_hash: int,
    tick: int,
    results: np.ndarray,
    hits: int,
    steps: int,
) -> int:
    """Propose, newest first, what the run of the row at an address has for a hash; steps left, or a ``STOPPED_``."""
    hashes, offsets = load_native_i64(run + 8 * c.RUN_HASHES), load_native_i64(run + 8 * c.RUN_OFFSETS)
    low, high = 0, load_native_i64(run + 8 * c.RUN_COUNT)
    while low < high:
        middle = (low + high) >> 1
        if load_native_i32(hashes + 4 * middle) <= key_hash:
            low = middle + 1
        else:
            high = middle
    at = low - 1
    while at >= 0 and load_native_i32(hashes + 4 * at) == key_hash:
        if results[RESULT_COUNT] > query[7] and load_native_i64(offsets + 8 * at) < load_native_i64(hits):
            break
        if steps <= 0:
            return STOPPED_LONG
        steps -= 1
        results[RESULT_WALKED] += 1
        if propose(catalog, query, load_native_i64(offsets + 8 * at), results, hits, tick) == STOPPED_COLD:
            return STOPPED_COLD
        at -= 1
    return steps


@njit(cache=True, nogil=True)
def search_tail(
    catalog: np.ndarray, query: np.ndarray, key_hash: int, tick: int, results: np.ndarray, hits: int, steps: int
) -> int:
    """Propose what the scans of the log noted for a hash, the latest scan first; steps left, or a ``STOPPED_`` code."""
    for number in range(catalog[c.TAIL_COUNT] - 1, -1, -1):
        run = catalog[c.TAIL_RUNS] + 8 * c.RUN_ROW * number
        steps = search_run(catalog, query, run, key_hash, tick, results, hits, steps)
        if steps < 0:
            break
    return steps


@njit(cache=True, nogil=True)
def fetch_ahead(entry: int, lowest: int, fetched: int) -> int:
    """Ask for the lines up to AHEAD_BYTES below an entry, down to ``lowest``, but for ``fetched`` ones; the new mark.

    Chains only go down, so this is a sequential read; where hops are longer than what is fetched, nothing is.
    """
    target = max(entry - AHEAD_BYTES, lowest)
    fetched = min(fetched, entry)
    if fetched - target > 2 * AHEAD_BYTES:
        return target
    while fetched > target:
        fetched -= CACHE_LINE
        prefetch(fetched)
    return fetched


@njit(cache=True, nogil=True)
def walk_chain(
    catalog: np.ndarray,
    query: np.ndarray,
    row: int,
    key_hash: int,
    tick: int,
    results: np.ndarray,
    hits: int,
    steps: int,
) -> int:
    """Follow the chain of a hash in the index file of a row, newest entry first; steps left, or a ``STOPPED_`` code."""
    address, size, heat, descriptor = (
        catalog[row + c.INDEX_ADDRESS],
        catalog[row + c.INDEX_SIZE],
        catalog[row + c.INDEX_HEAT],
        catalog[row + c.INDEX_DESCRIPTOR],
    )
    slots, entries = catalog[row + c.INDEX_SLOTS], catalog[row + c.INDEX_ENTRIES]
    ascending = (catalog[row + c.INDEX_FLAGS] & c.ASCENDING) != 0
    position = INDEX_HEADER + SLOT_BYTES * (key_hash % slots)
    if not is_hot(catalog[c.PROBE], heat, descriptor, size, position, SLOT_BYTES, tick):
        return stop_cold(results, heat, position, SLOT_BYTES)
    number = load_i32(address + position)
    if number > entries:
        results[RESULT_BAD_POINTERS] += 1
    lowest = address + INDEX_HEADER + SLOT_BYTES * slots
    fetched = address + size
    fetch_below = steps - LONG_CHAIN
    while 0 < number <= entries:
        if steps <= 0:
            return STOPPED_LONG
        steps -= 1
        position = INDEX_HEADER + SLOT_BYTES * slots + ENTRY_BYTES * number
        if steps < fetch_below:
            fetched = fetch_ahead(address + position, lowest, fetched)
        if not is_hot(catalog[c.PROBE], heat, descriptor, size, position, ENTRY_BYTES, tick):
            return stop_cold(results, heat, position, ENTRY_BYTES)
        results[RESULT_WALKED] += 1
        entry = address + position
        previous = load_i32(entry + 16)
        # The next entry comes while this one's record is checked.
        prefetch(lowest + ENTRY_BYTES * max(previous, 0))
        if load_i32(entry) == key_hash:
            physical_offset = load_i64(entry + 4)
            if ascending and results[RESULT_COUNT] > query[7] and physical_offset < load_native_i64(hits):
                return steps
            strays = results[RESULT_STRAYS]
            if propose(catalog, query, physical_offset, results, hits, tick) == STOPPED_COLD:
                return STOPPED_COLD
            if results[RESULT_STRAYS] > strays:
                results[RESULT_STRAY_HEAT], results[RESULT_STRAY_OFFSET] = heat, physical_offset
        if previous >= number:
            results[RESULT_BAD_POINTERS] += 1
            return steps
        number = previous
    return steps


@njit(cache=True, nogil=True)
def copy_hits(hits: int, body: int, query: np.ndarray, results: np.ndarray) -> int:
    """Keep the newest hits within the query's number and bytes, note what was cut, and copy the rest out if it fits."""
    first, count = 0, results[RESULT_COUNT]
    if count > query[7]:
        results[RESULT_MORE] = 1
        first = count - query[7]
    total = 0
    kept = count
    while kept > first and total + load_native_i64(hits + 24 * (kept - 1) + 16) <= query[9]:
        kept -= 1
        total += load_native_i64(hits + 24 * kept + 16)
    if kept > first:
        results[RESULT_CUT] = 1
        first = kept
    results[RESULT_TOTAL] = total
    results[RESULT_COUNT] = count - first
    fits = total <= BODY_BYTES
    for i in range(first, count):
        if fits:
            size = load_native_i64(hits + 24 * i + 16)
            copy_bytes(body, load_native_i64(hits + 24 * i + 8), size)
            body += size
        if first > 0:
            copy_bytes(hits + 24 * (i - first), hits + 24 * i, 24)
    return FOUND if fits else FOUND_UNCOPIED


@njit(cache=True, nogil=True)
def find_hits(
    catalog: np.ndarray,
    query: np.ndarray,
    key_hash: int,
    tick: int,
    results: np.ndarray,
    hits: int,
    steps: int,
    tags_only: int,
) -> int:
    """Search the tail and every index file that could hold one of the newest hits; steps left, or a ``STOPPED_`` code.

    ``query`` is what :func:`lookup` makes it: addresses and lengths of topic and key, kind, times, maximum, before.
    Up to maximum + 1 hits are at ``hits`` then, RESULT_COUNT of them: the one too many says that more match.
    """
    results[:RESULT_HITS] = 0
    steps = search_tail(catalog, query, key_hash, tick, results, hits, steps)
    if steps < 0:
        return steps
    first = c.HEADER + catalog[c.SEGMENT_COUNT] * c.SEGMENT_ROW
    for file in range(catalog[c.INDEX_COUNT]):
        row = first + file * c.INDEX_ROW
        if results[RESULT_COUNT] > query[7] and load_native_i64(hits) >= catalog[row + c.INDEX_MAXIMUM]:
            break
        if tags_only and not catalog[row + c.INDEX_FLAGS] & c.HAS_TAGS:
            continue
        results[RESULT_FILES] += 1
        steps = walk_chain(catalog, query, row, key_hash, tick, results, hits, steps)
        if steps < 0:
            return steps
    return steps


@njit(
    "int64(int64[::1], int64[::1], int64[::1], int64, int64, int64, int64, int64, int64, int64, int64, int64, int64,"
    " int64, int64, int64)",
    cache=True,
    nogil=True,
)
def lookup(
    catalog: np.ndarray,
    query: np.ndarray,
    results: np.ndarray,
    scratch: int,
    topic: int,
    key: int,
    needle: int,
    kind: int,
    maximum: int,
    begin: int,
    end: int,
    before: int,
    limit: int,
    tick: int,
    steps: int,
    tags_only: int,
) -> int:
    """Answer one query into scratch memory; FOUND, FOUND_UNCOPIED (too long: slice it yourself) or ``STOPPED_``.

    ``topic`` is the topic's length in bytes, ``key`` where the key starts in the needle and ``needle`` its whole
    length; ``maximum`` ≤ MAXIMUM_HITS; times in ms, ``before`` an exclusive physical offset, ``limit`` in bytes,
    ``steps`` the entries that may be walked. With ``tags_only`` index files without tag entries are left out.
    """
    query[0], query[1], query[2], query[3], query[4] = scratch, topic, scratch + key, needle - key, kind
    query[5], query[6], query[7], query[8], query[9] = begin, end, maximum, before, limit
    hits = scratch + NEEDLE_BYTES + 8 * RESULT_HITS
    key_hash = fold_hash(hash_utf8(0, scratch, needle))
    steps = find_hits(catalog, query, key_hash, tick, results, hits, steps, tags_only)
    if steps < 0:
        return steps
    return copy_hits(hits, scratch + NEEDLE_BYTES + RESULT_BYTES, query, results)
