"""The structural check of an index file against the oracle that recomputes slots and pointers in a dictionary."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import growing_index
import oracles
from examples import examples
from kernel_memory import Bytes
from offset_oracle import measure_offsets
from storage.kernels.indexes import (
    GAP_BYTES,
    NO_ENTRY,
    STRETCH_BYTES,
    check_growing_structure,
    check_growth,
    check_structure,
    measure_compacted,
    measure_entries,
)
from strategies import KEYS

SLOTS = 7


def check(data: bytes, slots: int, entries: int) -> int:
    return check_structure(Bytes(data).region, slots, entries)


key_lists = st.lists(st.sampled_from(KEYS), min_size=1, max_size=20)


class TestCheckStructure:
    @given(key_lists, st.data())
    def test_damage_is_found_where_the_oracle_finds_it(self, keys: list[str], data: st.DataObject) -> None:
        image = bytearray(oracles.index_image(keys).to_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            image[data.draw(st.integers(40, 40 + 4 * SLOTS + 20 * (len(keys) + 1) - 1))] = data.draw(
                st.integers(0, 255)
            )
        assert check(bytes(image), SLOTS, len(keys)) == oracles.first_bad_entry(bytes(image), SLOTS, len(keys))


any_offsets = st.integers(0, 4 * GAP_BYTES) | st.integers(-(2**63), 2**63 - 1)
"""What a log may hold, and what a damaged file may say."""


class TestMeasureEntries:
    @given(st.lists(any_offsets, min_size=1, max_size=12) | st.lists(any_offsets, min_size=1, max_size=12).map(sorted))
    @example([-(2**63), 2**63 - 1])
    def test_bounds_order_and_gaps_are_those_of_the_oracle(self, offsets: list[int]) -> None:
        image = oracles.IndexImage(SLOTS, 20)
        for number, offset in enumerate(offsets):
            image.put(f"T#{number}", offset, 0)
        held = Bytes(image.to_bytes())
        span = measure_entries(held.region, SLOTS, 0, len(offsets), 20)
        minimum, maximum, ascending, expected = measure_offsets(offsets, GAP_BYTES)
        assert (span.minimum, span.maximum, span.ascending) == (minimum, maximum, ascending)
        assert span.gap_count == len(expected)
        assert span.gaps == expected


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
        held = Bytes(image.to_bytes())
        lowest, highest = np.full(rows, 99, dtype=np.int64), np.full(rows, 99, dtype=np.int64)
        span = measure_compacted(held.region, slots, len(puts), start, lowest, highest)
        assert span.bad == 0
        offsets = [offset for _, offset in puts]
        assert [span.minimum, span.maximum] == [min(offsets), max(offsets)]
        chains = [[o for k, o in puts if oracles.index_hash(f"T#{k}") % slots == slot] for slot in range(slots)]
        assert span.ascending == all(chain == sorted(chain) for chain in chains)
        for row in range(rows):
            first = start + row * STRETCH_BYTES
            inside = [offset for offset in offsets if first <= offset < first + STRETCH_BYTES]
            assert [lowest[row], highest[row]] == ([min(inside), max(inside)] if inside else [NO_ENTRY, NO_ENTRY])

    @given(key_lists, st.sampled_from([1, 2, SLOTS]))
    def test_entries_as_a_broker_puts_them_are_compacted_only_by_chance(self, keys: list[str], slots: int) -> None:
        image = oracles.index_image(keys, slots)
        held = Bytes(image.to_bytes())
        bad = [number for number, entry in enumerate(image.entries, 1) if entry[3] not in (0, number - 1)]
        none = np.zeros(0, dtype=np.int64)
        assert measure_compacted(held.region, slots, len(keys), 0, none, none).bad == (bad[0] if bad else 0)


def check_growing(data: bytes, slots: int, entries: int) -> int:
    capacity = (len(data) - 40 - 4 * slots) // 20 - 1
    return check_growing_structure(Bytes(data).region, slots, entries, capacity)


class TestGrowingStructure:
    """A file that is looked at while a broker puts entries."""

    @given(st.lists(st.sampled_from(KEYS), min_size=2, max_size=9), st.sampled_from([1, 2, 7]))
    def test_every_state_that_a_put_goes_through_holds_the_entries_before_it(self, keys: list[str], slots: int) -> None:
        image = oracles.index_image(keys[:-1], slots)
        for content in growing_index.put_in_steps(image, f"T#{keys[-1]}", 100 * len(keys), 1_700_000_000_999):
            counted = oracles.signed(content, 36, 4) - 1
            assert counted >= len(keys) - 1
            assert check_growing(content, slots, counted) == 0

    @given(key_lists, st.data())
    def test_damage_is_found_where_the_oracle_finds_it(self, keys: list[str], data: st.DataObject) -> None:
        image = bytearray(oracles.index_image(keys).to_bytes())
        entries = data.draw(st.integers(1, len(keys)))
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(40, 40 + 4 * SLOTS + 20 * (len(keys) + 1) - 1))
            image[place] = data.draw(st.integers(0, 255))
        expected = growing_index.first_bad_entry(bytes(image), SLOTS, entries)
        assert check_growing(bytes(image), SLOTS, entries) == expected


def check_more(data: bytes, slots: int, known: int, entries: int) -> int:
    capacity = (len(data) - 40 - 4 * slots) // 20 - 1
    return check_growth(Bytes(data).region, slots, known, entries, capacity)


class TestGrowth:
    """Only what was put since is looked at."""

    @settings(max_examples=examples(60))
    @given(key_lists, st.sampled_from([1, 2, 7]), st.data())
    def test_no_entry_is_passed_that_no_chain_reaches(self, keys: list[str], slots: int, data: st.DataObject) -> None:
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
            assert oracles.signed(content, first + 20 * number + 4, 8) in oracles.walk_chain(
                bytes(content), slots, hash_value
            )

    @pytest.mark.parametrize(
        ("place", "value"),
        [(0, -1), (4, 0), (16, 3), (16, 9), (16, -1)],
        ids=["hash", "offset that falls", "itself", "upwards", "negative"],
    )
    def test_a_bad_field_is_found(self, place: int, value: int) -> None:
        content = bytearray(oracles.index_image(["a"] * 5, 1).to_bytes())
        size = 8 if place == 4 else 4
        content[44 + 60 + place : 44 + 60 + place + size] = oracles.packed(value, size)
        assert check_more(bytes(content), 1, 2, 5) in (3, 4)
