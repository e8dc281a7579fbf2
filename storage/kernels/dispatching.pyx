"""What a broker's dispatch makes of the records of a segment: index entries and queue units (store-format §3.1, §3.2).

Nothing is looked up and nothing is left out here: entries come in the order in which a broker puts them, a repeated
key twice. A record for which there might not be room any more ends the run before it. Units are noted in the order of
the log, and sorted by queue when they are taken.
"""

import os

cimport cython
from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from protocol.kernels.java_string cimport fold_hash, hash_utf8
from protocol.kernels.memory cimport __builtin_prefetch, load_i32, load_i64
from storage.kernels.light_queues cimport count_items, is_directory_name, is_light_name, trim_list
from storage.kernels.properties cimport Properties, find_properties, parse_integer, tags_code
from storage.kernels.queue_units cimport hash_name, note_traits, write_unit
from storage.kernels.records cimport (
    BAD_NUMBER,
    MAXIMUM_PIECES,
    QUEUE_ID,
    QUEUE_OFFSET,
    SPACE,
    SYS_FLAG,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    Record,
    Text,
    check_checksums,
    is_text,
    read_shape,
    split_off,
    store_timestamp_at,
    text_of,
)
from storage.kernels.region cimport Region, require, take, take_zeroes


cdef enum:
    ENTRIES_PER_RECORD = 8
    NAME_BYTES_PER_RECORD = 32
    LINE = 64  # Bytes that a processor loads at once.
    NAME_ROOM = 4 * MAXIMUM_PIECES  # More bytes than the names of all queues of one record.
    MOST_RECORDS = 1 << 28  # Of a block.
    LONGEST_BLOCK = 0xFFFFFFFF  # Offsets of a block's records count from its first one, in 32 bits.


cdef struct Batch:  # Of messages in one record, for a queue of batches.
    int64_t size
    int64_t first  # Queue offset.


# --- Queues ---


cdef Queue *find_queue(DispatchMemory memory, const Text *name, int32_t queue_id, bint is_light) noexcept nogil:
    """The queue, which is made known if it is new: then it has no units yet."""
    cdef uint64_t name_hash = hash_name(name, queue_id, memory.multiplier)
    cdef int64_t place = <int64_t>(name_hash & <uint64_t>memory.table_mask)
    cdef Queue *queue
    while memory.table[place]:
        queue = &memory.queues[memory.table[place] - 1]
        if (
            queue.name_hash == name_hash
            and queue.queue_id == queue_id
            and queue.name_length == name.length
            and (queue.kind == LIGHT) == is_light
            and memcmp(memory.names + queue.name, name.start, name.length) == 0
        ):
            return queue
        memory.collisions += 1
        place = (place + 1) & memory.table_mask
    queue = &memory.queues[memory.queue_count]
    memory.queue_count += 1
    memory.table[place] = memory.queue_count
    queue.name_hash, queue.name, queue.name_length, queue.place = name_hash, memory.name_bytes, name.length, place
    queue.queue_id, queue.kind = queue_id, LIGHT if is_light else PLAIN
    queue.count = queue.runs = queue.last = 0
    queue.is_schedule = queue.may_have_light = False
    memcpy(memory.names + memory.name_bytes, name.start, name.length)
    memory.name_bytes += name.length
    if not is_light:
        note_topic(memory, queue, name)
    return queue


cdef void note_topic(DispatchMemory memory, Queue *queue, const Text *topic) noexcept nogil:
    """Find out what holds for all messages of a queue's topic."""
    cdef int64_t i
    queue.key_prefix = hash_utf8(0, topic.start, topic.length) * 31 + c'#'
    for i in range(memory.batch_topic_count):
        if is_text(topic, <const char *>memory.batch_topics[i].start, memory.batch_topics[i].length):
            queue.kind = BATCH
            return
    note_traits(queue, topic)


# --- Units ---


cdef inline void add_unit(
    DispatchMemory memory, Queue *queue, const Unit *unit, int64_t queue_offset, int64_t batch_size
) noexcept nogil:
    """Note a unit of a queue. Where a queue's offsets do not follow each other a run ends, but for batches.

    ``unit`` says what all units of a record have in common.
    """
    cdef bint starts_run = queue.count == 0 or (queue.kind != BATCH and queue.last + 1 != queue_offset)
    cdef Unit *added = &memory.units[memory.unit_count]
    added[0] = unit[0]
    added.queue = <int32_t>(queue - memory.queues)
    added.queue_offset, added.batch_size, added.starts_run = queue_offset, <int16_t>batch_size, starts_run
    queue.runs += starts_run
    queue.count += 1
    queue.last = queue_offset
    memory.unit_count += 1


cdef void put_light_units(
    DispatchMemory memory, const Properties *found, int32_t queue_id, const Unit *unit
) noexcept nogil:
    """Note a unit for each name that has an offset; a name that is not light is a topic's, with the message's queue.

    Lists of different lengths make no units. A broker never gets past an item that is no number, which it writes itself
    for a name that does not start with %LMQ%; here that name alone makes no unit.
    """
    cdef Text names = found.multi_dispatch, offsets = found.multi_queue_offset, name, offset
    cdef int64_t i, count, queue_offset = 0
    cdef Queue *queue
    trim_list(&names)
    trim_list(&offsets)
    count = count_items(&names)
    if count != count_items(&offsets):
        return
    for i in range(count):
        name, offset = split_off(&names, c','), split_off(&offsets, c',')
        if is_directory_name(&name) and parse_integer(&offset, 64, &queue_offset):
            queue = find_queue(memory, &name, 0 if is_light_name(&name) else queue_id, True)
            add_unit(memory, queue, unit, queue_offset, 0)


cdef inline void put_units(
    DispatchMemory memory, const Record *record, const Properties *found, Queue *queue, const Batch *batch, int64_t due
) noexcept nogil:
    """Note the unit of a record in its queue, and those in light queues."""
    cdef Unit unit
    cdef int32_t queue_id = load_i32(record.start + QUEUE_ID)
    unit.physical_offset, unit.size = record.physical_offset, <int32_t>record.size
    unit.timestamp = store_timestamp_at(record.start)
    unit.tags_code = unit.timestamp + due if due >= 0 else tags_code(found)
    if queue.kind == BATCH:
        if batch.size >= 0 and batch.first >= 0:
            add_unit(memory, queue, &unit, batch.first, batch.size)
        return
    add_unit(memory, queue, &unit, load_i64(record.start + QUEUE_OFFSET), batch.size)
    if memory.wants_light and queue.may_have_light:
        if found.multi_dispatch.start != NULL and found.multi_queue_offset.start != NULL:
            put_light_units(memory, found, queue_id, &unit)


# --- Entries ---


cdef inline void put_hash(DispatchMemory memory, uint32_t prefix, const uint8_t *text, int64_t length) noexcept nogil:
    memory.hashes[memory.entries] = fold_hash(hash_utf8(prefix, text, length))
    memory.entries += 1


cdef inline void put_pieces(DispatchMemory memory, uint32_t prefix, const Text *keys) noexcept nogil:
    """Append the hash of each piece of KEYS."""
    cdef Text rest = keys[0], piece
    while rest.length > 0:
        piece = split_off(&rest, SPACE)
        if piece.length > 0:
            put_hash(memory, prefix, piece.start, piece.length)


cdef inline void put_entries(
    DispatchMemory memory, const Record *record, const Properties *found, uint32_t prefix
) noexcept nogil:
    """Append a record's entries, if it has any: unique key, each piece of KEYS, tag.

    ``prefix`` is the hash of the topic and ``#``.
    """
    cdef int64_t before = memory.entries
    cdef bint is_tagged = memory.wants_tags and found.tags.start != NULL
    if found.unique_key.start != NULL:
        put_hash(memory, prefix, found.unique_key.start, found.unique_key.length)
    if found.keys.start != NULL:
        put_pieces(memory, prefix, &found.keys)
    if is_tagged:
        put_hash(memory, (prefix * 31 + c'T') * 31 + c'#', found.tags.start, found.tags.length)
    if memory.entries > before:
        memory.row_offsets[memory.rows] = <uint32_t>(record.physical_offset - memory.first_offset)
        memory.row_timestamps[memory.rows] = store_timestamp_at(record.start)
        memory.row_entries[memory.rows] = <uint16_t>(memory.entries - before)
        memory.row_tagged[memory.rows] = is_tagged
        memory.rows += 1


# --- Records ---


cdef inline bint read_delay(DispatchMemory memory, const Properties *found, int64_t *due) noexcept nogil:
    """Find out how many ms a message of the schedule topic waits, −1 where its level says nothing.

    False where the level is no number.
    """
    cdef int64_t level = 0
    due[0] = -1
    if found.delay.start == NULL:
        return True
    if not parse_integer(&found.delay, 32, &level):
        return False
    level = min(level, memory.delay_levels)
    if level > 0:
        due[0] = memory.delays[level - 1]
    return True


cdef inline bint read_batch(const Properties *found, int64_t queue_offset, Batch *batch) noexcept nogil:
    """Find out which messages a record holds for a queue of batches; False where a property is no number.

    A broker that finds both properties parses them, whatever the topic; without them a record is a batch of one.
    """
    batch.size, batch.first = 1, queue_offset
    if found.inner_num.start == NULL or found.inner_base.start == NULL:
        return True
    return parse_integer(&found.inner_num, 16, &batch.size) and parse_integer(&found.inner_base, 64, &batch.first)


cdef int64_t dispatch_record(DispatchMemory memory, const Record *record) noexcept nogil:
    """Note what a record of sound shape leads to; its size, or BAD_NUMBER: then nothing."""
    cdef Properties found
    cdef Batch batch
    cdef int64_t due = -1
    cdef int32_t transaction = load_i32(record.start + SYS_FLAG) & TRANSACTION_MASK
    cdef Queue *queue = find_queue(memory, &record.topic, load_i32(record.start + QUEUE_ID), False)
    find_properties(record, &found)
    if queue.is_schedule and not read_delay(memory, &found, &due):
        return BAD_NUMBER
    if not read_batch(&found, load_i64(record.start + QUEUE_OFFSET), &batch):
        return BAD_NUMBER
    if memory.wants_entries and transaction != TRANSACTION_ROLLBACK:
        put_entries(memory, record, &found, queue.key_prefix)
    if memory.wants_units and (transaction == 0 or transaction == TRANSACTION_COMMIT):
        put_units(memory, record, &found, queue, &batch, due)
    memory.records += 1
    memory.last_record, memory.last_timestamp = record.physical_offset, store_timestamp_at(record.start)
    return record.size


cdef inline bint is_full(DispatchMemory memory, int64_t physical_offset) noexcept nogil:
    """Whether the memory may be too small for everything that one more record adds."""
    return (
        memory.records >= memory.row_room
        or memory.hash_room - memory.entries < MAXIMUM_PIECES
        or memory.unit_room - memory.unit_count < MAXIMUM_PIECES
        or memory.unit_room - memory.queue_count < MAXIMUM_PIECES
        or memory.name_room - memory.name_bytes < NAME_ROOM
        or physical_offset - memory.first_offset > LONGEST_BLOCK
    )


cdef inline void fetch_next(const uint8_t *head, const uint8_t *end) noexcept nogil:
    """Have the head of the next record brought near, and its properties where it is as long as the present one."""
    __builtin_prefetch(head)
    __builtin_prefetch(head + LINE)
    __builtin_prefetch(end - LINE)
    __builtin_prefetch(end - 2 * LINE)
    __builtin_prefetch(end - 3 * LINE)


cdef int64_t dispatch_records(
    DispatchMemory memory, const uint8_t *data, int64_t position, int64_t available, int64_t base, int64_t boundary,
    int64_t limit, int *reason, int *code,
) noexcept nogil:
    """As :meth:`DispatchMemory.run`; where the run ended."""
    cdef Record record
    cdef int64_t size
    while position < limit:
        if is_full(memory, base + position):
            reason[0] = FULL
            return position
        size = read_shape(&record, data + position, available - position, base + position)
        if size < 0:
            size = enter_entry(&record, data, &position, available, base, boundary, limit, size, reason, code)
            if size == 0:
                continue
            if size < 0:
                return position
        fetch_next(data + position + size, data + min(position + 2 * size, available))
        if memory.wants_checksums:
            size = check_checksums(&record)
        if size > 0:
            size = dispatch_record(memory, &record)
        if size < 0:
            reason[0], code[0] = DAMAGE, <int>size
            return position
        position += size
    reason[0] = LIMIT
    return position


# --- What is taken ---


cdef int64_t share_space(DispatchMemory memory, int64_t *runs) noexcept nogil:
    """Let the units of each queue follow those of the one before: their bytes; only queues that have any are shown."""
    cdef int64_t number, byte = 0, unit = 0, run = 0, shown = 0
    cdef Queue *queue
    for number in range(memory.queue_count):
        queue = &memory.queues[number]
        queue.next_byte, queue.next_unit, queue.next_run, queue.shown = byte, unit, run - 1, shown
        byte += queue.count * (BATCH_BYTES if queue.kind == BATCH else PLAIN_BYTES)
        unit += queue.count
        run += queue.runs
        shown += queue.count > 0
    runs[0] = run
    return byte


cdef void sort_units(DispatchMemory memory, Run *runs, uint8_t *target, int64_t *timestamps) noexcept nogil:
    """Write the units queue by queue, and their runs; each one's store time, too, unless ``timestamps`` is NULL."""
    cdef int64_t i
    cdef const Unit *unit
    cdef Queue *queue
    cdef Run *run
    for i in range(memory.unit_count):
        unit = &memory.units[i]
        queue = &memory.queues[unit.queue]
        if unit.starts_run:
            queue.next_run += 1
            run = &runs[queue.next_run]
            run.queue, run.kind, run.first = queue.shown, queue.kind, unit.queue_offset
            run.units, run.position = 0, queue.next_byte
        runs[queue.next_run].units += 1
        if timestamps != NULL:
            timestamps[queue.next_unit] = unit.timestamp
            queue.next_unit += 1
        queue.next_byte += write_unit(target + queue.next_byte, unit, queue.kind == BATCH)


cdef bytearray copied(const void *items, int64_t count, int64_t item_bytes):
    return PyByteArray_FromStringAndSize(<const char *>items, count * item_bytes)


cdef class Step:
    """Where a run ended, and why."""

    def __cinit__(self, int64_t position, int reason, int code):
        self.position, self.reason, self.code = position, reason, code


cdef class Gathered:
    """What the records of the physical range [first_offset, end_offset) lead to.

    Numbers of one kind stand one behind the other in the machine's byte order, in memory of their own.
    """

    def __cinit__(
        self, *, int64_t first_offset, int64_t end_offset, int64_t records, int64_t last_record, int64_t last_timestamp,
        bytearray record_offsets, bytearray record_timestamps, bytearray record_entries, bytearray record_tagged,
        bytearray hashes, list queues, bytearray runs, bytearray units, bytearray unit_timestamps,
    ):
        self.first_offset, self.end_offset, self.records = first_offset, end_offset, records
        self.last_record, self.last_timestamp, self.hashes, self.queues = last_record, last_timestamp, hashes, queues
        self.record_offsets, self.record_timestamps = record_offsets, record_timestamps
        self.record_entries, self.record_tagged = record_entries, record_tagged
        self.runs, self.units, self.unit_timestamps = runs, units, unit_timestamps


cdef class DispatchMemory:
    """The memory of a scan: what it gathers, up to a number of records.

    For one thread at a time: `run` and `take` raise RuntimeError while another thread is in one of them.
    """

    def __cinit__(
        self, *, bint tags, bint checksums, delays: Iterable[int], bint lmq, batch_topics: Iterable[bytes], bint units,
        bint entries, bint timestamps, int64_t records,
    ) -> None:
        """Make room for so many `records`; raises ValueError where that is no sensible number.

        `tags`: an entry for the tag is put, too. `delays`: ms of each delay level. `lmq`: units for light queues, too.
        `batch_topics`: topics whose units are of batches. `timestamps`: give the units' store times.
        """
        if not 0 < records <= MOST_RECORDS:
            raise ValueError(f"blocks of {records} records, expected 1 to {MOST_RECORDS}")
        self.wants_tags, self.wants_checksums, self.wants_light = tags, checksums, lmq
        self.wants_entries, self.wants_units, self.wants_timestamps = entries, units, timestamps
        self.batch_names = tuple(map(bytes, batch_topics))
        levels = tuple(delays)
        self.delay_levels, self.batch_topic_count = len(levels), len(self.batch_names)
        self.row_room, self.unit_room = records, records + MAXIMUM_PIECES
        self.hash_room = records * ENTRIES_PER_RECORD + MAXIMUM_PIECES
        self.name_room = max(records * NAME_BYTES_PER_RECORD, 2 * NAME_ROOM)
        self.table_mask = (1 << (2 * self.unit_room - 1).bit_length()) - 1
        self.multiplier = int.from_bytes(os.urandom(8), "big") | 1
        self.make_room()
        for number, delay in enumerate(levels):
            self.delays[number] = delay
        for number, name in enumerate(self.batch_names):
            self.batch_topics[number] = text_of(name)
        self.forget()

    cdef int make_room(self) except -1:
        """One block of memory for all; those of the widest items come first."""
        cdef int64_t size = (
            self.unit_room * (sizeof(Unit) + sizeof(Queue))
            + self.row_room * (sizeof(int64_t) + sizeof(uint32_t) + sizeof(uint16_t) + sizeof(uint8_t))
            + self.delay_levels * sizeof(int64_t)
            + self.batch_topic_count * sizeof(Text)
            + self.hash_room * sizeof(int32_t)
            + self.name_room
        )
        self.blocks = []
        self.table = <int32_t *>take_zeroes(self.blocks, self.table_mask + 1, sizeof(int32_t))
        self.units = <Unit *>take(self.blocks, size, 1)
        self.queues = <Queue *>(self.units + self.unit_room)
        self.batch_topics = <Text *>(self.queues + self.unit_room)
        self.delays = <int64_t *>(self.batch_topics + self.batch_topic_count)
        self.row_timestamps = self.delays + self.delay_levels
        self.hashes = <int32_t *>(self.row_timestamps + self.row_room)
        self.row_offsets = <uint32_t *>(self.hashes + self.hash_room)
        self.row_entries = <uint16_t *>(self.row_offsets + self.row_room)
        self.row_tagged = <uint8_t *>(self.row_entries + self.row_room)
        self.names = self.row_tagged + self.row_room
        return 0

    cdef void forget(self) noexcept nogil:
        """Go on with nothing."""
        cdef int32_t number
        for number in range(self.queue_count):
            self.table[self.queues[number].place] = 0
        self.records = self.rows = self.entries = self.unit_count = self.queue_count = self.name_bytes = 0
        self.last_timestamp = 0
        self.last_record = self.first_offset = -1

    def run(
        self, Region region not None, int64_t position, int64_t available, int64_t base, int64_t boundary,
        int64_t limit,
    ) -> Step:
        """Dispatch the records that start in [position, limit) of a region, as far as there are any and there is room.

        `available` bytes of the region may be read; `base` is the physical offset of its first byte; the next segment
        starts at `boundary`, or would start there. Raises ValueError where `available` lies outside the region, and
        where a run begins before the end of one whose outcome has not been taken yet.
        """
        cdef int reason = LIMIT, code = 0
        require(region, position, available)
        self.claim()
        try:
            if base < 0 or (self.first_offset >= 0 and base + position < self.end_offset):
                raise ValueError(f"a run from {base + position} on does not go forward from {self.end_offset}")
            if self.first_offset < 0:
                self.first_offset = base + position
            with nogil:
                position = dispatch_records(
                    self, region.data, position, available, base, boundary, limit, &reason, &code
                )
            self.end_offset = base + position
        finally:
            self.is_claimed = False
        return Step(position, reason, code)

    cdef int claim(self) except -1:
        """Have it for one thread, which must give it back; raises RuntimeError where another one has it."""
        if self.is_claimed:
            raise RuntimeError("a DispatchMemory is for one thread, and another one is just using it")
        self.is_claimed = True
        return 0

    def take(self) -> Gathered:
        """What has been gathered since this was last asked for; the scan goes on with nothing."""
        self.claim()
        try:
            return self.gathered()
        finally:
            self.is_claimed = False

    cdef Gathered gathered(self):
        cdef int64_t run_count = 0, unit_bytes = share_space(self, &run_count)
        cdef bytearray runs = copied(NULL, run_count, sizeof(Run)), units = copied(NULL, unit_bytes, 1)
        cdef bytearray times = copied(NULL, self.unit_count if self.wants_timestamps else 0, sizeof(int64_t))
        cdef Run *first_run = <Run *>PyByteArray_AsString(runs)
        cdef uint8_t *first_unit = <uint8_t *>PyByteArray_AsString(units)
        cdef int64_t *first_time = <int64_t *>PyByteArray_AsString(times) if self.wants_timestamps else NULL
        with nogil:
            sort_units(self, first_run, first_unit, first_time)
        taken = Gathered(
            first_offset=max(self.first_offset, 0), end_offset=self.end_offset, records=self.records,
            last_record=self.last_record, last_timestamp=self.last_timestamp,
            record_offsets=copied(self.row_offsets, self.rows, sizeof(uint32_t)),
            record_timestamps=copied(self.row_timestamps, self.rows, sizeof(int64_t)),
            record_entries=copied(self.row_entries, self.rows, sizeof(uint16_t)),
            record_tagged=copied(self.row_tagged, self.rows, sizeof(uint8_t)),
            hashes=copied(self.hashes, self.entries, sizeof(int32_t)),
            queues=self.shown_queues(), runs=runs, units=units, unit_timestamps=times,
        )
        self.forget()
        return taken

    cdef list shown_queues(self):
        """Topic and id of each queue that has units."""
        cdef int32_t number
        cdef Queue *queue
        cdef list shown = []
        for number in range(self.queue_count):
            queue = &self.queues[number]
            if queue.count > 0:
                name = (<const char *>self.names)[queue.name : queue.name + queue.name_length]
                shown.append((name, queue.queue_id))
        return shown
