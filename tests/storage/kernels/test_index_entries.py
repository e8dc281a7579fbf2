"""Entries on their way into a compacted index, against loops over lists: checked, and dealt out to cells."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kernel_memory import Bytes
from storage.kernels import index_entries as kernel
from strategies import KEYS

SLOTS = 7


def entry_bytes(entries: Sequence[tuple[int, int, int, int]]) -> bytes:
    return b"".join(
        oracles.packed(value, size) for entry in entries for value, size in zip(entry, (4, 8, 4, 4), strict=True)
    )


key_lists = st.lists(st.sampled_from(KEYS), min_size=1, max_size=20)


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


class TestDealEntries:
    """Cells may have holes between them; what lies in none of them is counted by why."""

    @settings(max_examples=examples(60))
    @given(
        st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30)), min_size=1, max_size=5),
        st.integers(0, 1000),
        st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(-20, 400)), max_size=20),
        st.data(),
    )
    def test_entries_go_to_the_cells_they_lie_in_and_keep_their_order(
        self, cells: list[tuple[int, int]], start: int, drawn: list[tuple[int, int]], data: st.DataObject
    ) -> None:
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
        expected = [
            (key_hash, offset - low) for (low, _), of in zip(bounds, inside, strict=True) for key_hash, offset in of
        ]
        count = len(expected)
        assert list(zip(dealt.hashes[:count].tolist(), dealt.positions[:count].tolist(), strict=True)) == expected


def deal(entries: Sequence[tuple[int, int]], bounds: Sequence[tuple[int, int]]) -> kernel.Dealt:
    held = Bytes(entry_bytes([(key_hash, offset, 0, 0) for key_hash, offset in entries]))
    starts, ends = (np.array(column, np.int64) for column in zip(*bounds, strict=True))
    return kernel.deal_entries(held.region, starts, ends)


# --- records at positions -------------------------------------------------------------------------------------------
