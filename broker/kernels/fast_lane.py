"""Answer the plain requests at the front of a read, one after the other, in one call: the fast lane.

A request leaves the lane, and stops it, wherever an answer would have to say more than "here are the messages": it is
not plain, nothing is found, pages are cold, the walk is long, more match than were asked for, the index errs, no pull
like it was answered yet. What the lane does write is byte for byte what the ordinary way writes; the fixed parts of the
headers are handed in, rendered there.

All that a call needs stands in one int64 table: settings and addresses of memory that
:class:`broker.fast_lane.FastLane` owns, the counts of answers, then the request, the lookup's query and its results.
"""

import numpy as np
from numba import njit

from broker.kernels import plain_request as p
from broker.kernels.known_pulls import OF_STEPS, answer_pull
from broker.kernels.plain_request import read_request
from storage.kernels.catalog import check_record, record_address
from storage.kernels.java_string import MASK, fold_hash, hash_utf8
from storage.kernels.lookup import (
    KIND_TAG,
    KIND_UNIQUE,
    RESULT_BAD_POINTERS,
    RESULT_COUNT,
    RESULT_HITS,
    RESULT_REFUSED,
    RESULT_STRAY_HEAT,
    RESULT_STRAYS,
    RESULT_WALKED,
    find_hits,
)
from storage.kernels.memory import (
    array_at,
    copy_bytes,
    equal_bytes,
    load_i32,
    load_native_i64,
    load_u8,
    store_i32,
    store_native_i64,
)
from storage.kernels.pull import RESULTS as PULLED
from storage.kernels.record import topic_length, topic_position

OUTPUT = 0
"""Address of the room for answers: TURN_BYTES + LONGEST_BODY + LONGEST_HEADER."""
HITS = 1
"""Address of the room for a query's hits: 24 · (MAXIMUM_BY_KEY + 1) bytes."""
FRAME_LIMIT = 2
"""Bytes of the longest frame that is not refused."""
BODY_LIMIT = 3
"""Bytes of the longest body of an answer."""
TAKES_QUERIES = 4
"""Whether answers to key queries need no word of what they may lack."""
TAKES_TAGS = 5
"""Whether the index alone answers tag queries."""
STEPS = 6
"""Entries that may still be walked in this call, or what takes as long."""
VIEW_HEADER = 7
"""Address and length of an answer's header before the opaque, then behind it."""
QUERY_HEADER = 11
KNOWN = 15
"""Address that describes the known pulls, see :mod:`broker.kernels.known_pulls`."""
VIEWS = 16
"""What was answered so far: views, key queries, pulls, lite pulls."""
QUERIES = 17
PULLS = 18
LITE_PULLS = 19
WALKED = 20
"""What those key queries cost: entries walked, hits refused, wrong pointers, entries that point at no record."""
REFUSED = 21
BAD_POINTERS = 22
STRAYS = 23
REQUEST = 24
QUERY = REQUEST + p.LENGTH
RESULTS = QUERY + 16
PULL_RESULTS = RESULTS + RESULT_HITS
TABLE_LENGTH = PULL_RESULTS + PULLED

LEFT_OVER = 0
"""Why a call stopped: nothing is left, or a frame whose lengths are wrong."""
NOT_TAKEN = 1
"""At a whole frame that is to be answered on the ordinary way."""
TURN_OVER = 2
"""Enough for once; other connections come first."""
WANTS_MORE = 3
"""Within a frame whose end is still to come."""

TURN_BYTES = 256 * 1024
TURN_FRAMES = 128
LONGEST_BODY = 256 * 1024
LONGEST_HEADER = 1024
LONGEST_READ = 1 << 24
"""Bytes of a read that are looked at in one call."""

STEPS_A_CALL = 8192
STEPS_A_QUERY = 512
"""Entries walked for one query; a longer walk is begun anew on the ordinary way, which may leave it to a thread."""

MAXIMUM_BY_KEY = 64
MAXIMUM_BY_UNIQUE_KEY = 32
HIT_BYTES = 24
PREFIX = 8
HASH = ord("#")
TAG_INFIX = ord("T")
ZERO = ord("0")
FIRST_PAGE = 2**63 - 1


@njit(cache=True, nogil=True)
def write_header(table: np.ndarray, header: int, request: np.ndarray, output: int, body_length: int) -> int:
    """Write prefix and header of an answer; address behind them. ``header`` is the place of its parts."""
    before, behind, digits = table[header + 1], table[header + 3], request[p.OPAQUE_LENGTH]
    length = before + digits + behind
    store_i32(output, 4 + length + body_length)
    store_i32(output + 4, length)
    output += PREFIX
    copy_bytes(output, table[header], before)
    copy_bytes(output + before, request[p.OPAQUE_AT], digits)
    copy_bytes(output + before + digits, table[header + 2], behind)
    return int(output + length)


@njit(cache=True, nogil=True)
def answer_view(catalog: np.ndarray, table: np.ndarray, request: np.ndarray, output: int, tick: int) -> int:
    """Write the record at a physical offset as the answer; address behind it, or ``output`` where there is none.

    So it is for a record that is stored under another topic than the request names.
    """
    physical_offset = request[p.OFFSET]
    found = check_record(catalog, physical_offset, tick)
    size = found & 0xFFFFFFFF
    if found <= 0 or size > min(table[BODY_LIMIT], LONGEST_BODY):
        return output
    record = record_address(catalog, physical_offset, found)
    length = request[p.TOPIC_LENGTH]
    if length != p.ABSENT and not (
        length == topic_length(record) and equal_bytes(record + topic_position(record), request[p.TOPIC_AT], length)
    ):
        return output
    output = write_header(table, VIEW_HEADER, request, output, size)
    copy_bytes(output, record, size)
    table[VIEWS] += 1
    return output + size


@njit(cache=True, nogil=True)
def may_be_offset_id(key: int, length: int) -> bool:
    """Whether a key has the length of an offset message id, and zeros where its port's upper half stands."""
    if length != 32 and length != 56:
        return False
    port = key + length - 24
    return bool(
        load_u8(port) == ZERO and load_u8(port + 1) == ZERO and load_u8(port + 2) == ZERO and load_u8(port + 3) == ZERO
    )


@njit(cache=True, nogil=True)
def prepare_query(table: np.ndarray, request: np.ndarray, query: np.ndarray) -> bool:
    """Fill in the lookup's query from a request; whether the lane may answer it."""
    kind = request[p.KIND]
    if not table[TAKES_QUERIES] or (kind == KIND_TAG and not table[TAKES_TAGS]):
        return False
    if kind == KIND_UNIQUE and may_be_offset_id(request[p.KEY_AT], request[p.KEY_LENGTH]):
        return False
    maximum = MAXIMUM_BY_UNIQUE_KEY if request[p.IS_UNIQUE] else min(request[p.MAXIMUM], MAXIMUM_BY_KEY)
    query[0], query[1] = request[p.TOPIC_AT], request[p.TOPIC_LENGTH]
    query[2], query[3], query[4] = request[p.KEY_AT], request[p.KEY_LENGTH], kind
    query[5], query[6], query[7], query[8] = request[p.BEGIN], request[p.END], maximum, FIRST_PAGE
    return bool(maximum > 0)


@njit(cache=True, nogil=True)
def hash_of(query: np.ndarray) -> int:
    """The hash under which an index keeps what a query asks for."""
    unsigned = (hash_utf8(0, query[0], query[1]) * 31 + HASH) & MASK
    if query[4] == KIND_TAG:
        unsigned = ((unsigned * 31 + TAG_INFIX) * 31 + HASH) & MASK
    return fold_hash(hash_utf8(unsigned, query[2], query[3]))


@njit(cache=True, nogil=True)
def answer_query(catalog: np.ndarray, table: np.ndarray, request: np.ndarray, output: int, tick: int) -> int:
    """Write all hits of a key query as the answer; address behind it, or ``output`` where it would not be the whole."""
    query, results = table[QUERY:RESULTS], table[RESULTS:PULL_RESULTS]
    if not prepare_query(table, request, query):
        return output
    budget = min(table[STEPS], STEPS_A_QUERY)
    left = find_hits(catalog, query, hash_of(query), tick, results, table[HITS], budget, 0)
    table[STEPS] -= budget - max(left, 0)
    count = results[RESULT_COUNT]
    if left < 0 or count == 0 or count > query[7] or results[RESULT_STRAY_HEAT]:
        return output
    hits = table[HITS]
    total = 0
    for i in range(count):
        total += load_native_i64(hits + HIT_BYTES * i + 16)
    if total > min(table[BODY_LIMIT], LONGEST_BODY):
        return output
    output = write_header(table, QUERY_HEADER, request, output, total)
    for i in range(count):
        hit = hits + HIT_BYTES * i
        copy_bytes(output, load_native_i64(hit + 8), load_native_i64(hit + 16))
        output += load_native_i64(hit + 16)
    table[QUERIES] += 1
    table[WALKED] += results[RESULT_WALKED]
    table[REFUSED] += results[RESULT_REFUSED]
    table[BAD_POINTERS] += results[RESULT_BAD_POINTERS]
    table[STRAYS] += results[RESULT_STRAYS]
    return output


@njit(cache=True, nogil=True)
def answer_request(catalog: np.ndarray, table: np.ndarray, request: np.ndarray, output: int, tick: int) -> int:
    """Write the answer to a request; address behind it, or ``output`` where it is for the ordinary way."""
    code = request[p.CODE]
    if code == p.VIEW:
        return answer_view(catalog, table, request, output, tick)
    if code == p.QUERY:
        return answer_query(catalog, table, request, output, tick)
    known = table[KNOWN]
    store_native_i64(known + 8 * OF_STEPS, 0)
    limit = min(table[BODY_LIMIT], LONGEST_BODY)
    end = answer_pull(catalog, known, request, table[PULL_RESULTS:TABLE_LENGTH], output, limit, tick)
    table[STEPS] -= load_native_i64(known + 8 * OF_STEPS)
    if end != output:
        table[PULLS if code == p.PULL else LITE_PULLS] += 1
    return end


@njit("int64(int64[::1], int64[::1], int64, int64, int64)", cache=True, nogil=True)
def answer_frames(catalog: np.ndarray, table: np.ndarray, data: int, length: int, tick: int) -> int:
    """Answer frames from the front of ``length`` bytes at ``data``, as long as all are plain hits.

    Returns the bytes of ``data`` that were answered · 2³² + the bytes of the answers · 2⁸ + why it stopped.
    """
    # Arrays of Python's count who refers to them, and that atomically, in every function they are handed to.
    catalog = array_at(catalog.ctypes.data, catalog.size)
    table = array_at(table.ctypes.data, table.size)
    request = table[REQUEST:QUERY]
    table[STEPS] = STEPS_A_CALL
    at, stop = data, data + min(length, LONGEST_READ)
    output = table[OUTPUT]
    full = output + TURN_BYTES
    frames = 0
    reason = LEFT_OVER
    while at < stop:
        if stop - at < PREFIX:
            reason = WANTS_MORE
            break
        size = load_i32(at)
        header = load_i32(at + 4) & 0xFFFFFF
        if header > size - 4 or size > table[FRAME_LIMIT] - 4:
            break
        if size + 4 > stop - at:
            reason = WANTS_MORE
            break
        if frames == TURN_FRAMES or output >= full or table[STEPS] <= 0:
            reason = TURN_OVER
            break
        reason = NOT_TAKEN
        # A body, or another serialize type than JSON, which is 0.
        if load_i32(at + 4) != size - 4 or not read_request(at + PREFIX, at + 4 + size, request):
            break
        end = answer_request(catalog, table, request, output, tick)
        if end == output:
            break
        output = end
        at += 4 + size
        frames += 1
        reason = LEFT_OVER
    return int(((at - data) << 32) | ((output - table[OUTPUT]) << 8) | reason)
