"""Texts that lie here and there in memory: gathered into columns, split, and numbered where they come again and again.

Each different text is a word and has a number, its code. The ``multiplier`` of the hash that leads to it is an odd
number of 63 bits that nobody knows who writes messages: texts made to share a hash would be compared each with all
others.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcpy, memset

from protocol.kernels.memory cimport load_i32, load_native_u64
from storage.kernels.records cimport (
    SEPARATORS_WIDE, SPACE, Property, PropertyWalk, Text, begin_properties, next_property,
)
from storage.kernels.region cimport Column, Region, Room, require_bytes, take
from storage.kernels.sql92 cimport memmem


cdef int open_source(Source *source, Region region, Region others, Column positions, Column lengths) except -1:
    """Where some texts are said to lie; raises ValueError unless each has a position and a length."""
    if positions.count != lengths.count:
        raise ValueError(f"{positions.count} positions and {lengths.count} lengths of texts")
    source.data, source.size = region.data, region.size
    source.others, source.others_size = others.data, others.size
    source.positions, source.lengths = <const int64_t *>positions.items, <const int64_t *>lengths.items
    source.count = positions.count
    return 0


cdef int refuse(const Source *source, int64_t row) except -1:
    """Raise the ValueError for a text that lies outside its region."""
    cdef int64_t position = source.positions[row]
    raise ValueError(
        f"text {row} of {source.lengths[row]} bytes at position {position} does not lie in a region of "
        f"{source.size if position >= 0 else source.others_size} bytes"
    )


cdef int expect_room(str what, int64_t count, int64_t wanted) except -1:
    """Raise ValueError where an array is too short."""
    if count < wanted:
        raise ValueError(f"room for {count} {what}, expected {wanted} at least")
    return 0


cdef list make_words(Words *words, int64_t room, uint64_t multiplier):
    """An empty table for so many words, for as long as the caller holds what is returned."""
    cdef list blocks = []
    cdef uint64_t slots = 2
    while slots <= 2 * <uint64_t>room:
        slots *= 2
    words.texts = <Text *>take(blocks, room, sizeof(Text))
    words.slots = <int32_t *>take(blocks, slots, sizeof(int32_t))
    memset(words.slots, 0xFF, slots * sizeof(int32_t))
    words.count, words.room, words.last_slot, words.multiplier = 0, room, slots - 1, multiplier
    return blocks


# --- Texts gathered ---


def bytes_at(Region region not None, int64_t position, int64_t length) -> bytes:
    """Some bytes, copied; none for a negative length."""
    if length <= 0:
        return b""
    require_bytes(region, position, length)
    return PyBytes_FromStringAndSize(<const char *>region.data + position, length)


def copy_texts(
    Region region not None, Region others not None, positions: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8],
) -> None:
    """Copy each text to its offset in `data`."""
    cdef Column offset_column = Column(offsets, sizeof(int32_t))
    cdef Room data_room = Room(data, 1)
    cdef Column position_column = Column(positions, sizeof(int64_t)), length_column = Column(lengths, sizeof(int64_t))
    cdef const int32_t *starts = <const int32_t *>offset_column.items
    cdef uint8_t *copied = <uint8_t *>data_room.items
    cdef int64_t room = data_room.count, row = 0
    cdef bint fits = True
    cdef Source source
    cdef Text text
    open_source(&source, region, others, position_column, length_column)
    expect_room("offsets", offset_column.count, source.count)
    with nogil:
        while row < source.count and find_text(&source, row, &text):
            if text.length > 0:
                fits = starts[row] >= 0 and text.length <= room - starts[row]
                if not fits:
                    break
                memcpy(copied + starts[row], text.start, text.length)
            row += 1
    if not fits:
        raise ValueError(f"text {row} of {text.length} bytes at offset {starts[row]} does not fit into {room} bytes")
    if row < source.count:
        refuse(&source, row)


cdef inline bint is_ascii(const Text *text) noexcept nogil:
    cdef uint64_t bits = 0
    cdef int64_t position = 0
    while position + 8 <= text.length:
        bits |= load_native_u64(text.start + position)
        position += 8
    while position < text.length:
        bits |= text.start[position]
        position += 1
    return bits & <uint64_t>0x8080808080808080 == 0


cdef inline bint holds(const Text *text, const uint8_t *needle, int64_t size) noexcept nogil:
    """Whether a text holds some bytes, or, where these are NULL, one of 0x80 or above."""
    if needle == NULL:
        return not is_ascii(text)
    return text.length >= size and memmem(text.start, text.length, needle, size) != NULL


def find_holding(
    Region region not None, Region others not None, positions: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64],
    bytes needle, found: npt.NDArray[np.int64],
) -> int:
    """Note which texts hold some bytes, or, where these are None, one byte of 0x80 or above; how many do."""
    cdef Column position_column = Column(positions, sizeof(int64_t)), length_column = Column(lengths, sizeof(int64_t))
    cdef Room found_room = Room(found, sizeof(int64_t))
    cdef int64_t *rows = <int64_t *>found_room.items
    cdef const uint8_t *wanted = NULL
    cdef int64_t size = 0, row = 0, count = 0
    cdef Source source
    cdef Text text
    if needle is not None:
        wanted, size = needle, len(needle)
    open_source(&source, region, others, position_column, length_column)
    expect_room("rows", found_room.count, source.count)
    with nogil:
        while row < source.count and find_text(&source, row, &text):
            if holds(&text, wanted, size):
                rows[count] = row
                count += 1
            row += 1
    if row < source.count:
        refuse(&source, row)
    return count


cdef inline int64_t find_blank(const Text *text, int64_t position) noexcept nogil:
    """Position of the next blank, or that of the end."""
    cdef const uint8_t *blank = <const uint8_t *>memchr(text.start + position, SPACE, text.length - position)
    return blank - text.start if blank != NULL else text.length


def split_keys(
    Region region not None, Region others not None, positions: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64], key_positions: npt.NDArray[np.int64], key_lengths: npt.NDArray[np.int64],
) -> int:
    """Split each text at blanks, forgetting empty pieces: how many pieces each has, where they lie; how many in all."""
    cdef Column position_column = Column(positions, sizeof(int64_t)), length_column = Column(lengths, sizeof(int64_t))
    cdef Room count_room = Room(counts, sizeof(int64_t))
    cdef Room start_room = Room(key_positions, sizeof(int64_t)), size_room = Room(key_lengths, sizeof(int64_t))
    cdef int64_t *starts = <int64_t *>start_room.items
    cdef int64_t *sizes = <int64_t *>size_room.items
    cdef int64_t row = 0, total = 0, before, piece, end, room = min(start_room.count, size_room.count)
    cdef Source source
    cdef Text text
    open_source(&source, region, others, position_column, length_column)
    expect_room("counts", count_room.count, source.count)
    with nogil:
        while row < source.count and find_text(&source, row, &text):
            before, piece = total, 0
            while piece < text.length:
                end = find_blank(&text, piece)
                if end > piece:
                    if total < room:
                        starts[total], sizes[total] = moved(source.positions[row], piece), end - piece
                    total += 1
                piece = end + 1
            (<int64_t *>count_room.items)[row] = total - before
            row += 1
    if row < source.count:
        refuse(&source, row)
    expect_room("keys", room, total)
    return total


def write_hosts(
    Region region not None, positions: npt.NDArray[np.int64], texts: npt.NDArray[np.uint8],
    lengths: npt.NDArray[np.int64],
) -> None:
    """Write IPv4 addresses and ports, eight bytes at each position, as texts: HOST_ROOM bytes for each."""
    cdef Column position_column = Column(positions, sizeof(int64_t))
    cdef Room text_room = Room(texts, 1), length_room = Room(lengths, sizeof(int64_t))
    cdef const int64_t *places = <const int64_t *>position_column.items
    cdef const uint8_t *host
    cdef uint8_t *at
    cdef int64_t row = 0, last = region.size - 8
    expect_room("lengths", length_room.count, position_column.count)
    expect_room("bytes of texts", text_room.count, HOST_ROOM * position_column.count)
    with nogil:
        while row < position_column.count and 0 <= places[row] <= last:
            host, at = region.data + places[row], <uint8_t *>text_room.items + HOST_ROOM * row
            for byte in range(4):
                at = put_number(at, host[byte])
                at[0] = c":" if byte == 3 else c"."
                at += 1
            at = put_number(at, load_i32(host + 4))
            (<int64_t *>length_room.items)[row] = at - (<uint8_t *>text_room.items + HOST_ROOM * row)
            row += 1
    if row < position_column.count:
        require_bytes(region, places[row], 8)


# --- Texts numbered ---


def hash_text(Region region not None, uint64_t multiplier) -> int:
    """The hash of a region's bytes: up to 24 bits."""
    cdef Text text
    text.start, text.length = region.data, region.size
    return hash_of(&text, multiplier)


cdef int64_t number_texts(
    const Source *source, Words *words, int32_t *codes, int64_t *word_positions, int64_t *word_lengths
) noexcept nogil:
    """Number texts; return the row of the first one that is outside of its region or does not fit, or their count."""
    cdef int64_t row, count, code
    cdef Text text
    for row in range(source.count):
        if source.lengths[row] < 0:
            codes[row] = -1
            continue
        if not find_text(source, row, &text):
            return row
        count = words.count
        code = code_of(words, &text)
        if code == TOO_MANY:
            words.count = TOO_MANY
            return row
        if code == count:
            word_positions[code], word_lengths[code] = source.positions[row], text.length
        codes[row] = <int32_t>code
    return source.count


def code_texts(
    Region region not None, Region others not None, positions: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64],
    uint64_t multiplier, codes: npt.NDArray[np.int32], word_positions: npt.NDArray[np.int64],
    word_lengths: npt.NDArray[np.int64],
) -> int:
    """Write the code of each text, −1 for one of negative length; return the number of words, TOO_MANY if too many.

    A word's position and length are those of the first text that is equal to it.
    """
    cdef Column position_column = Column(positions, sizeof(int64_t)), length_column = Column(lengths, sizeof(int64_t))
    cdef Room code_room = Room(codes, sizeof(int32_t))
    cdef Room place_room = Room(word_positions, sizeof(int64_t)), size_room = Room(word_lengths, sizeof(int64_t))
    cdef int32_t *numbers = <int32_t *>code_room.items
    cdef int64_t *places = <int64_t *>place_room.items
    cdef int64_t *sizes = <int64_t *>size_room.items
    cdef int64_t ended
    cdef Source source
    cdef Words words
    cdef list blocks
    open_source(&source, region, others, position_column, length_column)
    expect_room("codes", code_room.count, source.count)
    blocks = make_words(&words, min(place_room.count, size_room.count), multiplier)
    with nogil:
        ended = number_texts(&source, &words, numbers, places, sizes)
    if ended < source.count and words.count != TOO_MANY:
        refuse(&source, ended)
    return words.count


# --- Property blocks ---


@cython.final
cdef class SplitProperties:
    """The names and values in some property blocks."""

    cdef readonly int64_t pairs  # The number of all names and values; TOO_MANY where there were too many names.
    cdef readonly int64_t words  # The number of different names.

    def __cinit__(self, int64_t pairs, int64_t words):
        self.pairs, self.words = pairs, words


cdef struct Pairs:  # Names, by their codes, and values: room for them, and how many there are.
    int32_t *codes
    int64_t *positions
    int64_t *lengths
    int64_t count
    int64_t room


cdef int64_t split_block(
    const Text *block, int64_t position, Words *words, int64_t *newest, int64_t *word_positions, int64_t *word_lengths,
    Pairs *pairs,
) noexcept nogil:
    """Append the names and values of one block, which lies at a position; TOO_MANY for too many names, else 0."""
    cdef int64_t first = pairs.count, count, code, pair
    cdef PropertyWalk walk
    cdef Property each
    begin_properties(&walk, block)
    while next_property(&walk, &each):
        count = words.count
        code = code_of(words, &each.name)
        if code == TOO_MANY:
            return TOO_MANY
        if code == count:
            newest[code] = -1
            word_positions[code], word_lengths[code] = position + (each.name.start - block.start), each.name.length
        pair = newest[code]
        if pair < first:
            newest[code] = pair = pairs.count
            pairs.count += 1
            if pair < pairs.room:
                pairs.codes[pair] = <int32_t>code
        if pair < pairs.room:
            pairs.positions[pair] = position + (each.value.start - block.start)
            pairs.lengths[pair] = each.value.length
    return 0


def split_properties(
    Region region not None, positions: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], uint64_t multiplier,
    counts: npt.NDArray[np.int64], codes: npt.NDArray[np.int32], value_positions: npt.NDArray[np.int64],
    value_lengths: npt.NDArray[np.int64], word_positions: npt.NDArray[np.int64], word_lengths: npt.NDArray[np.int64],
) -> SplitProperties:
    """Split property blocks into names, which become words, and values; `counts` gets how many each block has.

    By the broker's rules: a name ends at the first 0x01 and a value at 0x02, both have a byte at least; of several of
    one name the last one's value counts, in the place of the first. Records lie around the blocks: a block ends 64
    bytes behind the region's start or later.
    """
    cdef Column position_column = Column(positions, sizeof(int64_t)), length_column = Column(lengths, sizeof(int64_t))
    cdef Room count_room = Room(counts, sizeof(int64_t)), code_room = Room(codes, sizeof(int32_t))
    cdef Room start_room = Room(value_positions, sizeof(int64_t)), size_room = Room(value_lengths, sizeof(int64_t))
    cdef Room place_room = Room(word_positions, sizeof(int64_t)), word_room = Room(word_lengths, sizeof(int64_t))
    cdef int64_t *places = <int64_t *>place_room.items
    cdef int64_t *sizes = <int64_t *>word_room.items
    cdef int64_t room = min(place_room.count, word_room.count), row = 0, first, outcome = 0
    cdef int64_t *newest
    cdef Source source
    cdef Words words
    cdef list blocks
    cdef Pairs pairs
    cdef Text block
    open_source(&source, region, region, position_column, length_column)
    expect_room("counts", count_room.count, source.count)
    pairs.codes = <int32_t *>code_room.items
    pairs.positions, pairs.lengths = <int64_t *>start_room.items, <int64_t *>size_room.items
    pairs.count, pairs.room = 0, min(code_room.count, start_room.count, size_room.count)
    blocks = make_words(&words, room, multiplier)
    newest = <int64_t *>take(blocks, room, sizeof(int64_t))
    with nogil:
        while row < source.count and source.positions[row] >= 0 and find_text(&source, row, &block):
            if block.length <= 0:
                (<int64_t *>count_room.items)[row] = 0
                row += 1
                continue
            # So many bytes before the end of a block are looked at together.
            if source.positions[row] + block.length < SEPARATORS_WIDE:
                break
            first = pairs.count
            outcome = split_block(&block, source.positions[row], &words, newest, places, sizes, &pairs)
            if outcome == TOO_MANY:
                break
            (<int64_t *>count_room.items)[row] = pairs.count - first
            row += 1
    if outcome == 0:
        if row < source.count:
            raise ValueError(
                f"block {row} of {source.lengths[row]} bytes at position {source.positions[row]} does not lie in a "
                f"region of {source.size} bytes with {SEPARATORS_WIDE} of them before its end"
            )
        expect_room("properties", pairs.room, pairs.count)
    return SplitProperties(pairs.count if outcome == 0 else outcome, words.count)


def places_of_name(
    counts: npt.NDArray[np.int64], codes: npt.NDArray[np.int32], value_positions: npt.NDArray[np.int64],
    value_lengths: npt.NDArray[np.int64], int32_t code, positions: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> None:
    """Where each block has the value of one name, by the tables of :func:`split_properties`; length −1 for none."""
    cdef Column count_column = Column(counts, sizeof(int64_t)), code_column = Column(codes, sizeof(int32_t))
    cdef Column start_column = Column(value_positions, sizeof(int64_t))
    cdef Column size_column = Column(value_lengths, sizeof(int64_t))
    cdef Room position_room = Room(positions, sizeof(int64_t)), length_room = Room(lengths, sizeof(int64_t))
    cdef const int64_t *in_block = <const int64_t *>count_column.items
    cdef const int32_t *names = <const int32_t *>code_column.items
    cdef int64_t *places = <int64_t *>position_room.items
    cdef int64_t *sizes = <int64_t *>length_room.items
    cdef int64_t row, pair = 0, stop = 0, pairs = min(code_column.count, start_column.count, size_column.count)
    expect_room("places", min(position_room.count, length_room.count), count_column.count)
    with nogil:
        for row in range(count_column.count):
            places[row], sizes[row] = 0, -1
            stop += in_block[row]
            if stop > pairs:
                break
            while pair < stop:
                if names[pair] == code:
                    places[row] = (<const int64_t *>start_column.items)[pair]
                    sizes[row] = (<const int64_t *>size_column.items)[pair]
                pair += 1
    expect_room("properties", pairs, stop)
