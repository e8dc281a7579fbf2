"""What a broker's dispatch makes of the records of a segment: index entries and queue units (store-format §3.1, §3.2).

Nothing is looked up and nothing is left out here: entries come in the order in which a broker puts them, a repeated
key twice. A record for which there might not be room any more ends the run before it.
"""

from numba import njit, types

from storage.kernels.dispatch_memory import (
    CODE,
    ENTRIES,
    FIRST_OFFSET,
    HASH_BYTES,
    LAST_RECORD,
    LAST_TIMESTAMP,
    MEMORY_TYPE,
    NAME_BYTES,
    NUMBER_BYTES,
    QUEUES,
    RECORDS,
    ROW,
    ROW_ENTRIES,
    ROW_OFFSET,
    ROW_TAGGED,
    ROW_TIMESTAMP,
    ROWS,
    UNITS,
    DispatchMemory,
    get,
    increase,
    put,
)
from storage.kernels.java_string import MASK, fold_hash, hash_utf8
from storage.kernels.light_queues import put_light_units
from storage.kernels.memory import (
    equal_bytes,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_native_i64,
    store_native_i32,
)
from storage.kernels.properties import (
    DELAY,
    INNER_BASE,
    INNER_NUM,
    INT,
    KEYS,
    LONG,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    SHORT,
    TAGS,
    UNIQUE_KEY,
    find_properties,
    parse_integer,
)
from storage.kernels.queue_table import (
    BATCH,
    IS_SCHEDULE,
    KEY_PREFIX,
    KIND,
    MAY_HAVE_LIGHT,
    TRAITS,
    add_unit,
    number_queue,
    queue_row,
)
from storage.kernels.record import (
    BAD_BLANK,
    BAD_MAGIC,
    BAD_NUMBER,
    BAD_SIZE,
    MAGIC,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MINIMUM_SIZE,
    ROLLBACK,
    SPACE,
    SYS_FLAG,
    TRANSACTION_MASK,
    check_checksums,
    check_shape,
    closes_segment,
    store_timestamp,
    topic_length,
    topic_position,
)
from storage.kernels.scan import HASH, MAXIMUM_PIECES, TAG_INFIX

NEED_MORE = 0
LIMIT = 1
BLANK = 2
ZERO = 3
DAMAGE = 4
FULL = 5
"""Why a run ended."""

ENDED = -100
"""A result of :func:`next_record` at or below this says why the run ends; one above it is a size or a `BAD_` code."""

NO_NUMBERS = -(1 << 32)
"""Instead of a size or a delay: a property is no number."""

QUEUE_ID_POSITION = 12
QUEUE_OFFSET_POSITION = 20
COMMIT = 8
LONGEST_BLOCK = 0xFFFFFFFF
"""Offsets of a block's records count from its first one, in 32 bits."""

NAME_ROOM = 4 * MAXIMUM_PIECES
"""More bytes than the names of all queues of one record."""

SCHEDULE = int.from_bytes(b"SCHEDULE", "big")
TOPIC_X = int.from_bytes(b"_TOPIC_X", "big")
XXXX = int.from_bytes(b"XXXX", "big")
SCHEDULE_BYTES = 19
RETRY_PREFIX = int.from_bytes(b"%RET", "big")
RETRY_PREFIX_END = int.from_bytes(b"TRY%", "big")
RETRY_PREFIX_BYTES = 7
SYSTEM_PREFIX = int.from_bytes(b"rmq_sys_", "big")


@njit(cache=True, nogil=True)
def is_schedule(topic: int, length: int) -> bool:
    """Whether a topic is that of messages of a delay level, SCHEDULE_TOPIC_XXXX."""
    if length != SCHEDULE_BYTES or load_i64(topic) != SCHEDULE:
        return False
    return load_i64(topic + 8) == TOPIC_X and load_i32(topic + 15) == XXXX


@njit(cache=True, nogil=True)
def may_have_light_queues(topic: int, length: int) -> bool:
    """Whether messages of a topic may be in light queues: not those of a retry or system topic."""
    if length >= RETRY_PREFIX_BYTES and load_i32(topic) == RETRY_PREFIX and load_i32(topic + 3) == RETRY_PREFIX_END:
        return False
    return not (length >= 8 and load_i64(topic) == SYSTEM_PREFIX)


@njit(cache=True, nogil=True)
def is_batch_topic(topic: int, length: int, memory: DispatchMemory) -> bool:
    """Whether a topic is one of batches."""
    for i in range(memory.batch_topic_count):
        name, name_length = get(memory.batch_topics, 2 * i), get(memory.batch_topics, 2 * i + 1)
        if name_length == length and equal_bytes(name, topic, length):
            return True
    return False


@njit(cache=True, nogil=True)
def topic_queue(topic: int, length: int, queue_id: int, memory: DispatchMemory) -> int:
    """Number of a topic's queue; of a new one it is found out what holds for all its messages."""
    before = get(memory.state, QUEUES)
    number = number_queue(topic, length, queue_id, False, memory)
    if number == before:
        row = queue_row(number, memory)
        put(row, KEY_PREFIX, (hash_utf8(0, topic, length) * 31 + HASH) & MASK)
        if is_batch_topic(topic, length, memory):
            put(row, KIND, BATCH)
        elif is_schedule(topic, length):
            put(row, TRAITS, IS_SCHEDULE)
        elif may_have_light_queues(topic, length):
            put(row, TRAITS, MAY_HAVE_LIGHT)
    return number


@njit(cache=True, nogil=True)
def hash_value(start: int, block: int, value: int) -> int:
    """Go on from a hash over a value that was found in a property block."""
    return hash_utf8(start, block + (value >> 16), value & 0xFFFF)


@njit(cache=True, nogil=True)
def put_pieces(prefix: int, keys: int, length: int, target: int) -> int:
    """Write the hash of each piece of KEYS at the address ``target``; the address behind them."""
    piece = 0
    for position in range(length + 1):
        if position == length or load_i8(keys + position) == SPACE:
            if position > piece:
                store_native_i32(target, fold_hash(hash_utf8(prefix, keys + piece, position - piece)))
                target += HASH_BYTES
            piece = position + 1
    return target


@njit(cache=True, nogil=True)
def put_hashes(prefix: int, block: int, memory: DispatchMemory) -> int:
    """Append the hashes of a record's entries: unique key, each piece of KEYS, tag; how many.

    ``prefix`` is the hash of the topic and ``#``.
    """
    first = memory.hashes + HASH_BYTES * get(memory.state, ENTRIES)
    target = first
    value = get(memory.found, UNIQUE_KEY)
    if value >= 0:
        store_native_i32(target, fold_hash(hash_value(prefix, block, value)))
        target += HASH_BYTES
    value = get(memory.found, KEYS)
    if value >= 0:
        target = put_pieces(prefix, block + (value >> 16), value & 0xFFFF, target)
    value = get(memory.found, TAGS)
    if memory.wants_tags and value >= 0:
        prefix = ((prefix * 31 + TAG_INFIX) * 31 + HASH) & MASK
        store_native_i32(target, fold_hash(hash_value(prefix, block, value)))
        target += HASH_BYTES
    return (target - first) // HASH_BYTES


@njit(cache=True, nogil=True)
def put_entries(record: int, physical_offset: int, prefix: int, block: int, memory: DispatchMemory) -> None:
    """Append a record's entries, if it has any."""
    count = put_hashes(prefix, block, memory)
    if count:
        row = memory.rows + NUMBER_BYTES * ROW * get(memory.state, ROWS)
        put(row, ROW_OFFSET, physical_offset - get(memory.state, FIRST_OFFSET))
        put(row, ROW_TIMESTAMP, store_timestamp(record))
        put(row, ROW_ENTRIES, count)
        put(row, ROW_TAGGED, 1 if memory.wants_tags and get(memory.found, TAGS) >= 0 else 0)
        increase(memory.state, ROWS, 1)
        increase(memory.state, ENTRIES, count)


@njit(cache=True, nogil=True)
def due_after(block: int, memory: DispatchMemory) -> int:
    """Ms that a message of the schedule topic waits; −1 where its level says nothing; or NO_NUMBERS."""
    value = get(memory.found, DELAY)
    if value < 0:
        return -1
    if not parse_integer(block + (value >> 16), value & 0xFFFF, INT, memory.parsed):
        return NO_NUMBERS
    level = min(get(memory.parsed, 0), memory.delay_levels)
    return get(memory.delays, level - 1) if level > 0 else -1


@njit(cache=True, nogil=True)
def tag_hash(block: int, memory: DispatchMemory) -> int:
    """The tags code of a tag: its Java hash with its sign; 0 without a tag."""
    value = get(memory.found, TAGS)
    if value < 0:
        return 0
    unsigned = hash_value(0, block, value)
    return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned


@njit(cache=True, nogil=True)
def batch_size(queue_offset: int, block: int, memory: DispatchMemory) -> int:
    """Messages of a record for a queue of batches, whose first queue offset is left in ``parsed``; or NO_NUMBERS.

    A broker that finds both properties parses them, whatever the topic; without them a record is a batch of one.
    """
    count, base = get(memory.found, INNER_NUM), get(memory.found, INNER_BASE)
    if count < 0 or base < 0:
        put(memory.parsed, 0, queue_offset)
        return 1
    if not parse_integer(block + (count >> 16), count & 0xFFFF, SHORT, memory.parsed):
        return NO_NUMBERS
    size = get(memory.parsed, 0)
    if not parse_integer(block + (base >> 16), base & 0xFFFF, LONG, memory.parsed):
        return NO_NUMBERS
    return size


@njit(cache=True, nogil=True)
def put_units(
    record: int, size: int, physical_offset: int, block: int, queue: int, batch: int, due: int, memory: DispatchMemory
) -> None:
    """Note the unit of a record in its queue, and those in light queues; a batch's first offset is in ``parsed``."""
    timestamp = store_timestamp(record)
    tags_code = timestamp + due if due >= 0 else tag_hash(block, memory)
    queue_offset = load_i64(record + QUEUE_OFFSET_POSITION)
    row = queue_row(queue, memory)
    if get(row, KIND) == BATCH:
        queue_offset = get(memory.parsed, 0)
        if batch < 0 or queue_offset < 0:
            return
    add_unit(queue, queue_offset, physical_offset, size, tags_code, timestamp, batch, memory)
    names, offsets = get(memory.found, MULTI_DISPATCH), get(memory.found, MULTI_QUEUE_OFFSET)
    if names >= 0 and offsets >= 0 and memory.wants_light and get(row, TRAITS) & MAY_HAVE_LIGHT:
        put_light_units(
            block + (names >> 16),
            names & 0xFFFF,
            block + (offsets >> 16),
            offsets & 0xFFFF,
            load_i32(record + QUEUE_ID_POSITION),
            physical_offset,
            size,
            tags_code,
            timestamp,
            memory,
        )


@njit(cache=True, nogil=True)
def dispatch_record(record: int, size: int, physical_offset: int, memory: DispatchMemory) -> int:
    """Note what a record of sound shape leads to; its size, or BAD_NUMBER: then nothing."""
    topic, length = record + topic_position(record), topic_length(record)
    block = topic + length + 2
    find_properties(block, load_i16(topic + length), memory.found)
    queue = topic_queue(topic, length, load_i32(record + QUEUE_ID_POSITION), memory)
    row = queue_row(queue, memory)
    due = due_after(block, memory) if get(row, TRAITS) & IS_SCHEDULE else -1
    batch = batch_size(load_i64(record + QUEUE_OFFSET_POSITION), block, memory)
    if due == NO_NUMBERS or batch == NO_NUMBERS:
        return BAD_NUMBER
    transaction = load_i32(record + SYS_FLAG) & TRANSACTION_MASK
    if memory.wants_entries and transaction != ROLLBACK:
        put_entries(record, physical_offset, get(row, KEY_PREFIX), block, memory)
    if memory.wants_units and (transaction == 0 or transaction == COMMIT):
        put_units(record, size, physical_offset, block, queue, batch, due, memory)
    return size


@njit(cache=True, nogil=True)
def next_record(record: int, left: int, physical_offset: int, boundary: int, checksums: bool) -> int:
    """Size of the record at an address of which ``left`` bytes are there, a ``BAD_`` code, or why the run ends.

    ``boundary`` is the physical offset at which the next segment starts, or will start.
    """
    if left < 8:
        return ENDED - NEED_MORE
    magic = load_i32(record + MAGIC)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        if magic == MAGIC_BLANK:
            return ENDED - BLANK if closes_segment(record, boundary - physical_offset) else BAD_BLANK
        return ENDED - ZERO if load_native_i64(record) == 0 else BAD_MAGIC
    size = load_i32(record)
    if size < MINIMUM_SIZE:
        return BAD_SIZE
    if size > left:
        return ENDED - NEED_MORE
    size = check_shape(record, left, physical_offset)
    return check_checksums(record, size) if checksums and size > 0 else size


@njit(cache=True, nogil=True)
def is_full(physical_offset: int, memory: DispatchMemory) -> bool:
    """Whether what one record may lead to has no room any more."""
    state = memory.state
    return (
        get(state, RECORDS) >= memory.row_room
        or memory.hash_room - get(state, ENTRIES) < MAXIMUM_PIECES
        or memory.unit_room - get(state, UNITS) < MAXIMUM_PIECES
        or memory.queue_room - get(state, QUEUES) < MAXIMUM_PIECES
        or memory.name_room - get(state, NAME_BYTES) < NAME_ROOM
        or physical_offset - get(state, FIRST_OFFSET) > LONGEST_BLOCK
    )


@njit(
    types.int64(types.int64, types.int64, types.int64, types.int64, types.int64, types.int64, MEMORY_TYPE),
    cache=True,
    nogil=True,
)
def dispatch_records(
    address: int, position: int, available: int, base: int, boundary: int, limit: int, memory: DispatchMemory
) -> int:
    """Dispatch the records that start in [position, limit) of a buffer; where the run ended times 8 plus why.

    The byte at ``address`` has the physical offset ``base``; ``available`` bytes are there; the next segment starts at
    ``boundary``. Where a record is damaged the state's CODE says how.
    """
    state = memory.state
    checksums = memory.wants_checksums != 0
    while position < limit:
        if is_full(base + position, memory):
            return position << 3 | FULL
        size = next_record(address + position, available - position, base + position, boundary, checksums)
        if size > 0:
            size = dispatch_record(address + position, size, base + position, memory)
        if size <= ENDED:
            return position << 3 | (ENDED - size)
        if size < 0:
            put(state, CODE, size)
            return position << 3 | DAMAGE
        increase(state, RECORDS, 1)
        put(state, LAST_RECORD, base + position)
        put(state, LAST_TIMESTAMP, store_timestamp(address + position))
        position += size
    return position << 3 | LIMIT
