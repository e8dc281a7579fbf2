"""The structural check of an index file against the oracle that recomputes slots and pointers in a dictionary."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import growing_index
import oracles
from kernel_memory import Bytes
from offset_oracle import measure_offsets
from storage.kernels.structure import (
    GAP_BYTES,
    NO_ENTRY,
    STATS_ASCENDING,
    STATS_GAPS,
    STATS_MAXIMUM,
    STATS_MINIMUM,
    STRETCH_BYTES,
    check_growing_structure,
    check_growth,
    check_structure,
    measure_compacted,
    measure_entries,
)
from strategies import KEYS

SLOTS = 7


def image_of(keys: list[str], slots: int = SLOTS, entries: int = 30) -> oracles.IndexImage:
    """An index file whose entries are 100 bytes of log apart."""
    image = oracles.IndexImage(slots, entries)
    for number, key in enumerate(keys):
        image.put(f"T#{key}", 100 * number, 1_700_000_000_000 + number)
    return image


def check(data: bytes, slots: int, entries: int) -> int:
    held = Bytes(data)
    return int(check_structure(held.address, slots, entries, np.zeros(slots, dtype=np.int32)))


key_lists = st.lists(st.sampled_from(KEYS), min_size=1, max_size=20)


class TestCheckStructure:
    @given(key_lists, st.sampled_from([1, 2, 7, 97]))
    def test_what_a_broker_writes_reproduces(self, keys: list[str], slots: int) -> None:
        data = image_of(keys, slots).to_bytes()
        assert oracles.first_bad_entry(data, slots, len(keys)) == 0
        assert check(data, slots, len(keys)) == 0

    @given(key_lists, st.data())
    def test_damage_is_found_where_the_oracle_finds_it(self, keys: list[str], data: st.DataObject) -> None:
        image = bytearray(image_of(keys).to_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            image[data.draw(st.integers(40, 40 + 4 * SLOTS + 20 * (len(keys) + 1) - 1))] = data.draw(
                st.integers(0, 255)
            )
        assert check(bytes(image), SLOTS, len(keys)) == oracles.first_bad_entry(bytes(image), SLOTS, len(keys))

    @settings(max_examples=50)
    @given(key_lists, st.integers(1, 12))
    def test_a_wrong_slot_count_is_judged_like_the_oracle(self, keys: list[str], slots: int) -> None:
        data = image_of(keys).to_bytes()
        entries = (len(data) - 40 - 4 * slots) // 20 - 1
        assert check(data, slots, entries) == oracles.first_bad_entry(data, slots, entries)

    def test_a_slot_without_entries_that_points_somewhere_is_found(self) -> None:
        image = image_of(["k"])
        free = next(slot for slot in range(SLOTS) if slot not in image.slots)
        image.slots[free] = 1
        assert check(image.to_bytes(), SLOTS, 1) == 2 + free

    def test_a_negative_hash_is_no_hash(self) -> None:
        image = image_of(["a", "b", "c"])
        image.entries[1] = (-1, *image.entries[1][1:])
        assert check(image.to_bytes(), SLOTS, 3) == 2

    def test_scratch_of_an_earlier_file_is_the_callers_to_clear(self) -> None:
        held = Bytes(image_of(["a", "b"]).to_bytes())
        heads = np.zeros(SLOTS, dtype=np.int32)
        assert check_structure(held.address, SLOTS, 2, heads) == 0
        assert sorted(heads.tolist())[-1] == 2


class TestMeasureEntries:
    @given(
        st.lists(st.integers(0, 4 * GAP_BYTES), min_size=1, max_size=12)
        | st.lists(st.integers(0, 4 * GAP_BYTES), min_size=1, max_size=12).map(sorted)
    )
    def test_bounds_order_and_gaps_are_those_of_the_oracle(self, offsets: list[int]) -> None:
        image = oracles.IndexImage(SLOTS, 20)
        for number, offset in enumerate(offsets):
            image.put(f"T#{number}", offset, 0)
        held = Bytes(image.to_bytes())
        stats, gaps = np.zeros(4, dtype=np.int64), np.zeros((20, 2), dtype=np.int64)
        count = measure_entries(held.address, SLOTS, len(offsets), stats, gaps)
        minimum, maximum, ascending, expected = measure_offsets(offsets, GAP_BYTES)
        assert (stats[STATS_MINIMUM], stats[STATS_MAXIMUM], bool(stats[STATS_ASCENDING])) == (
            minimum,
            maximum,
            ascending,
        )
        assert count == stats[STATS_GAPS] == len(expected)
        assert [tuple(row) for row in gaps[:count].tolist()] == expected

    @pytest.mark.parametrize(("distance", "count"), [(GAP_BYTES, 0), (GAP_BYTES + 1, 1)])
    def test_a_gap_is_more_than_the_longest_step(self, distance: int, count: int) -> None:
        image = oracles.IndexImage(SLOTS, 20)
        image.put("T#a", 7, 0)
        image.put("T#b", 7 + distance, 0)
        held = Bytes(image.to_bytes())
        stats, gaps = np.zeros(4, dtype=np.int64), np.zeros((2, 2), dtype=np.int64)
        assert measure_entries(held.address, SLOTS, 2, stats, gaps) == count

    @pytest.mark.parametrize("room", [0, 1, 3])
    def test_gaps_beyond_the_room_are_counted_and_not_written(self, room: int) -> None:
        image = oracles.IndexImage(SLOTS, 20)
        for number in range(6):
            image.put(f"T#{number}", number * 2 * GAP_BYTES, 0)
        held = Bytes(image.to_bytes())
        stats, gaps = np.zeros(4, dtype=np.int64), np.full((room + 1, 2), -1, dtype=np.int64)
        assert measure_entries(held.address, SLOTS, 6, stats, gaps[:room]) == 5
        assert gaps[room].tolist() == [-1, -1]
        assert gaps[:room, 0].tolist() == [number * 2 * GAP_BYTES for number in range(room)]

    def test_stats_of_an_earlier_file_are_overwritten(self) -> None:
        held = Bytes(image_of(["a", "b"]).to_bytes())
        stats, gaps = np.full(4, 99, dtype=np.int64), np.zeros((1, 2), dtype=np.int64)
        measure_entries(held.address, SLOTS, 2, stats, gaps)
        assert stats.tolist() == [0, 100, 1, 0]


class TestMeasureCompacted:
    """Entries of a slot side by side; offsets in stretches of the log, by which gaps are found without sorting."""

    @given(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 30 * STRETCH_BYTES)), min_size=1, max_size=15),
        st.sampled_from([1, 3, SLOTS]),
        st.integers(0, 4 * STRETCH_BYTES),
        st.sampled_from([0, 2, 40]),
    )
    def test_bounds_and_stretches_are_those_of_all_entries(
        self, puts: list[tuple[str, int]], slots: int, start: int, rows: int
    ) -> None:
        puts.sort(key=lambda put: oracles.index_hash(f"T#{put[0]}") % slots)  # stable, so any order along a chain
        image = oracles.IndexImage(slots, 20)
        for key, offset in puts:
            image.put(f"T#{key}", offset, 0)
        held, stats = Bytes(image.to_bytes()), np.full(4, 99, dtype=np.int64)
        stretches = np.full((rows, 2), 99, dtype=np.int64)
        assert measure_compacted(held.address, slots, len(puts), start, stretches, stats) == 0
        offsets = [offset for _, offset in puts]
        assert stats[:2].tolist() == [min(offsets), max(offsets)]
        chains = [[o for k, o in puts if oracles.index_hash(f"T#{k}") % slots == slot] for slot in range(slots)]
        assert bool(stats[STATS_ASCENDING]) == all(chain == sorted(chain) for chain in chains)
        for row in range(rows):
            first = start + row * STRETCH_BYTES
            inside = [offset for offset in offsets if first <= offset < first + STRETCH_BYTES]
            assert stretches[row].tolist() == ([min(inside), max(inside)] if inside else [NO_ENTRY, NO_ENTRY])

    @given(key_lists, st.sampled_from([1, 2, SLOTS]))
    def test_entries_as_a_broker_puts_them_are_compacted_only_by_chance(self, keys: list[str], slots: int) -> None:
        image = image_of(keys, slots)
        held, stats = Bytes(image.to_bytes()), np.zeros(4, dtype=np.int64)
        bad = [number for number, entry in enumerate(image.entries, 1) if entry[3] not in (0, number - 1)]
        none = np.zeros((0, 2), dtype=np.int64)
        assert measure_compacted(held.address, slots, len(keys), 0, none, stats) == (bad[0] if bad else 0)


def check_growing(data: bytes, slots: int, entries: int) -> int:
    held = Bytes(data)
    capacity = (len(data) - 40 - 4 * slots) // 20 - 1
    return int(check_growing_structure(held.address, slots, entries, capacity, np.zeros(slots, dtype=np.int32)))


class TestGrowingStructure:
    """A file that is looked at while a broker puts entries."""

    @given(key_lists, st.sampled_from([1, 2, 7, 97]), st.data())
    def test_the_first_entries_reproduce_whatever_was_put_behind_them(
        self, keys: list[str], slots: int, data: st.DataObject
    ) -> None:
        content = image_of(keys, slots).to_bytes()
        assert check_growing(content, slots, data.draw(st.integers(1, len(keys)))) == 0

    @given(st.lists(st.sampled_from(KEYS), min_size=2, max_size=9), st.sampled_from([1, 2, 7]))
    def test_every_state_that_a_put_goes_through_holds_the_entries_before_it(self, keys: list[str], slots: int) -> None:
        image = image_of(keys[:-1], slots)
        for content in growing_index.put_in_steps(image, f"T#{keys[-1]}", 100 * len(keys), 1_700_000_000_999):
            counted = oracles.signed(content, 36, 4) - 1
            assert counted >= len(keys) - 1
            assert check_growing(content, slots, counted) == 0

    @given(key_lists, st.data())
    def test_damage_is_found_where_the_oracle_finds_it(self, keys: list[str], data: st.DataObject) -> None:
        image = bytearray(image_of(keys).to_bytes())
        entries = data.draw(st.integers(1, len(keys)))
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(40, 40 + 4 * SLOTS + 20 * (len(keys) + 1) - 1))
            image[place] = data.draw(st.integers(0, 255))
        expected = growing_index.first_bad_entry(bytes(image), SLOTS, entries)
        assert check_growing(bytes(image), SLOTS, entries) == expected


def check_more(data: bytes, slots: int, known: int, entries: int) -> int:
    held = Bytes(data)
    capacity = (len(data) - 40 - 4 * slots) // 20 - 1
    return int(check_growth(held.address, slots, known, entries, capacity, np.zeros(entries - known, dtype=np.int8)))


class TestGrowth:
    """Only what was put since is looked at."""

    @given(key_lists, st.sampled_from([1, 2, 7]), st.data())
    def test_what_a_broker_puts_holds_together(self, keys: list[str], slots: int, data: st.DataObject) -> None:
        known = data.draw(st.integers(0, len(keys)))
        entries = data.draw(st.integers(known, len(keys)))
        assert check_more(image_of(keys, slots).to_bytes(), slots, known, entries) == 0

    @settings(max_examples=200)
    @given(key_lists, st.sampled_from([1, 2, 7]), st.data())
    def test_no_entry_is_passed_that_no_chain_reaches(self, keys: list[str], slots: int, data: st.DataObject) -> None:
        content = bytearray(image_of(keys, slots).to_bytes())
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
            assert oracles.signed(content, first + 20 * number + 4, 8) in oracles.walk_chain(
                bytes(content), slots, hash_value
            )

    @pytest.mark.parametrize(
        ("place", "value"),
        [(0, -1), (4, 0), (16, 3), (16, 9), (16, -1)],
        ids=["hash", "offset that falls", "itself", "upwards", "negative"],
    )
    def test_a_bad_field_is_found(self, place: int, value: int) -> None:
        content = bytearray(image_of(["a"] * 5, 1).to_bytes())
        size = 8 if place == 4 else 4
        content[44 + 60 + place : 44 + 60 + place + size] = oracles.packed(value, size)
        assert check_more(bytes(content), 1, 2, 5) in (3, 4)

    def test_a_pointer_to_an_entry_of_another_slot_is_found(self) -> None:
        image = image_of(["a", "b", "a"], 2)
        assert image.entries[0][0] % 2 != image.entries[1][0] % 2
        image.entries[2] = (*image.entries[2][:3], 2)
        assert check_more(image.to_bytes(), 2, 2, 3) == 3

    def test_an_entry_that_its_slot_does_not_know_is_found(self) -> None:
        image = image_of(["a", "b", "a"], 7)
        image.slots[image.entries[2][0] % 7] = 1
        assert check_more(image.to_bytes(), 7, 2, 3) == 3
