"""Answer the plain requests at the front of a read, one after the other, in one call: the fast lane.

A request leaves the lane, and stops it, wherever an answer would have to say more than the lane can: it is not plain,
nothing is found, pages are cold, the walk is long, the index errs, no pull like it was answered yet. What the lane does
write is byte for byte what the ordinary way writes: headers are rendered there and cut to templates, into which numbers
go. Answers go into a bytes object that is made for them, and belongs to who asked.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from broker.kernels.requests cimport PULL, QUERY, VIEW, Request, read_request
from protocol.kernels.memory cimport Text, __builtin_prefetch, load_i32, load_native_u32
from protocol.kernels.responses cimport (
    LONGEST_NUMBER,
    PREFIX,
    ResponseTemplate,
    digits_of,
    head_length,
    write_head,
)
from storage.kernels.lookups cimport (
    FOUND,
    KIND_TAG,
    KIND_UNIQUE,
    Hit,
    Lookup,
    Query,
    copy_hits,
    find_hits,
    hash_query,
    limit_hits,
)
from storage.kernels.file_map cimport cuts
from storage.kernels.indexes cimport ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES, newest_in, read_entry, slot_of
from storage.kernels.plain_units cimport UNIT_BYTES
from storage.kernels.pulls cimport Choice, Pull, pull_units, view_units
from storage.kernels.records cimport Record, text_of
from storage.kernels.region cimport Region, take, take_zeroes
from storage.kernels.store_view cimport (
    CACHE_LINE,
    ColdBytes,
    FileView,
    IndexFileView,
    Segment,
    Store,
    StoreView,
    check_record,
    find_segment,
    is_hot,
)
from storage.kernels.texts cimport hash_of, is_same_text, mix_in

from os import urandom

cdef extern from *:
    """
    #ifdef Py_LIMITED_API  /* The stable interface of 3.11 has no way to resize: the bytes are copied. */
    static int resize_bytes(PyObject **content, Py_ssize_t size)
    {
        Py_ssize_t kept = PyBytes_Size(*content);
        PyObject *resized = PyBytes_FromStringAndSize(NULL, size);
        if (resized != NULL)
            memcpy(PyBytes_AsString(resized), PyBytes_AsString(*content), (size_t)(kept < size ? kept : size));
        Py_DECREF(*content);
        *content = resized;
        return resized != NULL ? 0 : -1;
    }
    #else
    #define resize_bytes _PyBytes_Resize
    #endif
    """
    PyObject *new_bytes "PyBytes_FromStringAndSize" (const char *content, Py_ssize_t size) except NULL
    int resize_bytes(PyObject **content, Py_ssize_t size) except -1
    char *bytes_start "PyBytes_AsString" (PyObject *content)
    void Py_XDECREF(PyObject *content)


# --- Writing answers ---


cdef uint8_t *reserve(Output *output, int64_t needed, int64_t likely) except NULL:
    """Make room for an answer, when ``likely`` bytes of answers will follow with it; where it is to be written."""
    cdef int64_t written = 0
    if output.room < needed:
        likely = max(needed, likely)
        if output.answers == NULL:
            output.answers = new_bytes(NULL, likely)
        else:
            written = output.at - <uint8_t *>bytes_start(output.answers)
            likely = max(likely, written)
            resize_bytes(&output.answers, written + likely)
        output.at, output.room = <uint8_t *>bytes_start(output.answers) + written, likely
    return output.at


cdef object finish(Output *output):
    """The answers that were written."""
    if output.answers == NULL:
        return b""
    if output.room > 0:
        resize_bytes(&output.answers, output.at - <uint8_t *>bytes_start(output.answers))
    return <object>output.answers


# --- Pulls like those that the ordinary way has answered ---


@cython.final
cdef class PullKind:
    """What pulls say alike that are answered alike but for their offsets; texts in UTF-8."""

    def __cinit__(
        self, int64_t code, bytes topic not None, bytes group not None, bytes subscription, bytes expression_type,
        int32_t queue_id, int64_t max_messages, max_bytes: int | None, int64_t sys_flag, int64_t sub_version,
    ) -> None:
        self._texts = topic, group, subscription, expression_type
        self.topic, self.group = text_of(topic), text_of(group)
        self.subscription, self.expression_type = text_of(subscription), text_of(expression_type)
        self.code, self.queue_id, self.max_messages = code, queue_id, max_messages
        self.has_max_bytes, self.max_bytes = max_bytes is not None, 0 if max_bytes is None else max_bytes
        self.sys_flag, self.sub_version = sys_flag, sub_version


@cython.final
cdef class KnownPull:
    """What the ordinary way found out for pulls of a kind; it keeps the file mapped."""

    def __cinit__(
        self, PullKind kind not None, FileView file not None, int64_t position, int64_t file_first, int64_t file_stop,
        int64_t first, int64_t stop, int64_t scan, int64_t messages, int64_t record_bytes, Choice choice not None,
        int64_t cost, ResponseTemplate template not None,
    ) -> None:
        """Make a pull that begins at a queue offset from `first` up to `stop`.

        The file has units `file_first` to `file_stop`, the first at a position. Up to `scan` units are scanned; `cost`
        is that of one unit, in sixteenths of a step along an index's chain. Up to `messages` and `record_bytes` are
        returned. The numbers of the header are the next offset and the opaque. Raises ValueError where these do not fit
        together.
        """
        self.kind, self.choice, self.template, self.cost = kind, choice, template, cost
        self.first, self.stop, self._file = first, stop, file
        self.scan, self.messages, self.record_bytes = scan, messages, record_bytes
        view_units(&self.queue, file, position, file_first, file_stop, kind.queue_id, kind._texts[0])
        if not file_first <= first <= stop <= file_stop:
            raise ValueError(f"queue offsets {first} to {stop} of {file_first} to {file_stop}")
        if template.numbers != 2:
            raise ValueError(f"a header with {template.numbers} numbers")


cdef inline bint is_alike(const Text *one, const Text *other) noexcept:
    """Whether two texts are the same, or both are none."""
    return (one.start == NULL) == (other.start == NULL) and is_same_text(one, other)


cdef inline bint is_of_kind(const Request *request, PullKind kind) noexcept:
    return (
        request.code == kind.code
        and request.queue_id == kind.queue_id
        and request.max_messages == kind.max_messages
        and request.has_max_bytes == kind.has_max_bytes
        and (not kind.has_max_bytes or request.max_bytes == kind.max_bytes)
        and request.sys_flag == kind.sys_flag
        and request.sub_version == kind.sub_version
        and is_alike(&request.topic, &kind.topic)
        and is_alike(&request.group, &kind.group)
        and is_alike(&request.subscription, &kind.subscription)
        and is_alike(&request.expression_type, &kind.expression_type)
    )


@cython.final
cdef class KnownPulls:
    """Known pulls, found by what a request says."""

    def __cinit__(self, int64_t most, int64_t slots) -> None:
        """As many at most, in a table of `slots`, a power of two and more than that."""
        if not 0 < most < slots or slots & (slots - 1):
            raise ValueError(f"{most} pulls in {slots} slots")
        self._blocks = []
        self._slots = <int32_t *>take_zeroes(self._blocks, slots, sizeof(int32_t))
        self._pulls = <PyObject **>take_zeroes(self._blocks, most, sizeof(PyObject *))
        self._numbers = <uint64_t *>take_zeroes(self._blocks, most, sizeof(uint64_t))
        self._most, self._last_slot = most, slots - 1
        self._multiplier = <uint64_t>int.from_bytes(urandom(8), "little") | 1  # nobody can foresee whose hashes meet
        self._kept = []

    def __len__(self) -> int:
        return len(self._kept)

    def pulled(self) -> list[tuple[int, int]]:
        """Of each where its last pull goes on, and the tick at which that was answered; zeros before the first."""
        cdef KnownPull pull
        return [(pull.pulled_offset, pull.pulled_tick) for pull in self._kept]

    @property
    def is_full(self) -> bool:
        """Whether there are as many as there may be."""
        return self._count == self._most

    def clear(self) -> None:
        """Know none any more."""
        memset(self._slots, 0, (self._last_slot + 1) * sizeof(int32_t))
        self._count = 0
        self._kept = []

    def release(self) -> None:
        """Answer like none of them any more, and let their files go; where their last pulls go on is still known."""
        cdef KnownPull pull
        for pull in self._kept:
            pull.first = pull.stop = 0  # no pull is like it any more
            pull._file = None

    def add(self, KnownPull pull not None, int64_t queue_offset) -> bool:
        """Know a pull, in the run of units of this offset, unless one like it is known there; whether it was new."""
        cdef PullKind kind = pull.kind
        cdef Request request
        cdef uint64_t slot, number
        if not pull.first <= queue_offset < pull.stop:
            raise ValueError(f"queue offset {queue_offset} of {pull.first} to {pull.stop}")
        if self._count == self._most:
            raise ValueError("as many pulls as there may be are known")
        request.code, request.queue_id, request.queue_offset = kind.code, kind.queue_id, queue_offset
        request.max_messages, request.max_bytes = kind.max_messages, kind.max_bytes
        request.has_max_bytes, request.sys_flag, request.sub_version = kind.has_max_bytes, kind.sys_flag, kind.sub_version
        request.topic, request.group = kind.topic, kind.group
        request.subscription, request.expression_type = kind.subscription, kind.expression_type
        number = number_of(self, &request)
        if find_pull(self, &request, number, &slot) >= 0:
            return False
        self._kept.append(pull)
        self._pulls[self._count], self._numbers[self._count] = <PyObject *>pull, number
        self._count += 1
        self._slots[slot] = <int32_t>self._count
        return True


cdef uint64_t number_of(KnownPulls known, const Request *request) noexcept:
    """The hash of a pull: topic, queue, group, and in which run of units it starts."""
    cdef uint64_t multiplier = known._multiplier
    cdef uint64_t texts = hash_of(&request.topic, multiplier) << 32 | hash_of(&request.group, multiplier)
    return mix_in(mix_in(texts, request.queue_id, multiplier), request.queue_offset >> RUN_SHIFT, multiplier)


cdef int64_t find_pull(KnownPulls known, const Request *request, uint64_t number, uint64_t *slot) noexcept:
    """The number of the known pull that a request is like, or −1 and the slot for a new one."""
    cdef KnownPull pull
    cdef int32_t at
    slot[0] = number & known._last_slot
    while True:
        at = known._slots[slot[0]] - 1
        if at < 0:
            return -1
        if known._numbers[at] == number:
            pull = <KnownPull>known._pulls[at]
            if pull.first <= request.queue_offset < pull.stop and is_of_kind(request, pull.kind):
                return at
        slot[0] = (slot[0] + 1) & known._last_slot


# --- The lane ---


cdef inline bint may_be_offset_id(const Text *key) noexcept:
    """Whether a key has the length of an offset message id, and zeros where its port's upper half stands."""
    if key.length != 32 and key.length != 56:
        return False
    return load_native_u32(key.start + key.length - 24) == load_native_u32(<const uint8_t *>b"0000")


@cython.final
cdef class Lane:
    """What answers the requests of one thread."""

    def __cinit__(
        self, KnownPulls known not None, int64_t frame_limit, int64_t body_limit, int64_t turn_frames,
        int64_t turn_bytes,
    ) -> None:
        """A frame longer than its limit is refused, and no answer has a longer body, in bytes.

        A call answers so many frames, and goes on until it has written so many bytes.
        """
        self._known, self._frame_limit = known, frame_limit
        self._query_bytes, self._body_limit = body_limit, min(body_limit, LONGEST_BODY)
        self._turn_frames, self._turn_bytes = turn_frames, turn_bytes
        if not 0 < turn_frames < 1 << 16:
            raise ValueError(f"{turn_frames} frames in one call")
        self._window = MOST_AHEAD
        self._blocks = []
        self._commits = <Commit *>take(self._blocks, turn_frames, sizeof(Commit))

    def follow(
        self, ResponseTemplate view not None, ResponseTemplate query not None, ResponseTemplate cut not None,
        bint takes_queries, bint takes_tags, int64_t cuts,
    ) -> None:
        """Answer views and key queries with these headers from now on.

        The number in the first two is the opaque; those of an answer that leaves out older matches are the cursor, the
        opaque and the cursor again. Key queries are taken where nothing is to be said of what answers may lack, those
        for tags where the index alone answers them. `cuts` is how often files were cut before the snapshot was opened:
        once it was more often nothing is taken.
        """
        if (view.numbers, query.numbers, cut.numbers) != (1, 1, 3):
            raise ValueError("headers with other numbers than the lane has")
        self._view, self._query, self._cut = view, query, cut
        self._takes_queries, self._takes_tags, self._cuts = takes_queries, takes_tags, cuts

    @property
    def commit_count(self) -> int:
        """How many pulls of the last call have committed an offset."""
        return self._commit_count

    @property
    def counts(self) -> tuple[int, ...]:
        """What was answered so far: views, key queries, pulls, lite pulls.

        Then what those queries cost: entries walked, hits refused, wrong pointers, entries that led to no record.
        """
        return (
            self._views, self._queries, self._pulls, self._lite_pulls,
            self._walked, self._refused, self._bad_pointers, self._strays,
        )

    def take_commits(self) -> list[tuple[int, int]]:
        """The number of the known pull of each of them, and the offset."""
        cdef int64_t i
        commits = [(self._commits[i].pull, self._commits[i].offset) for i in range(self._commit_count)]
        self._commit_count = 0
        return commits

    def answer(
        self, StoreView store not None, data: ReadableBuffer, int64_t start, int64_t stop, int64_t tick,
    ) -> tuple[bytes, int, int]:
        """Answer the frames from one position of `data` to another, as long as all are for the lane.

        Returns the answers, up to where all is answered, and why it stopped there. Raises ValueError for positions
        outside of `data`, and before there are headers.
        """
        cdef Region region
        cdef Text read
        cdef Output output
        if self._view is None:
            raise ValueError("a lane that follows no snapshot")
        if type(data) is bytes:
            read = text_of(<bytes>data)
        else:
            region = Region(data)
            read.start, read.length = region.data, region.size
        if not 0 <= start <= stop <= read.length:
            raise ValueError(f"bytes {start} to {stop} of {read.length}")
        output.answers, output.at, output.room = NULL, NULL, 0
        self._at, self._stop = read.start + start, read.start + stop
        self._steps, self._commit_count = STEPS_A_CALL, 0
        try:
            reason = answer_frames(self, &store.store, &output, tick)
            if self._at != read.start + start and cuts() != self._cuts:  # what was copied may be zeros, no record
                self._commit_count = 0
                return b"", start, NOT_TAKEN
            return finish(&output), self._at - read.start, reason
        finally:
            Py_XDECREF(output.answers)


cdef int read_ahead(Lane lane, int64_t most, int *count) except -1:
    """Read the requests of up to so many frames, and how many they are; why they are no more."""
    cdef const uint8_t *at = lane._at
    cdef int64_t left, size, header
    count[0] = 0
    while at < lane._stop:
        left = lane._stop - at
        if left < PREFIX:
            return WANTS_MORE
        size, header = load_i32(at), load_i32(at + 4) & 0xFFFFFF
        if header > size - 4 or size > lane._frame_limit - 4:
            return LEFT_OVER
        if size + 4 > left:
            return WANTS_MORE
        if count[0] >= most:
            return TURN_OVER
        # A body, or another serialize type than JSON, which is 0.
        if load_i32(at + 4) != size - 4 or not read_request(at + PREFIX, at + 4 + size, &lane._requests[count[0]]):
            return NOT_TAKEN
        at += 4 + size
        lane._ends[count[0]] = at
        count[0] += 1
    return LEFT_OVER


cdef inline void fetch_record_at(const Store *store, int64_t physical_offset) noexcept:
    """Ask memory for the first lines of what lies at a physical offset."""
    cdef const Segment *segment = find_segment(&store.log, physical_offset)
    cdef int64_t line
    if segment != NULL:
        for line in range(FETCHED_LINES):
            __builtin_prefetch(segment.file.data + (physical_offset - segment.base_offset) + CACHE_LINE * line)


cdef void fetch_units(Lane lane, const Request *request) noexcept:
    """Ask memory for the first units that a pull looks through."""
    cdef KnownPulls known = lane._known
    cdef uint64_t slot
    cdef int64_t number = find_pull(known, request, number_of(known, request), &slot), line
    cdef KnownPull pull
    if number >= 0:
        pull = <KnownPull>known._pulls[number]
        for line in range(FETCHED_LINES):
            __builtin_prefetch(
                pull.queue.file.data + pull.queue.position + UNIT_BYTES * (request.queue_offset - pull.queue.first)
                + CACHE_LINE * line
            )


cdef void fetch_first(Lane lane, const Store *store, int count, int64_t tick) noexcept:
    """Ask memory for what several answers need first: it lies anywhere, and each would be waited for.

    Of a key query that is the slot of the index file with the newest messages, then the entry that it leads to, then
    the record of that. Nothing is decided here: what is fetched in vain costs time alone.
    """
    cdef const IndexFileView *file = store.index_files if store.index_count > 0 else NULL
    cdef const Request *request
    cdef const uint8_t *at
    cdef int64_t[MOST_AHEAD] slots
    cdef int64_t[MOST_AHEAD] numbers
    cdef int i
    for i in range(count):
        request = &lane._requests[i]
        if request.code == VIEW:
            fetch_record_at(store, request.offset)
        elif request.code != QUERY:
            fetch_units(lane, request)
        elif file != NULL:
            slots[i] = slot_of(
                hash_query(&request.topic, &request.key, request.kind), file.view.slots, file.view.inverse
            )
            __builtin_prefetch(file.view.first_slot + SLOT_BYTES * slots[i])
    if file == NULL:
        return
    for i in range(count):
        numbers[i] = 0
        if lane._requests[i].code == QUERY and is_hot(
            &file.file, INDEX_HEADER + SLOT_BYTES * slots[i], SLOT_BYTES, tick
        ):
            numbers[i] = newest_in(&file.view, slots[i])
            __builtin_prefetch(file.view.first_entry + ENTRY_BYTES * numbers[i])
    for i in range(count):
        if 0 < numbers[i] <= file.view.entries:
            at = file.view.first_entry + ENTRY_BYTES * numbers[i]
            if is_hot(&file.file, at - file.file.data, ENTRY_BYTES, tick):
                fetch_record_at(store, read_entry(at).physical_offset)


cdef int answer_frames(Lane lane, const Store *store, Output *output, int64_t tick) except -1:
    """Answer frames as long as all are plain hits; returns why it stopped. The lane holds the position.

    Requests are read some at a time, so that memory can be asked for what all of them need. After one that was read
    and not taken they are fewer, since those behind it are read once more.
    """
    cdef int64_t frames = 0, written = 0, most
    cdef int count, i, reason
    while True:
        most = min(lane._window, lane._turn_frames - frames)
        if written >= lane._turn_bytes or lane._steps <= 0:
            most = 0
        reason = read_ahead(lane, most, &count)
        if count > 1:
            fetch_first(lane, store, count, tick)
        for i in range(count):
            if written >= lane._turn_bytes or lane._steps <= 0:
                return TURN_OVER
            lane._likely = (lane._stop - lane._at) // (lane._ends[i] - lane._at)
            if not answer_request(lane, store, &lane._requests[i], output, tick):
                lane._window = 1
                return NOT_TAKEN
            written = output.at - <uint8_t *>bytes_start(output.answers)
            lane._at = lane._ends[i]
            frames += 1
        lane._window = min(2 * lane._window, MOST_AHEAD)
        if reason != TURN_OVER or count == 0:
            return reason


cdef uint8_t *write_answer(
    Lane lane, ResponseTemplate template, const Text *numbers, int64_t body_length, Output *output
) except NULL:
    """Write all of an answer but its body, for which there is room then; the place of the body."""
    cdef int64_t head = head_length(template, numbers), length = head + body_length
    cdef uint8_t *at = reserve(output, length, min(length * lane._likely, lane._turn_bytes))
    output.at += length
    output.room -= length
    return write_head(at, template, numbers, head, body_length)


cdef bint answer_view(Lane lane, const Store *store, const Request *request, Output *output, int64_t tick) except -1:
    """Answer with the record at a physical offset, unless it is stored under another topic than the request names."""
    cdef Record record
    cdef ColdBytes cold
    cdef int64_t size = check_record(&store.log, request.offset, tick, &record, &cold)
    if size <= 0 or size > lane._body_limit:
        return False
    if request.topic.start != NULL and not is_same_text(&request.topic, &record.topic):
        return False
    memcpy(write_answer(lane, lane._view, &request.opaque_digits, size, output), record.start, size)
    lane._views += 1
    return True


cdef bint answer_query(Lane lane, const Store *store, const Request *request, Output *output, int64_t tick) except -1:
    """Answer with the newest messages of a key; where older ones match, the cursor is given as on the ordinary way."""
    cdef Query query
    cdef Lookup lookup
    cdef Text numbers[3]
    cdef uint8_t cursor[LONGEST_NUMBER]
    cdef uint8_t *body
    cdef int64_t budget = min(lane._steps, STEPS_A_QUERY)
    cdef int status
    if not lane._takes_queries or (request.kind == KIND_TAG and not lane._takes_tags):
        return False
    if request.kind == KIND_UNIQUE and may_be_offset_id(&request.key):
        return False
    query.maximum = MAXIMUM_BY_UNIQUE_KEY if request.is_unique else min(request.maximum, MAXIMUM_BY_KEY)
    if query.maximum <= 0:
        return False
    query.topic, query.key, query.kind = request.topic, request.key, request.kind
    query.key_hash = hash_query(&query.topic, &query.key, query.kind)
    query.begin_timestamp, query.end_timestamp = request.begin_timestamp, request.end_timestamp
    query.before_physical_offset, query.maximum_bytes, query.tags_only = INT64_MAX, lane._query_bytes, False
    lookup.hits, lookup.steps = lane._hits, budget
    status = find_hits(store, &query, tick, &lookup)
    lane._steps -= budget - max(lookup.steps, 0)
    if status != FOUND or lookup.stray_file != NULL or lookup.damaged_count:
        return False
    limit_hits(&query, &lookup)
    if lookup.count == 0 or lookup.total_bytes > lane._body_limit:
        return False
    numbers[0] = request.opaque_digits
    if lookup.more or lookup.cut:
        numbers[0] = numbers[2] = digits_of(lookup.hits[lookup.count - 1].physical_offset, cursor)
        numbers[1] = request.opaque_digits
        body = write_answer(lane, lane._cut, numbers, lookup.total_bytes, output)
    else:
        body = write_answer(lane, lane._query, numbers, lookup.total_bytes, output)
    copy_hits(&lookup, body)
    lane._queries += 1
    lane._walked += lookup.walked
    lane._refused += lookup.refused
    lane._bad_pointers += lookup.bad_pointers
    lane._strays += lookup.strays
    return True


cdef bint answer_pull(Lane lane, const Store *store, const Request *request, Output *output, int64_t tick) except -1:
    """Answer a pull like one that is known with the records that it finds."""
    cdef KnownPulls known = lane._known
    cdef uint64_t slot
    cdef int64_t number = find_pull(known, request, number_of(known, request), &slot), passed, i
    cdef KnownPull pull
    cdef Pull *found = &lane._found
    cdef Text numbers[2]
    cdef uint8_t next_offset[LONGEST_NUMBER]
    cdef uint8_t *body
    if number < 0:
        return False
    pull = <KnownPull>known._pulls[number]
    found.queue_offset, found.scan = request.queue_offset, pull.scan
    found.messages, found.record_bytes = pull.messages, pull.record_bytes
    passed = pull_units(&store.log, &pull.queue, pull.choice, tick, found)
    if passed < 0:
        return False
    lane._steps -= passed * pull.cost >> 4
    if found.count == 0 or found.total_bytes > lane._body_limit:
        return False
    pull.pulled_offset, pull.pulled_tick = request.queue_offset + passed, tick
    numbers[0], numbers[1] = digits_of(pull.pulled_offset, next_offset), request.opaque_digits
    body = write_answer(lane, pull.template, numbers, found.total_bytes, output)
    for i in range(found.count):
        memcpy(body, found.found[i].record, found.found[i].size)
        body += found.found[i].size
    if request.sys_flag & COMMIT_OFFSET_FLAG and request.commit_offset > 0:
        lane._commits[lane._commit_count].pull = number
        lane._commits[lane._commit_count].offset = request.commit_offset
        lane._commit_count += 1
    if request.code == PULL:
        lane._pulls += 1
    else:
        lane._lite_pulls += 1
    return True


cdef bint answer_request(Lane lane, const Store *store, const Request *request, Output *output, int64_t tick) except -1:
    """Write the answer to a request; whether it was for the lane."""
    if request.code == VIEW:
        return answer_view(lane, store, request, output, tick)
    if request.code == QUERY:
        return answer_query(lane, store, request, output, tick)
    return answer_pull(lane, store, request, output, tick)
