"""A file that is read through a map and may be cut meanwhile: see file_map.h.

What was cut away reads as zeros where its map is looked at, in every thread and every kernel, and :attr:`FileMap.is_cut`
is true afterwards. No signal ends the process.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t
from posix.mman cimport MADV_SEQUENTIAL, MAP_FAILED, MAP_SHARED, PROT_READ, madvise, mmap, munmap


cdef extern from "file_map.h" nogil:
    int guard_map(const void *start, size_t length, int is_counted)
    void release_map(int number)
    int map_is_cut(int number)
    int64_t count_cut_maps()
    int populate_pages(const uint8_t *start, size_t length)
    void drop_pages(const uint8_t *start, size_t length)
    int end_with_words(const char *words, size_t length, int code)


cdef extern from "<unistd.h>" nogil:
    long sysconf(int name)
    enum:
        _SC_PAGESIZE


def end_at_cut(bytes words not None, int code) -> None:
    """Have this process end with `words` on stderr, at most 1,024 bytes, and an exit code where it meets a cut file.

    That is where it looks at bytes of a map, other than a `FileMap`, that are not there any more; without this it is
    ended by SIGBUS. Raises OSError where that cannot be arranged.
    """
    cdef int error = end_with_words(words, len(words), code)
    if error != 0:
        raise OSError(error, "no last words")


cdef int64_t cuts() noexcept nogil:
    return count_cut_maps()


def count_cuts() -> int:
    """How often this process looked at bytes that were not there any more, and saw zeros, in maps that are not walked.

    Who walks through a map asks for :attr:`FileMap.is_cut` of that one.
    """
    return count_cut_maps()


@cython.final
cdef class FileMap:
    """The bytes of a file, as long as anybody holds them; a buffer that is read only."""

    cdef const uint8_t *start
    cdef readonly Py_ssize_t size  # How many bytes.
    cdef Py_ssize_t page
    cdef int number

    def __cinit__(self, int descriptor, Py_ssize_t size, *, bint is_walked=True) -> None:
        """Map `size` bytes of an open file, which may be closed then; `is_walked`: read from its begin to its end.

        Raises OSError where that cannot be done, where too many files are mapped so, and for one that is walked where
        the kernel cannot populate maps (before Linux 5.14).
        """
        cdef void *start = mmap(NULL, size, PROT_READ, MAP_SHARED, descriptor, 0)
        self.number = -1
        if start == MAP_FAILED:
            raise OSError(errno, "cannot be mapped")
        self.start, self.size, self.page = <const uint8_t *>start, size, sysconf(_SC_PAGESIZE)
        self.number = guard_map(start, size, not is_walked)
        if self.number < 0:
            raise OSError(errno, "cannot be guarded: as many files as can be are read through maps at this moment")
        if is_walked:
            madvise(start, size, MADV_SEQUENTIAL)  # so that letting pages go does not make them look as if in demand
            self.populate(0, 1)

    def __dealloc__(self):
        if self.number >= 0:
            release_map(self.number)
        if self.start != NULL:
            munmap(<void *>self.start, self.size)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *>self.start, self.size, 1, flags)

    def __len__(self) -> int:
        return self.size

    @property
    def is_cut(self) -> bool:
        """Whether somebody looked at bytes that were not there any more, or could not be read, and saw zeros."""
        return map_is_cut(self.number) != 0

    def populate(self, Py_ssize_t position, Py_ssize_t stop) -> None:
        """Read bytes [position, stop) into memory, where they are not, and enter them into the map; waits for the disk.

        Raises OSError where they cannot be read: behind the end of a file that was cut, or from a disk that fails.
        """
        cdef int error
        self.require(position, stop)
        position -= position % self.page
        with nogil:
            error = populate_pages(self.start + position, stop - position)
        if error != 0:
            raise OSError(error, "pages cannot be read")

    def drop(self, Py_ssize_t position, Py_ssize_t stop) -> None:
        """Let the pages that lie wholly in [position, stop) go from the map; in the page cache they stay."""
        self.require(position, stop)
        position, stop = (position + self.page - 1) // self.page * self.page, stop // self.page * self.page
        if position < stop:
            with nogil:
                drop_pages(self.start + position, stop - position)

    cdef int require(self, Py_ssize_t position, Py_ssize_t stop) except -1:
        if not 0 <= position <= stop <= self.size:
            raise ValueError(f"bytes {position} to {stop} do not lie in a map of {self.size} bytes")
        return 0
