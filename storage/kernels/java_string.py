"""Java's string hash of UTF-8 bytes, without building the string.

Keys are hashed over the UTF-16 units of the decoded string (store-format §3.3), and what Java makes of malformed
bytes decides where a key lies in the index. The branches below follow the observable rules of ``new String(bytes,
UTF_8)``: one U+FFFD for each maximal malformed piece, and one for a whole encoded surrogate, where Python would give
three.
"""

from numba import njit

from storage.kernels.memory import load_native_i64, load_u8

REPLACEMENT = 0xFFFD
MASK = 0xFFFFFFFF

HIGH_BITS = -0x7F7F7F7F7F7F7F80
"""0x80 in each byte of an i64."""

POWER_8 = pow(31, 8, 1 << 32)
EVEN_BYTES = 0x00FF00FF00FF00FF
EVEN_PAIRS = 0x0000FFFF0000FFFF


@njit(cache=True, nogil=True, inline="always")
def is_continuation(byte: int) -> bool:
    """Whether a byte continues a UTF-8 sequence (10xxxxxx)."""
    return (byte & 0xC0) == 0x80


@njit(cache=True, nogil=True)
def malformed_length(address: int, left: int, lead: int) -> int:
    """Bytes that one U+FFFD stands for, at a three- or four-byte lead that starts no well-formed sequence."""
    if left < 2 or lead > 0xF4:
        return 1
    second = load_u8(address + 1)
    if not is_continuation(second) or (lead == 0xE0 and second < 0xA0):
        return 1
    if (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second > 0x8F):
        return 1
    if lead < 0xF0 or left < 3 or not is_continuation(load_u8(address + 2)):
        return 2
    return 3


@njit(cache=True, nogil=True)
def decode_sequence(address: int, left: int, lead: int) -> int:
    """Code point of the multi-byte sequence at ``address`` times 8 plus the bytes it takes; U+FFFD where malformed."""
    if 0xC2 <= lead <= 0xDF:
        if left >= 2 and is_continuation(load_u8(address + 1)):
            return ((((lead & 0x1F) << 6) | (load_u8(address + 1) & 0x3F)) << 3) | 2
        return (REPLACEMENT << 3) | 1
    if lead < 0xE0 or lead > 0xF7:
        return (REPLACEMENT << 3) | 1
    length = 3 if lead < 0xF0 else 4
    if left >= length:
        point = lead & (0x0F if length == 3 else 0x07)
        well_formed = True
        for i in range(1, length):
            byte = load_u8(address + i)
            well_formed = well_formed and is_continuation(byte)
            point = (point << 6) | (byte & 0x3F)
        if well_formed and length == 3 and point >= 0x800:
            return ((REPLACEMENT if 0xD800 <= point <= 0xDFFF else point) << 3) | 3
        if well_formed and length == 4 and 0x10000 <= point <= 0x10FFFF:
            return (point << 3) | 4
    return (REPLACEMENT << 3) | malformed_length(address, left, lead)


@njit(cache=True, nogil=True, inline="always")
def hash_eight(word: int) -> int:
    """Hash of eight ASCII characters, the first in the lowest byte: neighbours are joined to pairs, fours, eight.

    One multiplication joins in all lanes of the word at once; 2²³ is the most that a lane of four can hold.
    """
    pairs = (word & EVEN_BYTES) * 31 + ((word >> 8) & EVEN_BYTES)
    fours = (pairs & EVEN_PAIRS) * 31**2 + ((pairs >> 16) & EVEN_PAIRS)
    return ((fours & MASK) * 31**4 + (fours >> 32)) & MASK


@njit(cache=True, nogil=True)
def hash_utf8(start: int, address: int, length: int) -> int:
    """Go on from the hash ``start`` (unsigned, 0 at first) over ``length`` UTF-8 bytes."""
    result = start
    position = 0
    while position < length:
        if position + 8 <= length:
            word = load_native_i64(address + position)
            if word & HIGH_BITS == 0:
                result = (result * POWER_8 + hash_eight(word)) & MASK
                position += 8
                continue
        byte = load_u8(address + position)
        if byte < 0x80:
            result = (result * 31 + byte) & MASK
            position += 1
            continue
        decoded = decode_sequence(address + position, length - position, byte)
        point = decoded >> 3
        position += decoded & 7
        if point >= 0x10000:
            result = (result * 31 + (0xD800 + ((point - 0x10000) >> 10))) & MASK
            point = 0xDC00 + ((point - 0x10000) & 0x3FF)
        result = (result * 31 + point) & MASK
    return result


@njit(cache=True, nogil=True, inline="always")
def fold_hash(unsigned: int) -> int:
    """The hash as an index file keeps it: absolute value, and 0 for the one int that has none (store-format §3.3)."""
    signed = unsigned - (1 << 32) if unsigned >= (1 << 31) else unsigned
    if signed == -(1 << 31):
        return 0
    return -signed if signed < 0 else signed
