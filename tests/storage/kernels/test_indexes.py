"""Index files checked, measured and built by the kernels, against loops and oracles."""

import itertools
import struct
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import growing_index
import oracles
from compact_oracle import Mark, take_mark
from examples import examples
from kernel_memory import Bytes
from oracles import IndexImage, index_hash
from storage.build.index_builder import CompactFileBuilder, EntryColumns, IndexFileBuilder
from storage.index.index_file import IndexHeader
from storage.kernels import index_entries as kernel
from storage.kernels import indexes
from strategies import KEYS


def measure_offsets(offsets, gap):
    pairs = list(itertools.pairwise(offsets))
    gaps = [(left, right) for left, right in pairs if right - left > gap]
    return min(offsets), max(offsets), all(left <= right for left, right in pairs), gaps


SLOTS = 7


key_lists = st.lists(st.sampled_from(KEYS), min_size=1, max_size=20)


any_offsets = st.integers(0, 4 * indexes.GAP_BYTES) | st.integers(-(2**63), 2**63 - 1)
"""What a log may hold, and what a damaged file may say."""


@given(st.lists(any_offsets, min_size=1, max_size=12) | st.lists(any_offsets, min_size=1, max_size=12).map(sorted))
@example([-(2**63), 2**63 - 1])
def test_bounds_order_and_gaps_are_those_of_the_oracle(offsets: list[int]) -> None:
    image = oracles.IndexImage(SLOTS, 20)
    for number, offset in enumerate(offsets):
        image.put(f"T#{number}", offset, 0)
    held = Bytes(image.to_bytes())
    span = indexes.measure_entries(held.region, SLOTS, 0, len(offsets), 20)
    minimum, maximum, ascending, expected = measure_offsets(offsets, indexes.GAP_BYTES)
    assert (span.minimum, span.maximum, span.ascending) == (minimum, maximum, ascending)
    assert (span.gap_count, span.gaps) == (len(expected), expected)


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 30 * indexes.STRETCH_BYTES)), min_size=1, max_size=15),
       st.sampled_from([1, 3, SLOTS]), st.integers(0, 4 * indexes.STRETCH_BYTES),
       st.sampled_from([0, 2, 40]))  # fmt: skip
def test_bounds_and_stretches_are_those_of_all_entries(puts, slots, start, rows) -> None:
    puts.sort(key=lambda put: oracles.index_hash(f"T#{put[0]}") % slots)  # stable, so any order along a chain
    image = oracles.IndexImage(slots, 20)
    for key, offset in puts:
        image.put(f"T#{key}", offset, 0)
    held = Bytes(image.to_bytes())
    lowest, highest = np.full(rows, 99, dtype=np.int64), np.full(rows, 99, dtype=np.int64)
    span = indexes.measure_compacted(held.region, slots, len(puts), start, lowest, highest)
    assert span.bad == 0
    offsets = [offset for _, offset in puts]
    assert [span.minimum, span.maximum] == [min(offsets), max(offsets)]
    chains = [[o for k, o in puts if oracles.index_hash(f"T#{k}") % slots == slot] for slot in range(slots)]
    assert span.ascending == all(chain == sorted(chain) for chain in chains)
    for row in range(rows):
        first = start + row * indexes.STRETCH_BYTES
        inside = [offset for offset in offsets if first <= offset < first + indexes.STRETCH_BYTES]
        assert [lowest[row], highest[row]] == (
            [min(inside), max(inside)] if inside else [indexes.NO_ENTRY, indexes.NO_ENTRY]
        )


def check_growing(data: bytes, slots: int, entries: int) -> int:
    capacity = (len(data) - 40 - 4 * slots) // 20 - 1
    return indexes.check_growing_structure(Bytes(data).region, slots, entries, capacity)


@given(st.lists(st.sampled_from(KEYS), min_size=2, max_size=9), st.sampled_from([1, 2, 7]))
def test_every_state_that_a_put_goes_through_holds_the_entries_before_it(keys: list[str], slots: int) -> None:
    image = oracles.index_image(keys[:-1], slots)
    for content in growing_index.put_in_steps(image, f"T#{keys[-1]}", 100 * len(keys), 1_700_000_000_999):
        counted = oracles.signed(content, 36, 4) - 1
        assert counted >= len(keys) - 1
        assert check_growing(content, slots, counted) == 0


@given(key_lists, st.data())
def test_damage_of_a_whole_and_of_a_growing_file_is_found_where_the_oracle_finds_it(keys: list[str], data) -> None:
    image = bytearray(oracles.index_image(keys).to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(40, 40 + 4 * SLOTS + 20 * (len(keys) + 1) - 1))
        image[place] = data.draw(st.integers(0, 255))
    content, count, entries = bytes(image), len(keys), data.draw(st.integers(1, len(keys)))
    found = indexes.check_structure(Bytes(content).region, SLOTS, count)
    assert found == oracles.first_bad_entry(content, SLOTS, count)
    assert check_growing(content, SLOTS, entries) == growing_index.first_bad_entry(content, SLOTS, entries)


def check_more(data: bytes, slots: int, known: int, entries: int) -> int:
    capacity = (len(data) - 40 - 4 * slots) // 20 - 1
    return indexes.check_growth(Bytes(data).region, slots, known, entries, capacity)


@settings(max_examples=examples(60))
@given(key_lists, st.sampled_from([1, 2, 7]), st.data())
def test_no_entry_is_passed_that_no_chain_reaches(keys: list[str], slots: int, data: st.DataObject) -> None:
    content = bytearray(oracles.index_image(keys, slots).to_bytes())
    known = data.draw(st.integers(0, len(keys)))
    first = 40 + 4 * slots
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(40, first - 1) | st.integers(first + 20, first + 20 * (len(keys) + 1) - 1))
        content[place] = data.draw(st.integers(0, 255))
    if check_more(bytes(content), slots, known, len(keys)):
        return
    offsets = [oracles.signed(content, first + 20 * n + 4, 8) for n in range(max(known, 1), len(keys) + 1)]
    assert offsets == sorted(offsets)
    for number in range(known + 1, len(keys) + 1):
        hash_value = oracles.signed(content, first + 20 * number, 4)
        offset = oracles.signed(content, first + 20 * number + 4, 8)
        assert offset in oracles.walk_chain(bytes(content), slots, hash_value)


def check_pointers(data, slots, entries, **options):
    """How many are wrong, the rows, slots in use."""
    fixed: dict[int, int] = options.get("fixed", {})
    check = indexes.check_pointers(
        Bytes(data).region, slots, entries, options.get("written", entries), np.array(sorted(fixed), np.int64),
        np.array([fixed[number] for number in sorted(fixed)], np.int32), options.get("room", 100),
    )  # fmt: skip
    return check.wrong, [[each.kind, each.number, each.expected, each.found] for each in check.noted], check.used


def wrong_by_loop(data: bytes, slots: int, entries: int, fixed: dict[int, int]) -> list[list[int]]:
    heads = dict.fromkeys(range(slots), 0)
    wrong = []
    for number in range(1, entries + 1):
        at = 40 + 4 * slots + 20 * number
        key_hash = fixed.get(number, oracles.signed(data, at, 4))
        if key_hash < 0:
            continue
        found = oracles.signed(data, at + 16, 4)
        if found != heads[key_hash % slots]:
            wrong.append([indexes.BAD_POINTER, number, heads[key_hash % slots], found])
        heads[key_hash % slots] = number
    for slot, head in heads.items():
        found = oracles.signed(data, 40 + 4 * slot, 4)
        if found != head:
            wrong.append([indexes.BAD_SLOT, slot, head, found])
    return wrong


@settings(max_examples=examples(50))
@given(
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=25), st.sampled_from([1, 2, 7]), st.integers(0, 5), st.data()
)
def test_what_is_wrong_is_what_a_loop_finds(keys, slots, room, data) -> None:
    content = bytearray(oracles.index_image(keys, slots).to_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(40, 40 + 4 * slots + 20 * len(keys) + 19))] = data.draw(st.integers(0, 255))
    fixed = data.draw(st.dictionaries(st.integers(1, len(keys)), st.integers(0, 2**31 - 1), max_size=3))
    expected = wrong_by_loop(bytes(content), slots, len(keys), fixed)
    wrong, rows, used = check_pointers(bytes(content), slots, len(keys), fixed=fixed, room=room)
    assert wrong == len(expected)
    assert rows[:room] == expected[:room]
    hashes = [fixed.get(n, oracles.signed(bytes(content), 40 + 4 * slots + 20 * n, 4)) for n in range(1, len(keys) + 1)]
    assert used == len({key_hash % slots for key_hash in hashes if key_hash >= 0})


def entry_bytes(entries):
    return b"".join(struct.pack(">iqii", *entry) for entry in entries)


class TestCheckEntries:
    @given(key_lists, st.sampled_from([1, 2, 7, 97]), st.integers(1, 21))
    def test_a_sound_file_is_so_in_portions_of_any_size(self, keys: list[str], slots: int, at_once: int) -> None:
        image = oracles.index_image(keys, slots)
        held, heads = entry_bytes(image.entries), np.zeros(slots, np.int32)
        for number in range(0, len(keys), at_once):
            count = min(at_once, len(keys) - number)
            part = Bytes(held[20 * number : 20 * (number + count)])
            assert kernel.check_entries(part.region, number + 1, heads) == 0
        assert heads.tolist() == [image.slots.get(slot, 0) for slot in range(slots)]

    @given(key_lists, st.data())
    def test_damage_is_found_where_the_oracle_finds_it(self, keys: list[str], data: st.DataObject) -> None:
        image = bytearray(oracles.index_image(keys).to_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, 20 * len(keys) - 1).filter(lambda place: not 4 <= place % 20 < 16))
            image[40 + 4 * SLOTS + 20 + place] = data.draw(st.integers(0, 255))
        entries = Bytes(bytes(image[40 + 4 * SLOTS + 20 :][: 20 * len(keys)]))
        heads = np.zeros(SLOTS, np.int32)
        found = kernel.check_entries(entries.region, 1, heads)
        expected = oracles.first_bad_entry(bytes(image), SLOTS, len(keys))
        assert found == (expected if expected <= len(keys) else 0)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30)), min_size=1, max_size=5), st.integers(0, 1000),
       st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(-20, 400)), max_size=20), st.data())  # fmt: skip
def test_entries_go_to_the_cells_they_lie_in_and_keep_their_order(cells, start, drawn, data) -> None:
    bounds = []
    at = start
    for length, hole in cells:
        bounds.append((at, at + length))
        at += length + hole
    entries = [(key_hash, max(start + near, -5)) for key_hash, near in drawn]
    entries += [(7, data.draw(st.sampled_from([edge for cell in bounds for edge in (*cell, cell[0] - 1)])))]
    dealt = deal(entries, bounds)
    inside = [[entry for entry in entries if low <= entry[1] < high] for low, high in bounds]
    below = sum(offset < bounds[0][0] for _, offset in entries)
    beyond = sum(offset >= bounds[-1][1] for _, offset in entries)
    nowhere = len(entries) - below - beyond - sum(map(len, inside))
    assert [dealt.below, dealt.beyond, dealt.nowhere] == [below, beyond, nowhere]
    assert dealt.counts.tolist() == [*map(len, inside)]
    expected = [(each, offset - low) for (low, _), of in zip(bounds, inside, strict=True) for each, offset in of]
    count = len(expected)
    assert list(zip(dealt.hashes[:count].tolist(), dealt.positions[:count].tolist(), strict=True)) == expected


def deal(entries, bounds):
    held = Bytes(entry_bytes([(key_hash, offset, 0, 0) for key_hash, offset in entries]))
    starts, ends = (np.array(column, np.int64) for column in zip(*bounds, strict=True))
    return kernel.deal_entries(held.region, starts, ends)


FIRST = 3 << 33


class Put(NamedTuple):
    """A record's place, store time, and the strings it is indexed under."""

    physical_offset: int
    store_timestamp: int
    texts: list[str]


stamps = st.integers(1_700_000_000_000, 1_700_000_200_000) | st.integers(-5000, 5000) | st.integers(0, 2**62)


@st.composite
def put_lists(draw: st.DrawFn) -> list[Put]:
    """Records in the order of the log, whose clock steps back now and then."""
    offset, puts = FIRST, []
    for texts in draw(st.lists(st.lists(st.sampled_from(KEYS), min_size=1, max_size=4), max_size=8)):
        puts.append(Put(offset, draw(stamps), texts))
        offset += draw(st.sampled_from([1, 91, 2**31]))
    return [put for put in puts if put.physical_offset - FIRST < 2**32]


def columns_of(puts: list[Put], first_offset: int = FIRST) -> EntryColumns:
    return EntryColumns(first_offset, np.array([put.physical_offset - first_offset for put in puts], np.uint32),
                        np.array([put.store_timestamp for put in puts], np.int64),
                        np.array([len(put.texts) for put in puts], np.uint16),
                        np.array([index_hash(text) for put in puts for text in put.texts], np.int32))  # fmt: skip


def entries_of(puts: list[Put]) -> list[tuple[str, int, int]]:
    return [(text, put.physical_offset, put.store_timestamp) for put in puts for text in put.texts]


def bytes_of(builder: IndexFileBuilder | CompactFileBuilder) -> bytes:
    assert not any(builder.memory[builder.used :])
    assert builder.memory[builder.used - 20 : builder.used].strip(b"\0") or builder.used == 40
    return builder.memory[: builder.size]


@settings(max_examples=examples(50))
@given(put_lists(), st.sampled_from([1, 2, 7, 97]), st.integers(0, 40), st.data())
def test_entries_put_in_any_portions_make_the_file_of_the_oracle(puts, slots, spare, data) -> None:
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
def test_a_compact_file_has_the_entries_of_a_slot_side_by_side(puts, slots, spare, end) -> None:
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
    assert indexes.slot_number(key_hash, slots) == key_hash % slots
    nearest = key_hash // slots * slots
    for near in (nearest - 1, nearest, nearest + 1):
        if 0 <= near < 2**31:
            assert indexes.slot_number(near, slots) == near % slots


def numbers(*values):
    return np.array(values, np.int64)


def test_stops_that_fall_put_no_entry_twice() -> None:
    memory = bytearray(40 + 4 * 2 + 20 * 4 + 60)
    writer = indexes.IndexWriter(memory, 2, 4, 0, 0)
    hashes = np.array([1, 2, 3], np.int32)
    writer.put(numbers(1, 2, 3, 4), numbers(7, 7, 7, 7), numbers(2, 0, 1, 3), hashes, 0, 3)
    assert writer.index_count == 4
    assert not any(memory[-60:])


def test_memory_that_holds_something_sends_no_entry_astray() -> None:
    memory = bytearray(b"\x7f" * (40 + 4 * 2 + 20 * 4))
    used = indexes.place_entries(memory, 2, np.array([1, 2, 3], np.int32), numbers(1, 2, 3), numbers(7, 7, 7), 3, 7)
    assert used == 2
    assert memory[40:48] == bytes([0, 0, 0, 1, 0, 0, 0, 3])


def rows_of(found):
    yield from found[1]


@given(key_lists, st.integers(1, 24))
def test_slots_of_a_file_that_grows_may_be_ahead(keys: list[str], known: int) -> None:
    known = min(known, len(keys))
    data = oracles.index_image(keys).to_bytes()
    assert check_pointers(data, SLOTS, known, written=len(keys))[0] == 0


@pytest.mark.parametrize("pointer", [3, 4, 9])
def test_a_way_down_that_leads_up_is_wrong(pointer: int) -> None:
    data = bytearray(oracles.index_image(["a", "a", "a", "a"], 1).to_bytes())
    data[44 + 20 * 4 + 16 : 44 + 20 * 5] = oracles.packed(pointer, 4)
    wrong = list(rows_of(check_pointers(bytes(data), 1, 2, written=4)))
    assert wrong == ([] if pointer == 3 else [[indexes.BAD_SLOT, 0, 2, 4]])


@given(key_lists, st.sampled_from([1, 2, SLOTS]))
def test_entries_as_a_broker_puts_them_are_compacted_only_by_chance(keys: list[str], slots: int) -> None:
    image = oracles.index_image(keys, slots)
    held = Bytes(image.to_bytes())
    bad = [number for number, entry in enumerate(image.entries, 1) if entry[3] not in (0, number - 1)]
    none = np.zeros(0, dtype=np.int64)
    assert indexes.measure_compacted(held.region, slots, len(keys), 0, none, none).bad == (bad[0] if bad else 0)


@pytest.mark.parametrize(("place", "value"), [(0, -1), (4, 0), (16, 3), (16, 9), (16, -1)],
    ids=["hash", "offset that falls", "itself", "upwards", "negative"])  # fmt: skip
def test_a_bad_field_is_found(place: int, value: int) -> None:
    content = bytearray(oracles.index_image(["a"] * 5, 1).to_bytes())
    size = 8 if place == 4 else 4
    content[44 + 60 + place : 44 + 60 + place + size] = oracles.packed(value, size)
    assert check_more(bytes(content), 1, 2, 5) in (3, 4)
