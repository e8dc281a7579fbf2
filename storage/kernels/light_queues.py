"""Lists of light queues: a message names further queues, and the broker adds its offsets in them (store-format §2.10).

INNER_MULTI_DISPATCH      %LMQ%a,%LMQ%b
INNER_MULTI_QUEUE_OFFSET  7,0
"""

from numba import njit

from storage.kernels.memory import load_i8

COMMA = ord(",")
SPACE = ord(" ")
LIGHT_PREFIX = int.from_bytes(b"%LMQ", "big")
PERCENT = ord("%")
PREFIX_BYTES = 5


@njit(cache=True, nogil=True)
def trim_list(text: int, length: int) -> int:
    """Length of a list without the commas at its end, which Java's split drops; 0 for blank text, which is no list."""
    first = 0
    while first < length and load_i8(text + first) == SPACE:
        first += 1
    if first == length:
        return 0
    while length > 0 and load_i8(text + length - 1) == COMMA:
        length -= 1
    return length


@njit(cache=True, nogil=True)
def count_items(text: int, length: int) -> int:
    """Items of a list that is not empty."""
    count = 1
    for position in range(length):
        count += load_i8(text + position) == COMMA
    return count


@njit(cache=True, nogil=True)
def item_end(text: int, position: int, length: int) -> int:
    """Where an item that starts at ``position`` ends."""
    while position < length and load_i8(text + position) != COMMA:
        position += 1
    return position
