"""JSON objects read where they lie, member by member: the one reader of what the header of a command says.

A reader walks through the members: names and values are places in the object, and nothing is built. JSON is read as
RFC 8259 has it, but for texts that are no UTF-8, which Java takes: each malformed piece stands for U+FFFD.

A header comes from a peer, and nothing in it is trusted: each function takes ``stop``, behind the last byte that there
is, and reads none at or behind it. Places are NULL where there is no JSON.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from protocol.kernels.java_string cimport REPLACEMENT, Character, decode_sequence
from protocol.kernels.memory cimport Text, __builtin_ctzll, load_native_u32, load_native_u64


cdef enum Kind:
    A_TEXT  # of which the bytes are what it says: no escapes, and well-formed UTF-8 without U+FFFD
    AN_ODD_TEXT  # any other
    A_NUMBER
    A_TRUE
    A_FALSE
    A_NULL
    AN_OBJECT
    AN_ARRAY
    A_RAW_TEXT  # of a binary header, of any bytes

cdef enum:
    DEEPEST = 1000  # The most levels of nested objects and arrays.


cdef struct Value:
    Kind kind
    Text text  # What stands between the quotes of a text; all of anything else.
    bint is_integer  # Whether that is a 64-bit integer in its shortest form, in quotes or not,
    int64_t integer  # and which.


cdef struct Walk:  # Through the members of an object.
    const uint8_t *at
    const uint8_t *stop
    bint is_first


# --- Texts ---


cdef inline uint64_t special_bytes(uint64_t word) noexcept nogil:
    """The top bit of each of eight bytes that ends a run of plain ASCII: right up to the first such byte.

    A quote, a backslash, a control or what is not ASCII. A byte less than ``n`` sets its top bit when ``n`` is taken
    away, and its borrow may set others, but only behind it.
    """
    cdef uint64_t each = <uint64_t>0x0101010101010101
    cdef uint64_t quotes = word ^ (c'"' * each), backslashes = word ^ (c"\\" * each)
    return (
        ((quotes - each) & ~quotes) | ((backslashes - each) & ~backslashes) | ((word - c" " * each) & ~word) | word
    ) & (each << 7)


cdef inline const uint8_t *find_plain_end(const uint8_t *at, const uint8_t *stop) noexcept nogil:
    """The first byte from ``at`` on that is a quote, a backslash, a control or not ASCII, or ``stop``."""
    cdef uint64_t special
    while stop - at >= 8:
        special = special_bytes(load_native_u64(at))
        if special:
            return at + (__builtin_ctzll(special) >> 3)
        at += 8
    while at < stop and not (at[0] == c'"' or at[0] == c"\\" or at[0] < c" " or at[0] >= 128):
        at += 1
    return at


cdef inline int hex_digit(uint8_t byte) noexcept nogil:
    """The value of a hexadecimal digit, or −1."""
    if c"0" <= byte <= c"9":
        return byte - c"0"
    byte |= 0x20
    return byte - c"a" + 10 if c"a" <= byte <= c"f" else -1


cdef inline int read_unit(const uint8_t *at, const uint8_t *stop) noexcept nogil:
    r"""The UTF-16 unit of an escape ``\uXXXX`` that starts there, or −1."""
    cdef int unit = 0, digit, number
    if stop - at < 6 or at[0] != c"\\" or at[1] != c"u":
        return -1
    for number in range(2, 6):
        digit = hex_digit(at[number])
        if digit < 0:
            return -1
        unit = unit << 4 | digit
    return unit


cdef inline uint8_t escaped(uint8_t letter) noexcept nogil:
    """What a letter behind a backslash stands for, or 0 where it stands for nothing by itself."""
    if letter == c'"' or letter == c"\\" or letter == c"/":
        return letter
    if letter == c"n":
        return c"\n"
    if letter == c"t":
        return c"\t"
    if letter == c"r":
        return c"\r"
    if letter == c"b":
        return c"\b"
    return c"\f" if letter == c"f" else 0


cdef inline const uint8_t *skip_escape(const uint8_t *at, const uint8_t *stop) noexcept nogil:
    """The place behind the escape that starts there."""
    if stop - at >= 2 and escaped(at[1]):
        return at + 2
    return at + 6 if read_unit(at, stop) >= 0 else NULL


cdef inline const uint8_t *read_text(const uint8_t *at, const uint8_t *stop, Value *value) noexcept nogil:
    """Read a text from behind its first quote on; the place behind its last one."""
    cdef Character character
    value.kind, value.text.start, value.is_integer = A_TEXT, at, False
    while True:
        at = find_plain_end(at, stop)
        if at >= stop or at[0] < c" ":
            return NULL
        if at[0] == c'"':
            value.text.length = at - value.text.start
            return at + 1
        if at[0] == c"\\":
            value.kind = AN_ODD_TEXT
            at = skip_escape(at, stop)
            if at == NULL:
                return NULL
        else:
            character = decode_sequence(at, stop - at)
            if character.point == REPLACEMENT:
                value.kind = AN_ODD_TEXT
            at += character.length


# --- Numbers and words ---


cdef inline const uint8_t *read_integer(const uint8_t *at, const uint8_t *stop, int64_t *integer) noexcept nogil:
    """Read digits that are a 64-bit integer in its shortest form; the place behind them, NULL where they are none."""
    cdef bint is_negative = at < stop and at[0] == c"-"
    cdef const uint8_t *start
    cdef int64_t number = 0
    cdef uint8_t digit
    at += is_negative
    start = at
    while at < stop:
        digit = <uint8_t>(at[0] - c"0")
        if digit > 9:
            break
        if number >= INT64_MAX // 10 and (number > INT64_MAX // 10 or digit > 7):
            return NULL
        number = number * 10 + digit
        at += 1
    if at == start or (start[0] == c"0" and (is_negative or at - start > 1)):
        return NULL
    integer[0] = -number if is_negative else number
    return at


cdef inline const uint8_t *skip_digits(const uint8_t *at, const uint8_t *stop) noexcept nogil:
    """The place behind one digit or more."""
    if at >= stop or <uint8_t>(at[0] - c"0") > 9:
        return NULL
    while at < stop and <uint8_t>(at[0] - c"0") <= 9:
        at += 1
    return at


cdef inline const uint8_t *skip_number(const uint8_t *at, const uint8_t *stop) noexcept nogil:
    """The place behind a number of any length, with fraction and exponent or without."""
    at += at < stop and at[0] == c"-"
    at = at + 1 if at < stop and at[0] == c"0" else skip_digits(at, stop)
    if at != NULL and at < stop and at[0] == c".":
        at = skip_digits(at + 1, stop)
    if at != NULL and at < stop and at[0] | 0x20 == c"e":
        at += 1
        at += at < stop and (at[0] == c"+" or at[0] == c"-")
        at = skip_digits(at, stop)
    return at


cdef inline bint is_word(const uint8_t *at, const uint8_t *stop, const char *word, int64_t length) noexcept nogil:
    return stop - at >= length and memcmp(at, word, length) == 0


cdef inline const uint8_t *read_plain(const uint8_t *at, const uint8_t *stop, Value *value) noexcept nogil:
    """Read a value that is no object and no array; the place behind it."""
    cdef const uint8_t *end
    if at >= stop:
        return NULL
    if at[0] == c'"':
        if stop - at > 1 and at[1] <= c"9":  # a number in quotes, as Java sends them
            end = read_integer(at + 1, stop, &value.integer)
            if end != NULL and end < stop and end[0] == c'"':
                value.kind, value.is_integer = A_TEXT, True
                value.text.start, value.text.length = at + 1, end - at - 1
                return end + 1
        return read_text(at + 1, stop, value)
    value.is_integer, value.text.start = False, at
    if at[0] == c"n" and is_word(at, stop, "null", 4):
        value.kind, end = A_NULL, at + 4
    elif at[0] == c"t" and is_word(at, stop, "true", 4):
        value.kind, end = A_TRUE, at + 4
    elif at[0] == c"f" and is_word(at, stop, "false", 5):
        value.kind, end = A_FALSE, at + 5
    else:
        value.kind = A_NUMBER
        end = read_integer(at, stop, &value.integer)
        value.is_integer = end != NULL and (end >= stop or (end[0] != c"." and end[0] | 0x20 != c"e"))
        if not value.is_integer:
            end = skip_number(at, stop)
    value.text.length = end - at
    return end


# --- Members ---


cdef inline const uint8_t *skip_blanks(const uint8_t *at, const uint8_t *stop) noexcept nogil:
    while at < stop and at[0] <= c" " and (at[0] == c" " or at[0] == c"\n" or at[0] == c"\r" or at[0] == c"\t"):
        at += 1
    return at


cdef inline const uint8_t *read_name(const uint8_t *at, const uint8_t *stop, Value *name) noexcept nogil:
    """Read the name of a member and the colon behind it; the place of its value."""
    if at >= stop or at[0] != c'"':
        return NULL
    at = read_text(at + 1, stop, name)
    if at == NULL:
        return NULL
    at = skip_blanks(at, stop)
    return skip_blanks(at + 1, stop) if at < stop and at[0] == c":" else NULL


cdef inline bint enter(Walk *walk, const uint8_t *at, const uint8_t *stop) noexcept nogil:
    """Begin to walk through an object; whether one starts there."""
    if at >= stop or at[0] != c"{":
        return False
    walk.at, walk.stop, walk.is_first = at + 1, stop, True
    return True


cdef inline int next_member(Walk *walk, Value *name) noexcept nogil:
    """Read the next name: 1 where the walk stands at its value then, 0 behind the end of the object; −1 if it is none.

    The caller reads the value, which leaves the walk behind it.
    """
    cdef const uint8_t *at = skip_blanks(walk.at, walk.stop)
    if at >= walk.stop:
        return -1
    if at[0] == c"}":
        walk.at = at + 1
        return 0
    if not walk.is_first:
        if at[0] != c",":
            return -1
        at = skip_blanks(at + 1, walk.stop)
    walk.is_first = False
    walk.at = read_name(at, walk.stop, name)
    return 1 if walk.at != NULL else -1
