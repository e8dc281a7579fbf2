"""Units of light queues: a message names further queues, and the broker adds its offsets in them (store-format §2.10).

    INNER_MULTI_DISPATCH      %LMQ%a,%LMQ%b
    INNER_MULTI_QUEUE_OFFSET  7,0

Lists of different lengths make no units. A broker never gets past an item that is no number, which it writes itself
for a name that does not start with %LMQ%; here that name alone makes no unit.
"""

from numba import njit

from storage.kernels.dispatch_memory import DispatchMemory, get
from storage.kernels.memory import load_i8, load_i32
from storage.kernels.properties import LONG, parse_integer
from storage.kernels.queue_table import add_unit, number_queue

COMMA = ord(",")
SLASH = ord("/")
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


@njit(cache=True, nogil=True)
def is_light_name(name: int, length: int) -> bool:
    """Whether a name starts with %LMQ%."""
    return length >= PREFIX_BYTES and load_i32(name) == LIGHT_PREFIX and load_i8(name + 4) == PERCENT


@njit(cache=True, nogil=True)
def is_directory_name(name: int, length: int) -> bool:
    """Whether a name can be that of a directory: a broker passes over those with a slash."""
    for position in range(length):
        if load_i8(name + position) == SLASH:
            return False
    return length > 0


@njit(cache=True, nogil=True)
def put_light_units(
    names: int,
    names_length: int,
    offsets: int,
    offsets_length: int,
    queue_id: int,
    physical_offset: int,
    size: int,
    tags_code: int,
    timestamp: int,
    memory: DispatchMemory,
) -> None:
    """Note a unit for each name that has an offset; a name that is not light is a topic's, with the message's queue."""
    names_length, offsets_length = trim_list(names, names_length), trim_list(offsets, offsets_length)
    if names_length == 0 or offsets_length == 0:
        return
    if count_items(names, names_length) != count_items(offsets, offsets_length):
        return
    at, offset = 0, 0
    while at <= names_length:
        end, offset_end = item_end(names, at, names_length), item_end(offsets, offset, offsets_length)
        name, length = names + at, end - at
        is_number = parse_integer(offsets + offset, offset_end - offset, LONG, memory.parsed)
        if is_number and is_directory_name(name, length):
            number = number_queue(name, length, 0 if is_light_name(name, length) else queue_id, True, memory)
            add_unit(number, get(memory.parsed, 0), physical_offset, size, tags_code, timestamp, 0, memory)
        at, offset = end + 1, offset_end + 1
