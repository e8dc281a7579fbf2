"""Entries on their way into a compacted index, against loops over lists: dealt out to cells, held against records."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from compact_oracle import tag_hashes
from examples import examples
from kernel_memory import Bytes, segment_at
from storage.kernels import index_entries as kernel
from strategies import KEYS, TAGS

SLOTS = 7
BASE = 4096


def image_of(keys: Sequence[str], slots: int = SLOTS) -> oracles.IndexImage:
    image = oracles.IndexImage(slots, 30)
    for number, key in enumerate(keys):
        image.put(f"T#{key}", 100 * number, 1_700_000_000_000)
    return image


def entry_bytes(entries: Sequence[tuple[int, int, int, int]]) -> bytes:
    return b"".join(
        oracles.packed(value, size) for entry in entries for value, size in zip(entry, (4, 8, 4, 4), strict=True)
    )


key_lists = st.lists(st.sampled_from(KEYS), min_size=1, max_size=20)


class TestCheckEntries:
    @given(key_lists, st.sampled_from([1, 2, 7, 97]), st.integers(1, 21))
    def test_a_sound_file_is_so_in_portions_of_any_size(self, keys: list[str], slots: int, at_once: int) -> None:
        image = image_of(keys, slots)
        held, heads = entry_bytes(image.entries), np.zeros(slots, np.int32)
        for number in range(0, len(keys), at_once):
            count = min(at_once, len(keys) - number)
            part = Bytes(held[20 * number : 20 * (number + count)])
            assert kernel.check_entries(part.region, number + 1, heads) == 0
        assert heads.tolist() == [image.slots.get(slot, 0) for slot in range(slots)]

    @given(key_lists, st.data())
    def test_damage_is_found_where_the_oracle_finds_it(self, keys: list[str], data: st.DataObject) -> None:
        image = bytearray(image_of(keys).to_bytes())
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

messages = st.fixed_dictionaries(
    {
        "keys": st.none() | st.lists(st.sampled_from(KEYS), max_size=3).map(" ".join),
        "unique_key": st.none() | st.sampled_from(["u1", "T#TagA"]),
        "tags": st.sampled_from(TAGS),
        "topic_bytes": st.sampled_from([b"TopicTest", b"AaTopic", "主题".encode()]),
        "body": st.binary(max_size=40),
        "store_timestamp": st.integers(-5, 2**40),
        "sys_flag": st.sampled_from([0, 0, 0x10, 0x20, 12]),
    }
)


class Window:
    """A part of a segment in memory, of which [start, start + filled) is shown, and records end at `limit`."""

    def __init__(self, data: bytes, start: int, filled: int, limit: int) -> None:
        self.data, self.start, self.limit = data, start, limit
        self.memory = Bytes(data[start : start + filled])
        self.filled = self.memory.length

    def heads(self, positions: Sequence[int]) -> tuple[int, list[int], list[int]]:
        """What `read_heads` says: where it stopped, fates and times."""
        fates, times = np.full(len(positions), 9, np.uint8), np.zeros(len(positions), np.int64)
        stopped = kernel.read_heads(
            self.memory.region, self.start, self.filled, self.limit, BASE, np.array(positions, np.int64), 0, fates,
            times,
        )  # fmt: skip
        return stopped, fates.tolist(), times.tolist()

    def records(
        self, positions: Sequence[int], topics: Sequence[bytes], *, tags: bool
    ) -> tuple[int, list[int], list[int], list[int]]:
        """What `read_records` says: where it stopped, fates, times, hashes of tags."""
        fates, times = np.full(len(positions), 9, np.uint8), np.zeros(len(positions), np.int64)
        tag_entries = np.full(len(positions), -9, np.int64)
        stopped = kernel.read_records(
            self.memory.region, self.start, self.filled, self.limit, BASE, np.array(positions, np.int64), 0,
            tuple(topics), tags, fates, times, tag_entries,
        )  # fmt: skip
        return stopped, fates.tolist(), times.tolist(), tag_entries.tolist()


def says_a_size(data: bytes, position: int, limit: int) -> int:
    """What the first bytes announce there, if they are a record's of that offset; else 0."""
    if position + 91 > limit:
        return 0
    size, magic = oracles.signed(data, position, 4), oracles.signed(data, position + 4, 4) % 2**32
    own = oracles.signed(data, position + 28, 8)
    is_one = magic in (oracles.V1_MAGIC, oracles.V2_MAGIC) and own == BASE + position and 91 <= size <= limit - position
    return size if is_one else 0


def damaged(segment: bytes, data: st.DataObject) -> bytes:
    content = bytearray(segment)
    for _ in range(data.draw(st.integers(0, 2), "damaged bytes")):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    return bytes(content)


class TestReadRecords:
    @settings(max_examples=examples(12))
    @given(
        st.lists(messages, min_size=1, max_size=5),
        st.lists(st.sampled_from([b"TopicTest", "主题".encode(), b"Topic", b"None"]), unique=True, max_size=3),
        st.booleans(),
        st.data(),
    )
    def test_fates_times_and_tags_are_those_of_whole_records(
        self, drawn: list[dict[str, Any]], topics: list[bytes], tags: bool, data: st.DataObject
    ) -> None:
        segment, starts = segment_at(BASE, *drawn)
        segment = damaged(segment, data)
        positions = sorted(data.draw(st.sets(st.sampled_from(starts) | st.integers(0, len(segment) + 50), min_size=1)))
        limit = data.draw(st.sampled_from([len(segment), len(segment) // 2]))
        window = Window(segment, 0, data.draw(st.sampled_from([len(segment), len(segment) // 2, 120])), limit)
        window.filled = min(window.filled, len(segment))
        expected: list[tuple[int, int, int]] = []
        for position in positions:
            size = says_a_size(segment, position, limit)
            if position + 91 <= limit and (position + 91 > window.filled or position + size > window.filled):
                break
            record = oracles.read_record(segment[:limit], position, BASE + position, check_crc=False)
            if record is None or not size or record.total_size != size:
                expected.append((kernel.NO_RECORD, 0, -9))
                continue
            (tag,) = tag_hashes(record) or {-1}
            fate = kernel.LEFT_OUT if record.topic_bytes in topics else kernel.KEEP
            expected.append((fate, record.store_timestamp, tag if tags else -1))
        stopped, *columns = window.records(positions, topics, tags=tags)
        assert stopped == len(expected)
        assert list(zip(*columns, strict=True))[:stopped] == expected

    @pytest.mark.parametrize("topics", [[b"Topic"], [b"TopicTest2"], [b"opicTest"], [b"Topi", b"cTest"], [b"", b"X"]])
    def test_a_part_of_a_topic_is_another_one(self, topics: list[bytes]) -> None:
        segment, positions = segment_at(BASE, {"keys": "a"})
        _, fates, _, _ = Window(segment, 0, len(segment), len(segment)).records(positions, topics, tags=False)
        assert fates == [kernel.KEEP]


class TestDoors:
    """What does not fit is refused before anything is read."""

    @pytest.mark.parametrize("position", [2**63 - 1, 2**63 - 50, -(2**63), 201])
    def test_positions_far_outside_are_no_records(self, position: int) -> None:
        stopped, _, _ = Window(bytes(200), 0, 200, 200).heads([position])
        assert stopped == (0 if position < 0 else 1)
