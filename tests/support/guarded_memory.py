"""Memory right before a page that nobody may read: who reads behind it is killed."""

import ctypes
import mmap


class Guarded:
    """Room for some bytes, which lie at its very end."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self._room = -(-size // page) * page
        self._memory = mmap.mmap(-1, self._room + page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        assert protect(start + self._room, page, 0) == 0

    def put(self, data: bytes) -> memoryview:
        """Lay bytes at the very end; a view of them there."""
        self._memory[self._room - len(data) : self._room] = data
        return memoryview(self._memory)[self._room - len(data) : self._room]
