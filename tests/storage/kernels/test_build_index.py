"""Index files filled by the kernels against the oracle that puts entry by entry."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compact_oracle import Mark, take_mark
from examples import examples
from oracles import IndexImage, index_hash
from storage.build.index_builder import CompactFileBuilder, EntryColumns, IndexFileBuilder
from storage.index.index_file import IndexHeader
from storage.kernels.indexes import IndexWriter, place_entries, slot_number
from strategies import KEYS

FIRST = 3 << 33


class Put(NamedTuple):
    """A record's place, store time, and the strings it is indexed under."""

    physical_offset: int
    store_timestamp: int
    texts: list[str]


stamps = st.integers(1_700_000_000_000, 1_700_000_200_000) | st.integers(-5000, 5000) | st.integers(0, 2**62)
key_lists = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4)


@st.composite
def put_lists(draw: st.DrawFn) -> list[Put]:
    """Records in the order of the log, whose clock steps back now and then."""
    offset, puts = FIRST, []
    for texts in draw(st.lists(key_lists, max_size=8)):
        puts.append(Put(offset, draw(stamps), texts))
        offset += draw(st.sampled_from([1, 91, 2**31]))
    return [put for put in puts if put.physical_offset - FIRST < 2**32]


def columns_of(puts: list[Put], first_offset: int = FIRST) -> EntryColumns:
    return EntryColumns(
        first_offset,
        np.array([put.physical_offset - first_offset for put in puts], np.uint32),
        np.array([put.store_timestamp for put in puts], np.int64),
        np.array([len(put.texts) for put in puts], np.uint16),
        np.array([index_hash(text) for put in puts for text in put.texts], np.int32),
    )


def entries_of(puts: list[Put]) -> list[tuple[str, int, int]]:
    return [(text, put.physical_offset, put.store_timestamp) for put in puts for text in put.texts]


def bytes_of(builder: IndexFileBuilder | CompactFileBuilder) -> bytes:
    assert not any(builder.memory[builder.used :])
    assert builder.memory[builder.used - 20 : builder.used].strip(b"\0") or builder.used == 40
    return builder.memory[: builder.size]


@settings(max_examples=examples(50))
@given(put_lists(), st.sampled_from([1, 2, 7, 97]), st.integers(0, 40), st.data())
def test_entries_put_in_any_portions_make_the_file_of_the_oracle(
    puts: list[Put], slots: int, spare: int, data: st.DataObject
) -> None:
    entries, columns = entries_of(puts), columns_of(puts)
    first = data.draw(st.integers(0, len(entries)))
    seed = data.draw(st.none() | st.tuples(stamps, st.integers(-1, FIRST)))
    image = IndexImage(slots, len(entries) + 1 + spare)
    if seed is not None:
        image.begin_timestamp = image.end_timestamp = max(seed[0], 0)
        image.begin_physical_offset = image.end_physical_offset = max(seed[1], 0)
    header = None if seed is None else IndexHeader(5, seed[0], 5, seed[1], 1, 2)
    builder = IndexFileBuilder(slots, len(entries) + 1 + spare, header)
    while first < len(entries):
        count = data.draw(st.integers(0, len(entries) - first))
        builder.put(columns, first, count)
        for entry in entries[first : first + count]:
            image.put(*entry)
        first += max(count, 1) if count else len(entries)
    built = builder.finish()
    assert bytes_of(builder) == image.to_bytes()
    assert (built.index_count, built.end_timestamp) == (image.index_count, image.end_timestamp)


@settings(max_examples=examples(30))
@given(put_lists(), st.sampled_from([1, 2, 7, 97]), st.integers(0, 3), st.integers(0, 2**40))
def test_a_compact_file_has_the_entries_of_a_slot_side_by_side(
    puts: list[Put], slots: int, spare: int, end: int
) -> None:
    builder = CompactFileBuilder(slots, len(entries_of(puts)) + 1 + spare)
    for put in puts:
        builder.put(columns_of([put], put.physical_offset - 7), 0, len(put.texts))
    header = builder.finish(end, complete=True)
    times = [put.store_timestamp for put in puts] or [0]
    begin = min((time for time in times if time > 0), default=max(times))
    image = IndexImage(slots, builder.entries)
    entries = [(index_hash(text), *place) for text, *place in entries_of(puts)]
    for hashed, offset, stamp in sorted(entries, key=lambda entry: entry[0] % slots):  # stable
        previous = image.slots.get(hashed % slots, 0)
        seconds = min(max(stamp - begin, 0) // 1000, 2**31 - 1) if begin > 0 else 0
        image.entries.append((hashed, offset, seconds, previous))
        image.slots[hashed % slots] = len(image.entries)
        assert previous in (0, len(image.entries) - 1)
    offsets = [put.physical_offset for put in puts] or [0]
    image.begin_timestamp, image.end_timestamp = begin, max(times)
    image.begin_physical_offset, image.end_physical_offset = min(offsets), max(*offsets, end)
    image.hash_slot_count = len(image.slots)
    without_mark, mark = take_mark(bytes_of(builder), slots)
    assert without_mark == image.to_bytes()
    assert mark == (Mark(len(entries), True, False) if entries else None)
    assert (header.slot_count, header.index_count) == (len(image.slots), len(entries) + 1)


@given(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1))
@example(2**31 - 1, 1)
@example(2**31 - 1, 2**31 - 1)
@example(2**31 - 2, 2**31 - 1)
def test_a_slot_is_the_remainder(key_hash: int, slots: int) -> None:
    assert slot_number(key_hash, slots) == key_hash % slots
    nearest = key_hash // slots * slots
    for near in (nearest - 1, nearest, nearest + 1):
        if 0 <= near < 2**31:
            assert slot_number(near, slots) == near % slots


def numbers(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


class TestDoors:
    """What does not fit is refused before anything is written."""

    def test_stops_that_fall_put_no_entry_twice(self) -> None:
        memory = bytearray(40 + 4 * 2 + 20 * 4 + 60)
        writer = IndexWriter(memory, 2, 4, 0, 0)
        hashes = np.array([1, 2, 3], np.int32)
        writer.put(numbers(1, 2, 3, 4), numbers(7, 7, 7, 7), numbers(2, 0, 1, 3), hashes, 0, 3)
        assert writer.index_count == 4
        assert not any(memory[-60:])

    def test_memory_that_holds_something_sends_no_entry_astray(self) -> None:
        memory = bytearray(b"\x7f" * (40 + 4 * 2 + 20 * 4))
        used = place_entries(memory, 2, np.array([1, 2, 3], np.int32), numbers(1, 2, 3), numbers(7, 7, 7), 3, 7)
        assert used == 2
        assert memory[40:48] == bytes([0, 0, 0, 1, 0, 0, 0, 3])
