"""One pull over the units of a plain queue (store-format §5.4), as long as nothing odd is met.

Each unit takes the way of :func:`storage.query.get_message.get_message`: the limits, the filter, the record. A record that
is not there, not intact or not the queue's, a filler, a lost or present extension: all that is for the caller to look
at otherwise.
"""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from os import urandom

from protocol.kernels.memory cimport __builtin_ctzll, __builtin_prefetch, load_i32, load_i64
from storage.kernels.plain_units cimport UNIT_BYTES, UNIT_SIZE, UNIT_TAGS_CODE
from storage.kernels.records cimport COLD, QUEUE_ID, QUEUE_OFFSET, Record, check_checksums, text_of
from storage.kernels.region cimport Column, take
from storage.kernels.sql92 cimport LONGEST_PROPERTIES, TRUE, Evaluation, decide, open_evaluation
from storage.kernels.store_view cimport (
    CACHE_LINE,
    LogView,
    Segment,
    fetch_record,
    find_segment,
    is_hot,
    locate_record,
    log_begin,
    log_end,
)


cdef enum:
    # Records that are asked of memory before the one that is checked: they lie anywhere, and each would be waited for.
    # By `benchmarks.pull` 2 to 8 cost the same, within the 5 % by which its runs differ, and all 32 at once 14 % more.
    FETCHED_AHEAD = 4
    # Words of units of which it is found out together whether they are wanted, at most.
    WORDS = 8
    # Units whose records are asked for by their first line together: to find the page of one takes as long as to read
    # it, and a processor finds several at a time, but only if nothing else stands between.
    FOUND_TOGETHER = 32
    # Of a record whose properties are wanted and not its body, what is asked for at its end.
    TAIL_BYTES = 256


# Of hashes of codes, a client's tags: odd, and nobody can foresee whose meet.
cdef uint64_t multiplier = <uint64_t>int.from_bytes(urandom(8), "little") | 1


cdef extern from *:
    """
    #define LARGEST_ADDRESS (-(1LL << 31) - 1)
    """
    const int64_t LARGEST_ADDRESS  # Of an extension unit, in the place of a tags code.


cdef struct Unit:
    int64_t physical_offset
    int32_t size
    int64_t tags_code


cdef inline Unit read_unit(const uint8_t *at) noexcept nogil:
    cdef Unit unit
    unit.physical_offset = load_i64(at)
    unit.size = load_i32(at + UNIT_SIZE)
    unit.tags_code = load_i64(at + UNIT_TAGS_CODE)
    return unit


cdef class Choice:
    """How a filter chooses."""

    def __init__(
        self, int kind, codes: ReadableBuffer | None = None, Program program=None, bint has_bits=False,
    ) -> None:
        """`codes` are of tags their hashes, `program` is of an expression.

        `has_bits` says that extension units may speak of the filter. Raises ValueError for an expression without one.
        """
        if kind == BY_EXPRESSION and program is None:
            raise ValueError("a choice by an expression without one")
        self.kind, self.program, self.has_bits, self.cost = kind, program, has_bits, 1
        if program is not None:
            self.cost = program.expression.count + program.expression.names.count
        if kind == BY_TAG:
            if codes is None or self.codes != NULL:
                raise ValueError("a choice by tags takes their codes, once")
            put_codes(self, Column(codes, sizeof(uint32_t)))


cdef int view_units(
    QueueView *queue, FileView file, int64_t position, int64_t first, int64_t stop, int32_t queue_id, bytes topic
) except -1:
    if not 0 <= position <= file.file.size or not 0 <= first <= stop:
        raise ValueError(f"units {first} to {stop} from position {position} of {file.file.size} bytes on")
    if stop - first > (file.file.size - position) // UNIT_BYTES:
        raise ValueError(f"{stop - first} units at position {position} do not lie in {file.file.size} bytes")
    queue.file = file.file
    queue.position, queue.first, queue.stop, queue.queue_id = position, first, stop, queue_id
    queue.topic = text_of(topic)
    return 0


# --- What a unit and its record say ---


cdef inline uint32_t code_of(const uint8_t *units, int64_t number) noexcept nogil:
    """The low 32 bits of a unit's tags code."""
    return <uint32_t>load_i64(units + UNIT_BYTES * number + UNIT_TAGS_CODE)


cdef inline uint64_t filter_bit(uint32_t code) noexcept nogil:
    """Which bit of a filter stands for a code: without it no processor has to foresee what a unit's tag is."""
    return code * multiplier >> 52


cdef inline uint64_t place_of_code(Choice choice, uint32_t code) noexcept nogil:
    """The place of a code among those of a choice by tags, or where it would be."""
    cdef uint64_t last = (<uint64_t>1 << choice.code_bits) - 1
    cdef uint64_t place = code * multiplier >> (63 - choice.code_bits) & last
    while choice.codes[place] >= 0 and choice.codes[place] != code:
        place = (place + 1) & last
    return place


cdef int put_codes(Choice choice, Column codes) except -1:
    """Let a choice by tags want these codes."""
    cdef const uint32_t *given = <const uint32_t *>codes.items
    cdef uint64_t bit
    cdef int64_t number, places
    choice.code_bits = (2 * codes.count).bit_length()
    places = <int64_t>1 << choice.code_bits
    choice._blocks = []
    choice.codes = <int64_t *>take(choice._blocks, places, sizeof(int64_t))
    for number in range(places):
        choice.codes[number] = -1
    for number in range(codes.count):
        choice.codes[place_of_code(choice, given[number])] = given[number]
        bit = filter_bit(given[number])
        choice.filter[bit >> 6] |= <uint64_t>1 << (bit & 63)
    return 0


cdef uint64_t wanted_of(const uint8_t *units, int64_t count, Choice choice) noexcept nogil:
    """Which of up to 64 units a choice may want, a bit for each: those of its tags, else all."""
    cdef uint64_t perhaps = 0, wanted = 0, bit
    cdef int64_t number
    if choice.kind != BY_TAG:
        return ~<uint64_t>0 >> (64 - count)
    for number in range(count):
        bit = filter_bit(code_of(units, number))
        perhaps |= (choice.filter[bit >> 6] >> (bit & 63) & 1) << number
    while perhaps:
        number = __builtin_ctzll(perhaps)
        perhaps &= perhaps - 1
        if choice.codes[place_of_code(choice, code_of(units, number))] >= 0:
            wanted |= <uint64_t>1 << number
    return wanted


cdef inline bint leads_to_extension(Choice choice, int64_t tags_code) noexcept nogil:
    """Whether a unit leads to an extension that says something about the choice."""
    return tags_code <= LARGEST_ADDRESS and (choice.kind == BY_TAG or choice.has_bits)


cdef inline bint is_implausible(const Unit *unit, int64_t begin, int64_t end) noexcept nogil:
    """Whether a unit points to no place of a log from ``begin`` to ``end``: what it says of the tag decides nothing."""
    return unit.size <= 0 or not begin <= unit.physical_offset < end


cdef inline bint is_message_of(const Record *record, const QueueView *queue, int64_t queue_offset) noexcept nogil:
    """Whether a record says the queue's id and topic, and the queue offset of the unit that led to it."""
    return (
        load_i32(record.start + QUEUE_ID) == queue.queue_id
        and load_i64(record.start + QUEUE_OFFSET) == queue_offset
        and record.topic.length == queue.topic.length
        and memcmp(record.topic.start, queue.topic.start, queue.topic.length) == 0
    )


# --- Asking memory for records before they are read ---


cdef struct Units:  # Those that one pull looks at.
    const uint8_t *first
    int64_t count
    uint64_t wanted[WORDS]  # Bits of the units from `chosen_from` up to `chosen`.
    int64_t chosen_from
    int64_t chosen
    int64_t ahead  # The unit from which on no record is fetched.
    int64_t together  # The unit from which on not even a first line is.


cdef inline bint is_wanted(const Units *units, int64_t number) noexcept nogil:
    number -= units.chosen_from
    return units.wanted[number >> 6] >> (number & 63) & 1


cdef inline int64_t next_wanted(const Units *units, int64_t number) noexcept nogil:
    """The first wanted unit from one on, among those that were chosen from; else `chosen`."""
    cdef uint64_t word
    while number < units.chosen:
        word = units.wanted[(number - units.chosen_from) >> 6] >> ((number - units.chosen_from) & 63)
        if word:
            return number + __builtin_ctzll(word)
        number = units.chosen_from + (((number - units.chosen_from) | 63) + 1)
    return units.chosen


cdef void choose(Units *units, Choice choice) noexcept nogil:
    """Go on to the units behind `chosen`: at first one word of them, then each time twice as many."""
    cdef int64_t words = min(max((units.chosen - units.chosen_from) >> 5, 1), WORDS), number, count
    units.chosen_from = units.ahead = units.together = units.chosen
    for number in range(words):
        count = min(units.count - units.chosen, 64)
        if count <= 0:
            return
        units.wanted[number] = wanted_of(units.first + UNIT_BYTES * units.chosen, count, choice)
        units.chosen += count


cdef void fetch_first_lines(const Log *log, Units *units) noexcept nogil:
    """Ask memory for the first line of the next wanted records."""
    cdef int64_t number = next_wanted(units, units.together), count = 0, begin = 0, end = 0, place
    cdef const uint8_t *data = NULL
    cdef const Segment *segment
    while number < units.chosen and count < FOUND_TOGETHER:
        place = load_i64(units.first + UNIT_BYTES * number)
        number, count = next_wanted(units, number + 1), count + 1
        if not begin <= place < end:
            segment = find_segment(log, place)
            if segment == NULL:
                continue
            begin, data = segment.base_offset, segment.file.data
            end = begin + segment.valid_length
        __builtin_prefetch(data + (place - begin))
    units.together = number


cdef void fetch_next(const Log *log, Units *units, Choice choice) noexcept nogil:
    """Ask memory for the record of the next wanted unit."""
    cdef const Segment *segment
    cdef const uint8_t *record
    cdef int64_t position, available
    cdef Unit unit
    while True:
        units.ahead = next_wanted(units, units.ahead)
        if units.ahead == units.chosen:
            return
        unit = read_unit(units.first + UNIT_BYTES * units.ahead)
        units.ahead += 1
        segment = find_segment(log, unit.physical_offset)
        if segment == NULL:
            return
        position = unit.physical_offset - segment.base_offset
        available = segment.valid_length - position
        record = segment.file.data + position
        __builtin_prefetch(record)
        if unit.size <= 0 or unit.size > available:
            return
        if choice.kind != BY_EXPRESSION or unit.size <= TAIL_BYTES:
            fetch_record(record, unit.size)
        else:
            __builtin_prefetch(record + CACHE_LINE)
            position = unit.size - TAIL_BYTES
            while position < unit.size:
                __builtin_prefetch(record + position)
                position += CACHE_LINE
            __builtin_prefetch(record + unit.size - 1)
        return


# --- The pull ---


cdef bint open_for(Evaluation *evaluation, Choice choice, PyObject **held) noexcept with gil:
    """Get ready for an expression; False where there is no memory for it, or it is not finished.

    `held` is what the evaluation needs until :func:`let_go`, NULL where it needs nothing.
    """
    cdef list blocks
    held[0] = NULL
    try:
        blocks = open_evaluation(evaluation, choice.program, LONGEST_PROPERTIES)
    except (MemoryError, ValueError):
        return False
    if blocks:
        Py_INCREF(blocks)
        held[0] = <PyObject *>blocks
    return True


cdef void let_go(PyObject *held) noexcept with gil:
    Py_DECREF(<object>held)


cdef int64_t pull_units(
    const Log *log, const QueueView *queue, Choice choice, int64_t tick, Pull *pull
) noexcept nogil:
    cdef Evaluation evaluation
    cdef PyObject *held
    cdef int64_t passed
    pull.count = pull.total_bytes = pull.decided = 0
    if choice.kind != BY_EXPRESSION:
        return look_through(log, queue, choice, NULL, tick, pull)
    if not open_for(&evaluation, choice, &held):
        return ODD
    passed = look_through(log, queue, choice, &evaluation, tick, pull)
    if held != NULL:
        let_go(held)
    return passed


cdef int64_t look_through(
    const Log *log, const QueueView *queue, Choice choice, Evaluation *evaluation, int64_t tick, Pull *pull
) noexcept nogil:
    """As pull_units; with what evaluates the choice's expression, if it has one."""
    cdef int64_t left, count, readable, position
    cdef int64_t begin = log_begin(log), end = log_end(log), maximum = max(min(pull.messages, MAXIMUM_FOUND), 1)
    cdef int64_t before = -1, number = 0, size, following
    cdef bint is_preceded = pull.queue_offset > queue.first
    cdef const uint8_t *at
    cdef Record record
    cdef Units units
    cdef Unit unit
    cdef Hit *hit
    if not queue.first <= pull.queue_offset <= queue.stop:
        return ODD
    left = queue.stop - pull.queue_offset
    count = min(pull.scan, left)
    readable = min(count + 1, left)
    if count < 1:
        return 0
    position = queue.position + UNIT_BYTES * (pull.queue_offset - queue.first)
    at = queue.file.data + position
    pull.cold.file = &queue.file
    pull.cold.position = position - UNIT_BYTES if is_preceded else position
    pull.cold.length = position + UNIT_BYTES * readable - pull.cold.position
    if not is_hot(&queue.file, pull.cold.position, pull.cold.length, tick):
        return UNITS_COLD
    if is_preceded:
        # Expired messages are before the log's begin; any other unit that leads nowhere vouches for none behind it.
        unit = read_unit(at - UNIT_BYTES)
        before = unit.physical_offset
        if unit.size <= 0 or not 0 <= before < end:
            return ODD
    units.first, units.chosen_from, units.chosen, units.together = at, 0, 0, 0
    units.count = min(count, maximum) if choice.kind == EVERYTHING else count
    while number < units.count:
        if number == units.chosen:
            choose(&units, choice)
            for _ in range(FETCHED_AHEAD):
                fetch_next(log, &units, choice)
        if number == units.together:
            fetch_first_lines(log, &units)
        unit = read_unit(at)
        at += UNIT_BYTES
        number += 1
        # Messages of a queue follow one another: a unit that does not fit in leads elsewhere, and its tag decides nothing.
        following = load_i64(at) if number < readable else end
        if is_implausible(&unit, begin, end) or unit.physical_offset <= before:
            return ODD
        if 0 < following < unit.physical_offset + unit.size:
            return ODD
        before = unit.physical_offset
        if pull.count > 0 and (pull.count >= maximum or pull.total_bytes + unit.size > pull.record_bytes):
            return number - 1
        if choice.kind != EVERYTHING:
            if leads_to_extension(choice, unit.tags_code):
                return ODD
            if not is_wanted(&units, number - 1):
                continue
        fetch_next(log, &units, choice)
        size = locate_record(log, unit.physical_offset, unit.size, tick, &record, &pull.cold)
        if size < 0:  # of a filler too: no record is as long as it says
            return RECORD_COLD if size == COLD else ODD
        if not is_message_of(&record, queue, pull.queue_offset + number - 1):
            return ODD
        if evaluation != NULL:
            pull.decided += 1
            if decide(evaluation, &record.properties) != TRUE:
                continue
        if check_checksums(&record) < 0:
            return ODD
        hit = &pull.found[pull.count]
        hit.physical_offset, hit.record, hit.size = unit.physical_offset, record.start, size
        pull.count += 1
        pull.total_bytes += size
    if choice.kind == BY_TAG and number < readable:
        # Damage behind these units may have begun within the tag of the last one.
        unit = read_unit(at)
        if is_implausible(&unit, begin, end):
            return ODD
    return number


# --- The door ---


@cython.final
cdef class Pulled:
    """What a pull found."""

    cdef readonly int64_t passed  # Units that were gone through; else why the pull has to be made otherwise.
    cdef readonly list[memoryview] records  # The records, slices of their segments' maps, ascending.
    cdef readonly int64_t decided  # Messages for which an expression was evaluated.
    cdef readonly FileView cold_file  # `FileView | None`: The file of which something is not in memory.
    cdef readonly int64_t cold_position  # Position of the bytes that are not in memory.
    cdef readonly int64_t cold_length  # How many bytes are not in memory.

    def __cinit__(
        self, int64_t passed, list records, int64_t decided, FileView cold_file, int64_t cold_position,
        int64_t cold_length,
    ):
        self.passed, self.records, self.decided = passed, records, decided
        self.cold_file, self.cold_position, self.cold_length = cold_file, cold_position, cold_length


def pull(
    LogView log not None, FileView file not None, int64_t position, int64_t first, int64_t stop, int32_t queue_id,
    bytes topic not None, Choice choice not None, int64_t queue_offset, int64_t scan, int64_t messages,
    int64_t record_bytes, int64_t tick,
) -> Pulled:
    """Pull from a queue offset on: up to `messages`, MAXIMUM_FOUND at most, and `record_bytes`; one at least.

    Up to `scan` units are scanned. Units `first` to `stop` are in the file from a position on; raises ValueError where
    the file is too short for them. Units around the scanned ones only show whether these are in order.
    """
    cdef QueueView queue
    cdef Pull asked
    cdef int64_t passed
    cdef bint is_cold
    view_units(&queue, file, position, first, stop, queue_id, topic)
    asked.queue_offset, asked.scan, asked.messages, asked.record_bytes = queue_offset, scan, messages, record_bytes
    if tick == 0:
        with nogil:
            passed = pull_units(&log.log, &queue, choice, tick, &asked)
    else:  # a pull that is bounded: to wait for the GIL afterwards could take longer
        passed = pull_units(&log.log, &queue, choice, tick, &asked)
    is_cold = passed == UNITS_COLD or passed == RECORD_COLD
    return Pulled(
        passed, [slice_of(log, &asked.found[number]) for number in range(asked.count)], asked.decided,
        <FileView>asked.cold.file.view if is_cold else None, asked.cold.position if is_cold else 0,
        asked.cold.length if is_cold else 0,
    )


cdef object slice_of(LogView log, const Hit *hit):
    """A record as a slice of its segment's map."""
    cdef const Segment *segment = find_segment(&log.log, hit.physical_offset)
    cdef int64_t position = hit.record - segment.file.data
    return (<FileView>segment.file.view)._view[position : position + hit.size]
