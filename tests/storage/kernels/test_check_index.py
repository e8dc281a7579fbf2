"""What is wrong with an index file, against loops: counts by majority, slots and pointers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kernel_memory import Bytes
from storage.kernels import indexes
from strategies import KEYS

SLOTS = 7


key_lists = st.lists(st.sampled_from(KEYS), min_size=1, max_size=25)


# --- counts ---------------------------------------------------------------------------------------------------------


# --- slots and pointers ---------------------------------------------------------------------------------------------


def check_pointers(data: bytes, slots: int, entries: int, **options: Any) -> tuple[int, list[list[int]], int]:
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


class TestCheckPointers:
    @settings(max_examples=examples(50))
    @given(key_lists, st.sampled_from([1, 2, 7]), st.integers(0, 5), st.data())
    def test_what_is_wrong_is_what_a_loop_finds(
        self, keys: list[str], slots: int, room: int, data: st.DataObject
    ) -> None:
        content = bytearray(oracles.index_image(keys, slots).to_bytes())
        for _ in range(data.draw(st.integers(0, 4))):
            content[data.draw(st.integers(40, 40 + 4 * slots + 20 * len(keys) + 19))] = data.draw(st.integers(0, 255))
        fixed = data.draw(st.dictionaries(st.integers(1, len(keys)), st.integers(0, 2**31 - 1), max_size=3))
        expected = wrong_by_loop(bytes(content), slots, len(keys), fixed)
        wrong, rows, used = check_pointers(bytes(content), slots, len(keys), fixed=fixed, room=room)
        assert wrong == len(expected)
        assert rows[:room] == expected[:room]
        hashes = [
            fixed.get(number, oracles.signed(bytes(content), 40 + 4 * slots + 20 * number, 4))
            for number in range(1, len(keys) + 1)
        ]
        assert used == len({key_hash % slots for key_hash in hashes if key_hash >= 0})

    @given(key_lists, st.integers(1, 24))
    def test_slots_of_a_file_that_grows_may_be_ahead(self, keys: list[str], known: int) -> None:
        known = min(known, len(keys))
        data = oracles.index_image(keys).to_bytes()
        assert check_pointers(data, SLOTS, known, written=len(keys))[0] == 0

    @pytest.mark.parametrize("pointer", [3, 4, 9])
    def test_a_way_down_that_leads_up_is_wrong(self, pointer: int) -> None:
        data = bytearray(oracles.index_image(["a", "a", "a", "a"], 1).to_bytes())
        data[44 + 20 * 4 + 16 : 44 + 20 * 5] = oracles.packed(pointer, 4)
        wrong = list(rows_of(check_pointers(bytes(data), 1, 2, written=4)))
        assert wrong == ([] if pointer == 3 else [[indexes.BAD_SLOT, 0, 2, 4]])


def rows_of(found: tuple[int, list[list[int]], int]) -> Iterator[list[int]]:
    yield from found[1]
