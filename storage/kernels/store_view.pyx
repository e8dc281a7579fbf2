"""What kernels see of a store at one moment: its segments, its index files, and entries that were scanned.

A view never changes. It is made of the views of those parts that stayed the same, so that the next moment's costs
little.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.string cimport memcmp, memcpy
from posix.time cimport nanosleep, timespec
from posix.unistd cimport pread

from operator import itemgetter

from storage.kernels.indexes cimport view_index
from storage.kernels.records cimport BAD_SIZE, COLD, MINIMUM_SIZE, check_checksums, check_head, read_shape
from storage.kernels.region cimport take_zeroes


cdef extern from "page_probe.h" nogil:
    bint has_probe() noexcept
    int64_t count_readable(int descriptor, int64_t position, int64_t length) noexcept


cdef enum:
    SMALL_WANT = 4096  # Bytes up to which a want is asked for at its ends; a longer one by reading its whole unit.
    # Places that are watched together, and bytes of one of them.
    MOST_WATCHED = 4
    LONGEST_WATCHED = 64
    PAGE_SHIFT = 12  # One byte of a page stands for all; where pages are larger, one is asked for twice.


cdef bint is_unit_hot(const File *file, int64_t unit, int64_t position, int64_t stop, int64_t tick) noexcept nogil:
    """Ask whether 64 KiB of a file are in memory, of which [position, stop) is wanted, and note it if so.

    Copying 64 KiB to learn that they can be copied costs 6 µs, so a small want is asked for by single bytes: its own
    ends and the unit's. Page caches fill in runs of pages; what such a run leaves out costs one fault, not an answer.
    """
    cdef int64_t start = unit << PROBE_SHIFT, end, place, asked = -1
    cdef int64_t[4] places
    cdef int number
    end = min(start + PROBE_BYTES, file.size)
    position, stop = max(position, start), min(stop, end)
    if stop - position > SMALL_WANT:
        if count_readable(file.descriptor, start, PROBE_BYTES) < end - start:
            return False
    else:
        places[0], places[1], places[2], places[3] = start, position, stop - 1, end - 1
        for number in range(4):
            place = places[number]
            if place >> PAGE_SHIFT == asked:
                continue
            asked = place >> PAGE_SHIFT
            if count_readable(file.descriptor, place, 1) < 1:
                return False
    file.heat[unit] = file.asked[unit] = <int32_t>tick
    return True


cdef bint show_bytes(const File *file, int64_t position, int64_t length) noexcept with gil:
    (<FileView>file.view).show(position, position + length)
    return True


cdef class FileView:
    """A file in memory, and how hot its pages are.

    A hollow one has bytes that are fetched before they are first looked at: those that a reader names, or all where it
    takes the whole map.
    """

    def __init__(self, view: memoryview, heat: Buffer, int descriptor, content: Any = None) -> None:
        """See a map; `heat` has a zero for each 64 KiB and one more: the tick at which they were last found in memory.

        `descriptor` is asked whether pages are in memory; with −1, where the file system does not support that, all
        count as hot. `content` fetches the bytes of a hollow file (:class:`storage.files.hollow_files.HollowContent`).
        """
        cdef Region region = Region(view)
        cdef Room room = Room(heat, sizeof(int32_t))
        if self._region is not None:
            raise ValueError("a file that is seen already")
        if room.count <= region.size >> PROBE_SHIFT:
            raise ValueError(f"heat of {room.count} times 64 KiB, for a file of {region.size} bytes")
        self._blocks = []
        self.file.asked = <int32_t *>take_zeroes(self._blocks, room.count, sizeof(int32_t))
        self._view, self._region, self.heat, self._heat, self._content = view, region, heat, room, content
        self.file.data, self.file.size, self.file.heat = region.data, region.size, <int32_t *>room.items
        self.file.descriptor = descriptor if has_probe() and content is None else -1
        self.file.is_hollow = content is not None
        self.file.view = <PyObject *>self

    @property
    def is_hollow(self) -> bool:
        """Whether its bytes come when they are looked at."""
        return self._content is not None

    @property
    def region(self) -> Region:
        """What kernels read, all of it there."""
        return self.region_of(0, self.file.size)

    @property
    def view(self) -> memoryview:
        """The map, all of it there."""
        return self.slice(0, self.file.size)

    def region_of(self, int64_t position, int64_t stop) -> Region:
        """What kernels read, of which the bytes [position, stop) are there, as far as the file goes."""
        if self._content is not None:
            self.show(position, stop)
        return self._region

    def slice(self, int64_t position, int64_t stop) -> memoryview:
        """The bytes [position, stop), as far as the file goes; nothing is copied."""
        if self._content is not None:
            self.show(position, stop)
        return self._view[position:stop]

    def show(self, int64_t position, int64_t stop) -> None:
        """Have the bytes [position, stop) of a hollow file be there, as far as the file goes."""
        position, stop = max(position, 0), min(stop, self.file.size)
        if self._content is not None and position < stop:
            self._content.show(position, stop)

    @property
    def descriptor(self) -> int:
        """What is asked whether pages are in memory, or −1."""
        return self.file.descriptor

    def is_hot(self, int64_t position, int64_t length, int64_t tick) -> bool:
        """Whether bytes of the file, at least one, are in memory, as far as is known.

        Asked is by reads with RWF_NOWAIT, which come back short rather than wait; an answer holds for a second.
        """
        if position < 0 or length < 1 or length > self.file.size - position:
            raise ValueError(f"{length} bytes at {position} of a file of {self.file.size}")
        return is_hot(&self.file, position, length, tick)


# --- Places that do not change ---


cdef struct Watched:  # Bytes of a file as they were, and how many are read there.
    int descriptor
    int64_t position
    int64_t length
    const uint8_t *content
    int64_t content_length


cdef bint is_as_before(const Watched *place) noexcept nogil:
    cdef uint8_t[LONGEST_WATCHED] found
    cdef int64_t length = max(pread(place.descriptor, found, place.length, place.position), 0)
    return length == place.content_length and memcmp(found, place.content, length) == 0


def stay_alike(places: Iterable[tuple[HasFileno, int, int, bytes]], double pause_seconds, int looks) -> bool:
    """Wait as long as places of files say what they said: a pause, then a look, up to so many times; whether they do.

    Of each place, four at most, its file, its position, how many bytes are read there, 64 at most, and which
    came: fewer at the end of the file. They are read and not mapped, and meanwhile nothing of Python runs: a thread
    that waits so does not keep the event loop from running.
    """
    cdef Watched[MOST_WATCHED] watched
    cdef timespec pause
    cdef bytes content
    cdef int count = 0, number, look
    cdef bint are_alike = True
    for file, position, length, content in places:
        if count == MOST_WATCHED or not 0 <= length <= LONGEST_WATCHED:
            raise ValueError(f"{length} bytes of place {count}")
        watched[count].descriptor, watched[count].position, watched[count].length = file.fileno(), position, length
        watched[count].content, watched[count].content_length = <const uint8_t *><char *>content, len(content)
        count += 1
    pause.tv_sec = <long>pause_seconds
    pause.tv_nsec = <long>((pause_seconds - pause.tv_sec) * 1e9)
    with nogil:
        for look in range(looks):
            if pause.tv_sec or pause.tv_nsec:
                nanosleep(&pause, NULL)
            for number in range(count):
                are_alike = are_alike and is_as_before(&watched[number])
            if not are_alike:
                break
    return are_alike


cdef int hold_file(File *file, FileView view) except -1:
    if view is None or view._region is None:
        raise ValueError("a file that is not seen yet")
    file[0] = view.file
    return 0


# --- The log ---


cdef int64_t locate_in(
    const Segment *segment, int64_t physical_offset, int64_t expected, int64_t tick, Record *record, ColdBytes *cold
) noexcept nogil:
    cdef int64_t position = physical_offset - segment.base_offset
    cdef int64_t available = segment.valid_length - position
    cdef int64_t wanted = min(available, expected if expected > 0 else CACHE_LINE), size
    cdef const uint8_t *start = segment.file.data + position
    record.start = start
    cold.file, cold.position, cold.length = &segment.file, position, min(wanted, MOST_WARMED)
    if not is_hot(&segment.file, position, wanted, tick):
        record.size = COLD
        return COLD
    size = check_head(start, available)
    if size < 0:
        record.size = size
        return size
    if expected <= 0:
        cold.length = min(size, MOST_WARMED)
        if not is_hot(&segment.file, position, size, tick):
            record.size = COLD
            return COLD
        fetch_record(start, size)
    elif size != expected:
        record.size = BAD_SIZE
        return BAD_SIZE
    # Of the size that was asked for and no other, though bytes may change in between.
    size = read_shape(record, start, size, physical_offset)
    if 0 < expected != size and size > 0:
        record.size = BAD_SIZE
    return record.size


cdef int64_t check_record(
    const Log *log, int64_t physical_offset, int64_t tick, Record *record, ColdBytes *cold
) noexcept nogil:
    cdef int64_t size = locate_record(log, physical_offset, 0, tick, record, cold)
    return check_checksums(record) if size > 0 else size


@cython.final
cdef class LogView:
    """The segments of a log."""

    def __cinit__(self, segments: Iterable[tuple[int, FileView, int]] = ()) -> None:
        """Of each segment its base offset, its file, and how many bytes may hold records; ascending.

        Raises ValueError for segments in another order, or longer than their files.
        """
        cdef Segment *segment
        cdef int64_t following = 0, size = 0, number
        segments = tuple(segments)
        self._files = tuple([file for _, file, _ in segments])
        self._blocks = []
        self._segments = <Segment *>take_zeroes(self._blocks, len(segments), sizeof(Segment))
        self.log.segments = self._segments
        for number, (base_offset, file, valid_length) in enumerate(segments):
            segment = self._segments + number
            hold_file(&segment.file, file)
            segment.base_offset, segment.valid_length = base_offset, valid_length
            require_segment(segment, following)
            following = segment.base_offset
            # All of one size, each where the one before it ends.
            if number == 0:
                size = segment.file.size
            elif segment.file.size != size or segment.base_offset != self._segments[number - 1].base_offset + size:
                size = 0
        self.log.count, self.log.segment_size = len(segments), size

    def __len__(self) -> int:
        return self.log.count

    def grown(self, int64_t valid_length) -> LogView:
        """Return the log with so many valid bytes in its last segment."""
        cdef LogView grown = LogView.__new__(LogView)
        cdef int64_t count = self.log.count
        if count == 0:
            raise ValueError("no segment that could grow")
        grown._segments = <Segment *>take_zeroes(grown._blocks, count, sizeof(Segment))
        memcpy(grown._segments, self._segments, count * sizeof(Segment))
        grown._segments[count - 1].valid_length = valid_length
        grown._files, grown.log = self._files, self.log
        grown.log.segments = grown._segments
        require_segment(grown._segments + count - 1, grown._segments[count - 1].base_offset)
        return grown

    def find_segment(self, int64_t physical_offset) -> int:
        """The number of the segment whose valid part holds a physical offset, or −1."""
        cdef const Segment *segment = find_segment(&self.log, physical_offset)
        return -1 if segment == NULL else segment - self.log.segments

    def record_at(self, int64_t physical_offset, int64_t tick) -> memoryview | int:
        """The intact record that starts at a physical offset, a slice of its segment's map; else why there is none.

        That is a code of :mod:`storage.kernels.records`; COLD where its pages are not known to be in memory.
        """
        cdef Record record
        cdef ColdBytes cold
        cdef int64_t size
        if tick == 0:  # who may wait may wait for the GIL, too
            with nogil:
                size = check_record(&self.log, physical_offset, tick, &record, &cold)
        else:
            size = check_record(&self.log, physical_offset, tick, &record, &cold)
        return slice_of(&cold, size) if size > 0 else size

    def unchecked_record_at(self, int64_t physical_offset, int64_t tick) -> memoryview | int:
        """As :meth:`record_at`, without a look at the checksums."""
        cdef Record record
        cdef ColdBytes cold
        cdef int64_t size = locate_record(&self.log, physical_offset, 0, tick, &record, &cold)
        return slice_of(&cold, size) if size > 0 else size


cdef object slice_of(const ColdBytes *place, int64_t size):
    """Bytes of a file's map from a place on."""
    return (<FileView>place.file.view)._view[place.position : place.position + size]


cdef int require_segment(const Segment *segment, int64_t following) except -1:
    """Raise ValueError unless a segment starts no earlier than those before it, and what is valid lies in its file."""
    if segment.base_offset < following or segment.base_offset > INT64_MAX - segment.file.size:
        raise ValueError(f"a segment of {segment.file.size} bytes from {segment.base_offset} on, behind {following}")
    if not 0 <= segment.valid_length <= segment.file.size:
        raise ValueError(f"{segment.valid_length} valid bytes in a file of {segment.file.size}")
    return 0


# --- Index files, entries of scans, and all together ---


@cython.final
cdef class Shortcuts:
    """Where look-ups may leave out many entries of one hash in a chain; they note it themselves.

    For one index file with one number of slots, for as long as it only grows: entries that are put into it lead down
    to those known, and what those lead to stays.
    """

    def __len__(self) -> int:
        """How many are noted."""
        cdef int number
        return sum([self.cells[number] != 0 for number in range(SHORTCUTS)])


@cython.final
cdef class IndexFilesView:
    """The index files of a store."""

    def __cinit__(self, files: Iterable[tuple[FileView, int, int, int, bool, bool, Shortcuts]] = ()) -> None:
        """Of each file how many slots it has and how many entries fit it (a broker may put some behind those known).

        Then the largest physical offset of an entry, whether physical offsets never fall from one entry to the next,
        whether there is an entry for each tagged record, and the file's shortcuts. Raises ValueError where that does
        not lie in the file.
        """
        cdef IndexFileView *file
        cdef Shortcuts known
        cdef int64_t number
        files = sorted(files, key=itemgetter(3), reverse=True)
        self._files = tuple([each[0] for each in files])
        self._shortcuts = tuple([each[6] for each in files])
        self._blocks = []
        self.files = <IndexFileView *>take_zeroes(self._blocks, len(files), sizeof(IndexFileView))
        for number, (view, slots, entries, maximum, ascending, has_tags, shortcuts) in enumerate(files):
            file = self.files + number
            hold_file(&file.file, view)
            view_index(&file.view, (<FileView>view)._region, slots, entries)
            file.maximum, file.ascending, file.has_tags = maximum, ascending, has_tags
            known = shortcuts
            if known is None:
                raise ValueError("an index file without room for shortcuts")
            file.shortcuts = known.cells
        self.count = len(files)

    def __len__(self) -> int:
        return self.count


@cython.final
cdef class RunsView:
    """Entries found by scanning the log."""

    def __cinit__(self, runs: Iterable[tuple[ReadableBuffer, ReadableBuffer]] = ()) -> None:
        """Of each scan the hashes and the physical offsets, sorted by both; the latest is the last."""
        cdef Column hash_column, offset_column
        cdef int64_t number
        runs = tuple(runs)
        self._columns = []
        self._blocks = []
        self.runs = <Run *>take_zeroes(self._blocks, len(runs), sizeof(Run))
        for number, (hashes, offsets) in enumerate(runs):
            hash_column, offset_column = Column(hashes, sizeof(int32_t)), Column(offsets, sizeof(int64_t))
            if hash_column.count != offset_column.count:
                raise ValueError(f"{hash_column.count} hashes of {offset_column.count} offsets")
            self._columns += hash_column, offset_column
            self.runs[number].hashes = <const int32_t *>hash_column.items
            self.runs[number].offsets = <const int64_t *>offset_column.items
            self.runs[number].count = hash_column.count
        self.count = len(runs)

    def __len__(self) -> int:
        return self.count


@cython.final
cdef class StoreView:
    """Log, index files and scanned entries together."""

    def __cinit__(
        self, LogView log not None, IndexFilesView index not None, RunsView runs not None,
        damage: ReadableBuffer | None = None,
    ) -> None:
        """`damage` are places where no record starts although the index rightly points there, ascending."""
        self.log, self._index, self._tail = log, index, runs
        self.store.log = log.log
        self.store.index_files, self.store.index_count = index.files, index.count
        self.store.runs, self.store.run_count = runs.runs, runs.count
        if damage is not None:
            self._damage = Column(damage, sizeof(int64_t))
            self.store.damage, self.store.damage_count = <const int64_t *>self._damage.items, self._damage.count

    def with_runs(self, RunsView runs not None) -> StoreView:
        """Return the store with other entries found by scanning."""
        cdef StoreView other = StoreView(self.log, self._index, runs)
        other._damage = self._damage
        other.store.damage, other.store.damage_count = self.store.damage, self.store.damage_count
        return other


cdef bint is_known_damage(const Store *store, int64_t physical_offset) noexcept nogil:
    cdef int64_t low = 0, high = store.damage_count, middle
    while low < high:
        middle = (low + high) >> 1
        if store.damage[middle] < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low < store.damage_count and store.damage[low] == physical_offset
