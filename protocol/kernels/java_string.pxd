"""Java's string hash of UTF-8 bytes, without building the string.

Keys are hashed over the UTF-16 units of the decoded string (store-format §3.3), and what Java makes of malformed
bytes decides where a key lies in the index. The branches below follow the observable rules of ``new String(bytes,
UTF_8)``: one U+FFFD for each maximal malformed piece, and one for a whole encoded surrogate, where Python would give
three.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from protocol.kernels.memory cimport load_native_u64


cdef enum:
    REPLACEMENT = 0xFFFD

cdef struct Character:
    uint32_t point
    int32_t length  # Bytes that it takes.


cdef inline bint is_continuation(uint8_t byte) noexcept nogil:
    """Whether a byte continues a UTF-8 sequence (10xxxxxx)."""
    return byte & 0xC0 == 0x80


cdef inline int32_t malformed_length(const uint8_t *at, int64_t left, uint8_t lead) noexcept nogil:
    """Bytes that one U+FFFD stands for, at a three- or four-byte lead that starts no well-formed sequence."""
    if left < 2 or lead > 0xF4:
        return 1
    cdef uint8_t second = at[1]
    if not is_continuation(second) or (lead == 0xE0 and second < 0xA0):
        return 1
    if (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second > 0x8F):
        return 1
    if lead < 0xF0 or left < 3 or not is_continuation(at[2]):
        return 2
    return 3


cdef inline Character decode_sequence(const uint8_t *at, int64_t left) noexcept nogil:
    """The character of the multi-byte sequence whose first byte, not below 0x80, is there; U+FFFD where malformed."""
    cdef Character found
    cdef uint8_t lead = at[0]
    cdef bint well_formed = True
    cdef int32_t i
    found.point, found.length = REPLACEMENT, 1
    if 0xC2 <= lead <= 0xDF:
        if left >= 2 and is_continuation(at[1]):
            found.point, found.length = ((lead & 0x1F) << 6) | (at[1] & 0x3F), 2
        return found
    if lead < 0xE0 or lead > 0xF7:
        return found
    cdef int32_t length = 3 if lead < 0xF0 else 4
    cdef uint32_t point = lead & (0x0F if length == 3 else 0x07)
    if left >= length:
        for i in range(1, length):
            well_formed = well_formed and is_continuation(at[i])
            point = (point << 6) | (at[i] & 0x3F)
        if well_formed and length == 3 and point >= 0x800:
            found.point, found.length = (REPLACEMENT if 0xD800 <= point <= 0xDFFF else point), 3
            return found
        if well_formed and length == 4 and 0x10000 <= point <= 0x10FFFF:
            found.point, found.length = point, 4
            return found
    found.length = malformed_length(at, left, lead)
    return found


cdef inline uint32_t hash_eight(uint64_t word) noexcept nogil:
    """Hash of eight ASCII characters, the first in the lowest byte: neighbours are joined to pairs, fours, eight.

    One multiplication joins in all lanes of the word at once; 2²³ is the most that a lane of four can hold.
    """
    cdef uint64_t pairs = (word & <uint64_t>0x00FF00FF00FF00FF) * 31 + ((word >> 8) & <uint64_t>0x00FF00FF00FF00FF)
    cdef uint64_t fours = (pairs & <uint64_t>0x0000FFFF0000FFFF) * 961 + ((pairs >> 16) & <uint64_t>0x0000FFFF0000FFFF)
    return <uint32_t>((fours & <uint64_t>0xFFFFFFFF) * 923521 + (fours >> 32))


cdef extern from *:
    """
    static const uint32_t powers_of_31[8] = {1, 31, 961, 29791, 923521, 28629151, 887503681, 1742810335};
    """
    const uint32_t *powers_of_31


cdef inline uint32_t hash_utf8(uint32_t start, const uint8_t *at, int64_t length) noexcept nogil:
    """Go on from the hash ``start``, 0 at first, over ``length`` UTF-8 bytes."""
    cdef uint32_t result = start
    cdef int64_t position = 0
    cdef uint64_t word
    cdef Character character
    while position < length:
        if position + 8 <= length:
            word = load_native_u64(at + position)
            if word & <uint64_t>0x8080808080808080 == 0:
                result = result * <uint32_t>2487512833 + hash_eight(word)  # 31⁸ modulo 2³²
                position += 8
                continue
        elif length >= 8:  # the last characters once more in a word, zeros for those before: they add nothing
            word = load_native_u64(at + length - 8) & ~<uint64_t>0 << ((8 - length + position) << 3)
            if word & <uint64_t>0x8080808080808080 == 0:
                return result * powers_of_31[length - position] + hash_eight(word)
        if at[position] < 0x80:
            result = result * 31 + at[position]
            position += 1
            continue
        character = decode_sequence(at + position, length - position)
        position += character.length
        if character.point >= 0x10000:
            result = result * 31 + (0xD800 + ((character.point - 0x10000) >> 10))
            character.point = 0xDC00 + ((character.point - 0x10000) & 0x3FF)
        result = result * 31 + character.point
    return result


cdef inline int32_t fold_hash(uint32_t unsigned_hash) noexcept nogil:
    """The hash as an index file keeps it: absolute value, and 0 for the one int that has none (store-format §3.3)."""
    cdef int32_t signed_hash = <int32_t>unsigned_hash
    if unsigned_hash == <uint32_t>0x80000000:
        return 0
    return -signed_hash if signed_hash < 0 else signed_hash
