"""Find where a record may start again behind damage, by its magic number and the offset it says of itself."""

from numba import njit

from storage.kernels.memory import load_i8, load_i32, load_i64
from storage.kernels.record import MAGIC, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET

MAGIC_FIRST_BYTE = MAGIC_V1 >> 24


@njit("int64(int64, int64, int64, int64)", cache=True, nogil=True)
def find_candidate(address: int, position: int, stop: int, base: int) -> int:
    """First position in [position, stop) whose magic and own offset are a record's, −1 for none; reads no further.

    ``base`` is the physical offset of the byte at ``address``.
    """
    while position + PHYSICAL_OFFSET + 8 <= stop:
        if load_i8(address + position + MAGIC) == MAGIC_FIRST_BYTE:
            magic = load_i32(address + position + MAGIC)
            own_offset = load_i64(address + position + PHYSICAL_OFFSET)
            if magic in (MAGIC_V1, MAGIC_V2) and own_offset == base + position:
                return position
        position += 1
    return -1
