"""Walking and scanning a segment against the oracle that reads it record by record."""

from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from kernel_memory import Bytes, record_at, segment_at
from storage.kernels.scan import (
    AT_BLANK,
    AT_DAMAGE,
    AT_LIMIT,
    MAXIMUM_PIECES,
    OUTPUT_FULL,
    find_record,
    find_record_backwards,
    scan_keys,
    walk_records,
)

BASE = 1 << 32


segment = partial(segment_at, BASE)


def scan(
    data: bytes, position: int = 0, stop: int | None = None, room: int = 1000
) -> tuple[int, int, set[tuple[int, int]]]:
    held = Bytes(data)
    hashes, offsets = np.zeros(room + MAXIMUM_PIECES, np.int32), np.zeros(room + MAXIMUM_PIECES, np.int64)
    result = np.zeros(4, np.int64)
    reached = scan_keys(
        held.address, position, len(data) if stop is None else stop, len(data), BASE, BASE + len(data), hashes, offsets,
        result,
    )  # fmt: skip
    count = int(result[1])
    pairs = zip(hashes[:count].tolist(), offsets[:count].tolist(), strict=True)
    return int(reached), int(result[0]), set(pairs)


changes = st.fixed_dictionaries(
    {
        "keys": st.sampled_from([None, "a", "a a b", " ", "ключ 🔑"]),
        "unique_key": st.sampled_from([None, "U1", "Aa"]),
        "tags": st.sampled_from([None, "TagA", "标签"]),
        "sys_flag": st.sampled_from([0, 4, 8, 12, 0x30]),
        "body": st.binary(max_size=10),
    }
)


class TestScanKeys:
    @settings(max_examples=60)
    @given(st.lists(changes, max_size=8))
    def test_every_record_is_found_under_what_a_broker_indexes(self, plan: list[dict[str, object]]) -> None:
        data, _ = segment(*plan)
        reached, why, pairs = scan(data)
        expected = {
            (oracles.index_hash(text), record.physical_offset)
            for record in oracles.scan_segment(data, BASE)
            for text in oracles.index_keys(record)
        }
        assert (reached, why) == (len(data), AT_LIMIT)
        assert pairs == expected

    def test_a_scan_ends_at_damage_and_says_so(self) -> None:
        data, positions = segment({"keys": "a"}, {"keys": "b"}, {"keys": "c"})
        damaged = data[: positions[1] + 4] + b"\0\0\0\0" + data[positions[1] + 8 :]
        assert scan(damaged)[:2] == (positions[1], AT_DAMAGE)

    def test_a_scan_ends_at_a_blank(self) -> None:
        data, _ = segment({"keys": "a"})
        blank = data + (100).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big") + bytes(92)
        assert scan(blank)[:2] == (len(data), AT_BLANK)

    def test_records_that_start_before_the_stop_are_read_whole(self) -> None:
        data, positions = segment({"keys": "a"}, {"keys": "b"})
        reached, _, pairs = scan(data, stop=1)
        assert reached == positions[1]
        assert {offset for _, offset in pairs} == {BASE}

    def test_a_full_output_ends_before_the_next_record(self) -> None:
        data, positions = segment(*({"keys": "a b c"} for _ in range(4)))
        reached, why, pairs = scan(data, room=2)
        assert (reached, why) == (positions[1], OUTPUT_FULL)
        assert len(pairs) == 3


class TestWalkRecords:
    @settings(max_examples=40)
    @given(st.lists(changes, min_size=1, max_size=6), st.data())
    def test_a_walk_ends_where_the_oracle_finds_no_record(
        self, plan: list[dict[str, object]], data: st.DataObject
    ) -> None:
        whole, _ = segment(*plan)
        cut = data.draw(st.integers(0, len(whole)))
        torn = whole[:cut] + bytes(len(whole) - cut + 200)
        result = np.zeros(4, np.int64)
        held = Bytes(torn)
        end = walk_records(held.address, 0, len(torn), BASE, BASE + len(torn), True, result)
        records = list(oracles.scan_segment(torn, BASE))
        assert end == sum(record.total_size for record in records)
        assert result[1] == len(records)

    def test_checksums_are_looked_at_only_when_asked(self) -> None:
        data, positions = segment({}, {"crc": 1}, {})
        result = np.zeros(4, np.int64)
        held = Bytes(data)
        place = held.address, 0, len(data), BASE, BASE + len(data)
        assert walk_records(*place, False, result) == len(data)
        assert walk_records(*place, True, result) == positions[1]
        assert result[0] == AT_DAMAGE


class TestFindRecord:
    def test_the_next_intact_record_is_found_behind_damage(self) -> None:
        data, positions = segment({}, {"crc": 1}, {})
        held = Bytes(data)
        assert find_record(held.address, 0, len(data), BASE) == 0
        assert find_record(held.address, 1, len(data), BASE) == positions[2]
        assert find_record(held.address, positions[2] + 1, len(data), BASE) == len(data)

    def test_a_record_that_states_another_offset_is_not_taken(self) -> None:
        stray = record_at(BASE + 5)
        held = Bytes(stray)
        assert find_record(held.address, 0, len(stray), BASE) == len(stray)

    def test_the_last_record_before_a_position_is_found(self) -> None:
        data, positions = segment({}, {}, {})
        held = Bytes(data)
        assert find_record_backwards(held.address, positions[2] + 50, BASE) == positions[2]
        assert find_record_backwards(held.address, positions[2], BASE) == positions[1]
        assert find_record_backwards(held.address, 0, BASE) == -1
