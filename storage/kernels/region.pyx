"""Memory that kernels read and write, held by the buffer protocol for as long as anybody may look at it.

What they need for themselves is theirs as long as a :class:`Block` lives; no other kernel allocates or frees memory.

A mapped file, a window's memory, a bytes object: its owner hands it over as a buffer, once, and gives positions from
then on. No address is computed in Python, and memory that a kernel reads cannot be freed meanwhile.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc


cdef extern from "held_memory.h" nogil:
    void *hold_memory(void *memory, int64_t size) noexcept
    void release_memory(void *held, void *memory, int64_t size) noexcept
    void release_written(void *held, void *memory, int64_t size) noexcept


@cython.final
cdef class Region:
    """Contiguous bytes that kernels read."""

    def __cinit__(self, buffer: ReadableBuffer) -> None:
        """Hold a buffer; raises BufferError or TypeError for what has none that is contiguous."""
        PyObject_GetBuffer(buffer, &self._export, PyBUF_SIMPLE)
        self.data = <const uint8_t *>hold_memory(self._export.buf, self._export.len)
        self.size = self._export.len

    def __dealloc__(self):
        release_memory(<void *>self.data, self._export.buf, self._export.len)
        PyBuffer_Release(&self._export)

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        """A copy of all of them."""
        return self.data[:self.size]


cdef Py_ssize_t hold_integers(Py_buffer *export, array, int flags, Py_ssize_t item_bytes) except -1:
    """Get the buffer of an array; how many items it has, which must be integers of so many bytes."""
    PyObject_GetBuffer(array, export, flags | PyBUF_FORMAT | PyBUF_ND)
    cdef bytes format = export.format if export.format is not NULL else b"B"
    if export.ndim != 1 or export.itemsize != item_bytes or format not in b"bBhHiIlLqQ" or len(format) != 1:
        raise ValueError(
            f"expected one dimension of {8 * item_bytes}-bit integers, found {export.ndim} of "
            f"{8 * export.itemsize} bits, format {format.decode()}"
        )
    return export.len // item_bytes


@cython.final
cdef class Column:
    """An array of whole numbers that a kernel reads; kernels make it themselves of the arrays that they are given."""

    def __cinit__(self, array: npt.NDArray[np.integer], Py_ssize_t item_bytes) -> None:
        """Hold an array of one dimension; raises ValueError for items that are no integers of so many bytes."""
        flags = getattr(array, "flags", None)
        if flags is not None and not flags.aligned:  # a piece of a block that lies anywhere
            array = array.copy()
        self.count = hold_integers(&self._export, array, PyBUF_SIMPLE, item_bytes)
        self.items = hold_memory(self._export.buf, self._export.len)

    def __dealloc__(self):
        release_memory(<void *>self.items, self._export.buf, self._export.len)
        PyBuffer_Release(&self._export)


@cython.final
cdef class Room:
    """An array of whole numbers that a kernel writes."""

    def __cinit__(self, array: npt.NDArray[np.integer] | WriteableBuffer, Py_ssize_t item_bytes) -> None:
        """Hold an array of one dimension; raises ValueError for items that are no integers of so many bytes."""
        self.count = hold_integers(&self._export, array, PyBUF_WRITABLE, item_bytes)
        self.items = hold_memory(self._export.buf, self._export.len)

    def __dealloc__(self):
        release_written(self.items, self._export.buf, self._export.len)
        PyBuffer_Release(&self._export)


@cython.final
cdef class Block:
    """Memory that a kernel works in, and that is freed with the block; none at first."""

    def __dealloc__(self):
        free(self.items)

    cdef bint grow(self, int64_t size) noexcept nogil:
        """Make it so many bytes at least, of which new ones may be anything; False where there is no memory for that.

        It may lie elsewhere then.
        """
        cdef void *moved
        if size > self.size:
            moved = realloc(self.items, size)
            if moved == NULL:
                return False
            self.items, self.size = moved, size
        return True


cdef int64_t size_of(int64_t count, int64_t item_bytes) except -1:
    """Bytes of so many items, one at least; raises MemoryError for more than there can be."""
    if not 0 <= count <= INT64_MAX // item_bytes:
        raise MemoryError
    return max(count * item_bytes, 1)


cdef void *take(list held, int64_t count, int64_t item_bytes) except NULL:
    """Memory for so many items, which may be anything; it lives as long as the list does. Raises MemoryError."""
    cdef Block block = Block()
    if not block.grow(size_of(count, item_bytes)):
        raise MemoryError
    held.append(block)
    return block.items


cdef void *take_zeroes(list held, int64_t count, int64_t item_bytes) except NULL:
    """As :func:`take`, all zero."""
    cdef Block block = Block()
    block.size = size_of(count, item_bytes)
    block.items = calloc(block.size, 1)
    if block.items == NULL:
        raise MemoryError
    held.append(block)
    return block.items
