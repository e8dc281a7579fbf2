"""Texts read as numbers, as Java's parseInt, parseLong and parseDouble read them (filters §2.5).

Integers may have decimal digits of any script, as long as one UTF-16 unit holds each; doubles have ASCII digits, blanks
around them, an exponent, a suffix, and may be hexadecimal. What is too large for a double is infinite, what is too
small is zero.
"""

from libc.math cimport INFINITY, NAN
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport strtod
from libc.string cimport memcmp, memcpy

from protocol.kernels.java_string cimport Character, decode_sequence
from storage.kernels.records cimport Text


cdef enum:
    # What became of a text that is read as an integer.
    INTEGER_READ = 0
    NO_INTEGER = 1
    BEYOND_RANGE = 2
    # Digits that decide which double is the nearest; one more says whether anything but zeros follows them.
    MOST_DIGITS = 800
    NUMBER_ROOM = MOST_DIGITS + 40
    EXACT_SCALE = 22  # the largest power of ten that is a double

cdef extern from *:
    """
    /* The zeros of all decimal digits below U+10000: nine digits follow each. A test has them from Unicode's table. */
    static const uint16_t digit_zeros[37] = {
        0x0030, 0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66,
        0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50,
        0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10};
    static const double exact_powers[23] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
        1e20, 1e21, 1e22};
    """
    const uint16_t *digit_zeros
    const double *exact_powers


cdef struct Digits:  # Of a number that is being read: its value is the digits' times a power of the base.
    char *room  # Of NUMBER_ROOM; digits without leading zeros,
    int64_t count
    int64_t scale  # and the power.
    uint64_t leading  # The value of the digits, of decimal ones that are 19 at most.
    bint is_any


cdef inline int digit_of(uint32_t point) noexcept nogil:
    """What a character beyond ASCII is as a digit, −1 for none."""
    cdef int low = 0, high = 37, middle
    while high - low > 1:
        middle = (low + high) >> 1
        if digit_zeros[middle] <= point:
            low = middle
        else:
            high = middle
    return <int>(point - digit_zeros[low]) if point - digit_zeros[low] < 10 else -1


cdef inline int read_integer(const Text *text, int bits, int64_t *number) noexcept nogil:
    """Read a number of 32 or 64 bits; INTEGER_READ, or why it is none."""
    cdef const uint8_t *at = text.start
    cdef const uint8_t *end = at + text.length
    cdef bint is_negative = at < end and at[0] == c'-', is_beyond = False
    cdef uint64_t limit = (<uint64_t>1 << (bits - 1)) - 1 + is_negative, magnitude = 0
    cdef Character character
    cdef int digit
    if at < end and (at[0] == c'-' or at[0] == c'+'):
        at += 1
    if at == end:
        return NO_INTEGER
    while at < end:
        character.point, character.length = at[0], 1
        if character.point < 0x80:
            digit = <int>character.point - c'0'
        else:
            character = decode_sequence(at, end - at)
            digit = digit_of(character.point)
        if digit < 0 or digit > 9:
            return NO_INTEGER
        at += character.length
        # A text is no integer at all if no digit stands where the number is long too large.
        if is_beyond or magnitude > limit // 10:
            is_beyond = True
            continue
        magnitude = magnitude * 10 + <uint64_t>digit
        is_beyond = magnitude > limit
    if is_beyond:
        return BEYOND_RANGE
    number[0] = <int64_t>(0 - magnitude if is_negative else magnitude)
    return INTEGER_READ


cdef inline int value_of_digit(uint8_t byte, bint is_hexadecimal) noexcept nogil:
    if c'0' <= byte <= c'9':
        return byte - c'0'
    byte |= 0x20
    return byte - c'a' + 10 if is_hexadecimal and c'a' <= byte <= c'f' else -1


cdef inline const uint8_t *read_digits(
    Digits *digits, const uint8_t *at, const uint8_t *end, bint is_hexadecimal
) noexcept nogil:
    """Read digits with a point among them or without; the place behind them."""
    cdef bint is_behind_point = False, has_rest = False
    cdef int digit
    digits.count = digits.scale = 0
    digits.leading = 0
    digits.is_any = False
    while at < end:
        if at[0] == c'.' and not is_behind_point:
            is_behind_point = True
            at += 1
            continue
        digit = value_of_digit(at[0], is_hexadecimal)
        if digit < 0:
            break
        digits.is_any = True
        if digit == 0 and digits.count == 0:
            digits.scale -= is_behind_point
        elif digits.count < MOST_DIGITS:
            digits.room[digits.count] = <char>at[0]
            digits.leading = digits.leading * 10 + <uint64_t>digit
            digits.count += 1
            digits.scale -= is_behind_point
        else:
            has_rest = has_rest or digit != 0
            digits.scale += not is_behind_point
        at += 1
    if has_rest:
        digits.room[digits.count] = c'1'
        digits.count += 1
        digits.scale -= 1
    return at


cdef inline const uint8_t *read_exponent(int64_t *exponent, const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Read the digits behind the letter of an exponent, and their sign; the place behind them, or NULL for none."""
    cdef bint is_negative = at < end and at[0] == c'-'
    exponent[0] = 0
    if at < end and (at[0] == c'-' or at[0] == c'+'):
        at += 1
    if at == end or not c'0' <= at[0] <= c'9':
        return NULL
    while at < end and c'0' <= at[0] <= c'9':
        if exponent[0] < <int64_t>1_000_000_000_000:  # more than any text has digits
            exponent[0] = exponent[0] * 10 + at[0] - c'0'
        at += 1
    if is_negative:
        exponent[0] = -exponent[0]
    return at


cdef inline double value_of_digits(Digits *digits, int64_t exponent, bint is_hexadecimal) noexcept nogil:
    """The double nearest to the digits times a power of ten, or of two."""
    cdef char text[NUMBER_ROOM]
    cdef int64_t length = 0, power = 1, scale = digits.scale * (4 if is_hexadecimal else 1) + exponent
    if digits.count == 0:
        return 0.0
    if not is_hexadecimal and digits.count <= 19 and digits.leading <= <uint64_t>1 << 53:
        if 0 <= scale <= EXACT_SCALE:
            return <double>digits.leading * exact_powers[scale]
        if -EXACT_SCALE <= scale < 0:
            return <double>digits.leading / exact_powers[-scale]
    if is_hexadecimal:
        text[0], text[1], length = c'0', c'x', 2
    memcpy(text + length, digits.room, digits.count)
    length += digits.count
    text[length] = c'p' if is_hexadecimal else c'e'
    text[length + 1] = c'-' if scale < 0 else c'+'
    length += 2
    scale = min(-scale if scale < 0 else scale, 99_999)  # beyond which nothing but zero and infinity is
    while power * 10 <= scale:
        power *= 10
    while power > 0:
        text[length] = <char>(c'0' + scale // power % 10)
        power //= 10
        length += 1
    text[length] = 0
    return strtod(text, NULL)  # no point in it: where the decimal point is a comma, that changes nothing


cdef inline bint read_double(const Text *text, double *number) noexcept nogil:
    """Read a double; False for what is none."""
    cdef char room[NUMBER_ROOM]
    cdef const uint8_t *at = text.start
    cdef const uint8_t *end = at + text.length
    cdef int64_t exponent = 0
    cdef Digits digits
    cdef bint is_negative, is_hexadecimal, has_exponent
    while at < end and at[0] <= 0x20:
        at += 1
    while at < end and (end - 1)[0] <= 0x20:
        end -= 1
    is_negative = at < end and at[0] == c'-'
    if at < end and (at[0] == c'-' or at[0] == c'+'):
        at += 1
    if end - at == 3 and memcmp(at, b"NaN", 3) == 0:
        number[0] = NAN
        return True
    if end - at == 8 and memcmp(at, b"Infinity", 8) == 0:
        number[0] = -INFINITY if is_negative else INFINITY
        return True
    is_hexadecimal = end - at > 2 and at[0] == c'0' and at[1] | 0x20 == c'x'
    digits.room = room
    at = read_digits(&digits, at + 2 if is_hexadecimal else at, end, is_hexadecimal)
    has_exponent = at < end and at[0] | 0x20 == (c'p' if is_hexadecimal else c'e')
    if not digits.is_any or (is_hexadecimal and not has_exponent):
        return False
    if has_exponent:
        at = read_exponent(&exponent, at + 1, end)
        if at == NULL:
            return False
    if at < end and (at[0] | 0x20 == c'f' or at[0] | 0x20 == c'd'):
        at += 1
    if at < end:
        return False
    number[0] = value_of_digits(&digits, exponent, is_hexadecimal)
    if is_negative:
        number[0] = -number[0]
    return True


cdef inline int64_t double_order(double number) noexcept nogil:
    """An integer that compares with others of its kind as Java's Double.compare compares the doubles.

    −0.0 is below 0.0, and NaN above everything and equal to itself.
    """
    cdef int64_t bits
    if number != number:
        return <int64_t>0x7FF8000000000000
    memcpy(&bits, &number, sizeof(bits))
    return bits if bits >= 0 else bits ^ <int64_t>0x7FFFFFFFFFFFFFFF
