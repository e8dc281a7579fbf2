"""The properties that dispatch needs, found in one pass over a record's property block, and Java's numbers in them."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from protocol.kernels.java_string cimport hash_utf8
from storage.kernels.records cimport Property, PropertyWalk, Record, Text, begin_properties, is_text, next_property


cdef struct Properties:  # The values of those that are there; the others' `start` is NULL.
    Text keys
    Text tags
    Text unique_key
    Text delay
    Text inner_num
    Text inner_base
    Text multi_dispatch
    Text multi_queue_offset


cdef inline Text *named_value(Properties *found, const Text *name) noexcept nogil:
    """Where the value of a property goes, NULL for a property that nobody asks for."""
    if name.length == 4:
        if is_text(name, b"KEYS", 4):
            return &found.keys
        return &found.tags if is_text(name, b"TAGS", 4) else NULL
    if name.length == 5:
        return &found.delay if is_text(name, b"DELAY", 5) else NULL
    if name.length == 8:
        return &found.unique_key if is_text(name, b"UNIQ_KEY", 8) else NULL
    if name.length == 9:
        return &found.inner_num if is_text(name, b"INNER_NUM", 9) else NULL
    if name.length == 10:
        return &found.inner_base if is_text(name, b"INNER_BASE", 10) else NULL
    if name.length == 20:
        return &found.multi_dispatch if is_text(name, b"INNER_MULTI_DISPATCH", 20) else NULL
    if name.length == 24:
        return &found.multi_queue_offset if is_text(name, b"INNER_MULTI_QUEUE_OFFSET", 24) else NULL
    return NULL


cdef inline void find_properties(const Record *record, Properties *found) noexcept nogil:
    """Find all of them, by the broker's parsing rules: of several of one name the last counts."""
    cdef PropertyWalk walk
    cdef Property each
    cdef Text *value
    found.keys.start = found.tags.start = found.unique_key.start = found.delay.start = NULL
    found.inner_num.start = found.inner_base.start = NULL
    found.multi_dispatch.start = found.multi_queue_offset.start = NULL
    begin_properties(&walk, &record.properties)
    while next_property(&walk, &each):
        value = named_value(found, &each.name)
        if value != NULL:
            value[0] = each.value


cdef inline int64_t tags_code(const Properties *found) noexcept nogil:
    """The tags code of a tag: its Java hash with its sign; 0 without a tag."""
    return 0 if found.tags.start == NULL else <int32_t>hash_utf8(0, found.tags.start, found.tags.length)


cdef inline bint parse_integer(const Text *text, int bits, int64_t *number) noexcept nogil:
    """Whether Java parses some text as a number of 16, 32 or 64 bits, which is put into ``number`` then.

    An optional sign and decimal digits. Java would take the digits of other scripts, too, which nobody sends.
    """
    cdef const uint8_t *at = text.start
    cdef const uint8_t *end = at + text.length
    cdef bint is_negative = at < end and at[0] == c'-'
    cdef int64_t half = <int64_t>1 << (bits - 2)  # of the largest magnitude, which itself is no i64
    cdef int64_t largest = half // 5, last_digit = half % 5 * 2
    cdef int64_t negated = 0  # counted downwards, as the smallest number has no counterpart above zero
    cdef int digit
    if at < end and (at[0] == c'-' or at[0] == c'+'):
        at += 1
    if at == end:
        return False
    while at < end:
        digit = at[0] - c'0'
        if digit < 0 or digit > 9 or -negated > largest or (-negated == largest and digit > last_digit):
            return False
        negated = negated * 10 - digit
        at += 1
    if not is_negative and negated == -2 * half:
        return False
    number[0] = negated if is_negative else -negated
    return True
