"""Texts that lie here and there in memory, and those that come again and again, numbered: see texts.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from protocol.kernels.memory cimport load_native_u32, load_native_u64
from storage.kernels.records cimport Text


cpdef enum:
    TOO_MANY = -1
    HOST_ROOM = 32


cdef struct Source:  # Texts of a region, or of another one where positions are negative: −1 is the first byte there.
    const uint8_t *data
    int64_t size
    const uint8_t *others
    int64_t others_size
    const int64_t *positions
    const int64_t *lengths
    int64_t count

cdef struct Words:  # The different texts, and a hash table that leads to their numbers; longer than there are words.
    Text *texts
    int32_t *slots  # −1 where no word is.
    int64_t count
    int64_t room
    uint64_t last_slot
    uint64_t multiplier


cdef extern from *:
    ctypedef unsigned long long uint128_t "unsigned __int128"  # twice as wide in C


cdef inline bint find_text(const Source *source, int64_t row, Text *text) noexcept nogil:
    """Find one of the texts, of no bytes where it is not there; False where it lies outside its region."""
    cdef int64_t position = source.positions[row], size = source.size
    cdef const uint8_t *data = source.data
    text.length = source.lengths[row]
    text.start = data
    if text.length <= 0:
        return True
    if position < 0:
        position, data, size = -1 - position, source.others, source.others_size
    if text.length > size - position:
        return False
    text.start = data + position
    return True


cdef inline int64_t moved(int64_t position, int64_t distance) noexcept nogil:
    """The position that lies so many bytes behind one, in the same region."""
    return position + distance if position >= 0 else position - distance


cdef inline uint64_t mix_in(uint64_t number, uint64_t word, uint64_t multiplier) noexcept nogil:
    """A hash that goes on by eight bytes: all bits of a product of 128 count, so that no bit can be undone by another."""
    cdef uint128_t product = <uint128_t>(word ^ number ^ (multiplier >> 23 | multiplier << 41)) * multiplier
    return <uint64_t>product ^ <uint64_t>(product >> 64)


cdef inline uint64_t hash_of(const Text *text, uint64_t multiplier) noexcept nogil:
    """A number of up to 24 bits. Who does not know the multiplier cannot find texts that share one."""
    cdef const uint8_t *at = text.start
    cdef int64_t length = text.length, position = 0
    cdef uint64_t number = <uint64_t>length, word = 0
    while position + 8 < length:
        number = mix_in(number, load_native_u64(at + position), multiplier)
        position += 8
    if length >= 8:
        word = load_native_u64(at + length - 8)
    elif length >= 4:
        word = <uint64_t>load_native_u32(at) << 32 | load_native_u32(at + length - 4)
    elif length > 0:
        word = <uint64_t>at[0] << 16 | <uint64_t>at[length // 2] << 8 | at[length - 1]
    return (mix_in(number, word, multiplier) >> 40) & 0xFFFFFF


cdef inline bint is_same_text(const Text *left, const Text *right) noexcept nogil:
    """Whether two texts are equal; most are short, and a call of memcmp would cost more than the comparison."""
    cdef const uint8_t *one = left.start
    cdef const uint8_t *other = right.start
    cdef int64_t length = left.length, position = 0
    if length != right.length:
        return False
    if length >= 8:
        while position + 8 < length:
            if load_native_u64(one + position) != load_native_u64(other + position):
                return False
            position += 8
        return load_native_u64(one + length - 8) == load_native_u64(other + length - 8)
    if length >= 4:
        position = length - 4
        return (
            load_native_u32(one) == load_native_u32(other)
            and load_native_u32(one + position) == load_native_u32(other + position)
        )
    while position < length:
        if one[position] != other[position]:
            return False
        position += 1
    return True


cdef inline int64_t code_of(Words *words, const Text *text) noexcept nogil:
    """Return the number of a text, which becomes a word if it is none yet; TOO_MANY if there are too many words."""
    cdef uint64_t slot = hash_of(text, words.multiplier) & words.last_slot
    cdef int32_t code = words.slots[slot]
    while code >= 0:
        if is_same_text(&words.texts[code], text):
            return code
        slot = (slot + 1) & words.last_slot
        code = words.slots[slot]
    if words.count == words.room:
        return TOO_MANY
    words.slots[slot] = <int32_t>words.count
    words.texts[words.count] = text[0]
    words.count += 1
    return words.count - 1


cdef inline uint8_t *put_number(uint8_t *at, int64_t number) noexcept nogil:
    """Write a number of 32 bits in decimal; the place behind it."""
    cdef int64_t power = 1
    if number < 0:
        at[0] = c"-"
        at += 1
        number = -number
    while power * 10 <= number:
        power *= 10
    while power > 0:
        at[0] = <uint8_t>(c"0" + number // power % 10)
        power //= 10
        at += 1
    return at
