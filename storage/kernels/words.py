"""Texts that come again and again, numbered: those of a column, and the names of properties.

Each different text is a word and has a number, its code. A hash table leads from a text to its code; it must be a power
of two long, and longer than there are words. The ``multiplier`` of its hash is an odd number of 63 bits that nobody
knows who writes messages: texts made to share a hash would be compared each with all others.
"""

import numpy as np
from numba import njit

from storage.kernels.memory import equal_bytes, load_i8, load_native_i32, load_native_i64, load_u8, store_native_i32
from storage.kernels.properties import find_end, find_separator
from storage.kernels.record import PROPERTY_SEPARATOR

TOO_MANY = -1
EMPTY = -1
LOW_HALF = 0xFFFFFFFF
LOW_BITS = 0x7FFFFFFFFFFFFFFF
NAME_CODE = 0
VALUE = 1
VALUE_LENGTH = 2
PAIR = 3
"""Rows of the table of properties, of which each property has a column."""

ADDRESS = 0
LENGTH = 1
WORD = 2
"""Columns of the table of words, of which each word has a row."""


@njit(cache=True, nogil=True)
def mix_in(number: int, word: int, multiplier: int) -> int:
    """A hash of 63 bits that goes on by eight bytes."""
    word ^= number
    return ((word ^ ((word >> 32) & LOW_HALF)) * multiplier) & LOW_BITS


@njit(cache=True, nogil=True)
def hash_text(address: int, length: int, multiplier: int) -> int:
    """A number of up to 24 bits. Who does not know the multiplier cannot find texts that share one."""
    number, position = int(length), 0
    while position + 8 < length:
        number = mix_in(number, load_native_i64(address + position), multiplier)
        position += 8
    if length >= 8:
        word = load_native_i64(address + length - 8)
    elif length >= 4:
        word = load_native_i32(address) << 32 | (load_native_i32(address + length - 4) & LOW_HALF)
    elif length > 0:
        word = load_u8(address) << 16 | load_u8(address + length // 2) << 8 | load_u8(address + length - 1)
    else:
        word = 0
    return (mix_in(number, word, multiplier) >> 39) & 0xFFFFFF


@njit(cache=True, nogil=True)
def code_of(address: int, length: int, multiplier: int, count: int, words: int, slots: int, last_slot: int) -> int:
    """The code of a text: that of the ``count`` words that equals it, else ``count``, which is put in its slot."""
    slot = hash_text(address, length, multiplier) & last_slot
    while True:
        code = load_native_i32(slots + 4 * slot)
        if code == EMPTY:
            store_native_i32(slots + 4 * slot, count)
            return count
        word = words + 16 * code
        if load_native_i64(word + 8) == length and equal_bytes(load_native_i64(word), address, length):
            return code
        slot = (slot + 1) & last_slot


@njit("int64(int64[::1], int64[::1], int64, int32[::1], int64[:, ::1], int32[::1])", cache=True, nogil=True)
def code_texts(
    addresses: np.ndarray,
    lengths: np.ndarray,
    multiplier: int,
    codes: np.ndarray,
    words: np.ndarray,
    slots: np.ndarray,
) -> int:
    """The code of each text, −1 of one that is not there; how many words there are, TOO_MANY where these have no room.

    ``slots`` is to be EMPTY.
    """
    count, room, last_slot = 0, words.shape[0], slots.shape[0] - 1
    words_at, slots_at = words.ctypes.data, slots.ctypes.data
    for row in range(addresses.shape[0]):
        address, length = addresses[row], lengths[row]
        if length < 0:
            codes[row] = -1
            continue
        code = code_of(address, length, multiplier, count, words_at, slots_at, last_slot)
        if code == room:
            return TOO_MANY
        if code == count:
            words[code, ADDRESS], words[code, LENGTH] = address, length
            count += 1
        codes[row] = code
    return count


@njit(
    "int64(int64[::1], int64[::1], int64, int64[::1], int64[:, ::1], int64[:, ::1], int32[::1], int64[::1])",
    cache=True,
    nogil=True,
)
def split_properties(
    addresses: np.ndarray,
    lengths: np.ndarray,
    multiplier: int,
    sizes: np.ndarray,
    pairs: np.ndarray,
    words: np.ndarray,
    slots: np.ndarray,
    newest: np.ndarray,
) -> int:
    """Split property blocks into names and values: how many there are, TOO_MANY where ``words`` has no room for a name.

    By the broker's rules: a name ends at the first 0x01 and a value at 0x02, both have a byte at least; of several of
    one name the last one's value counts, in the place of the first. ``sizes`` gets how many each block has. ``slots``
    is to be EMPTY, ``newest`` to be −1; afterwards it has the last property of each word, −1 behind the last word.
    Records lie around the blocks.
    """
    total, count, room, last_slot = 0, 0, words.shape[0], slots.shape[0] - 1
    words_at, slots_at = words.ctypes.data, slots.ctypes.data
    for row in range(addresses.shape[0]):
        block, length, first, name = addresses[row], lengths[row], total, 0
        while name < length:
            end = find_separator(block, name, length)
            if end == length or load_i8(block + end) == PROPERTY_SEPARATOR:
                name = end + 1
                continue
            stop = find_end(block, end + 1, length)
            if name < end < stop - 1:
                code = code_of(block + name, end - name, multiplier, count, words_at, slots_at, last_slot)
                if code == room:
                    return TOO_MANY
                if code == count:
                    words[code, ADDRESS], words[code, LENGTH] = block + name, end - name
                    count += 1
                pair = newest[code]
                if pair < first:
                    newest[code] = pair = total
                    pairs[NAME_CODE, pair] = code
                    total += 1
                pairs[VALUE, pair], pairs[VALUE_LENGTH, pair] = block + end + 1, stop - end - 1
            name = stop + 1
        sizes[row] = total - first
    return total


@njit("void(int64[::1], int64[:, ::1], int64, int64[::1], int64[::1])", cache=True, nogil=True)
def places_of_name(sizes: np.ndarray, pairs: np.ndarray, code: int, addresses: np.ndarray, lengths: np.ndarray) -> None:
    """Where each message has the value of one name, by the tables of :func:`split_properties`; length −1 for none."""
    pair = 0
    for row in range(sizes.shape[0]):
        addresses[row], lengths[row] = 0, -1
        for number in range(pair, pair + sizes[row]):
            if pairs[NAME_CODE, number] == code:
                addresses[row], lengths[row] = pairs[VALUE, number], pairs[VALUE_LENGTH, number]
        pair += sizes[row]
