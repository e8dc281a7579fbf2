"""One record, walks and scans against the oracle that reads a segment record by record."""

from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kernel_memory import Bytes, headers_in_one_another, record_at, segment_at
from storage.kernels import records
from storage.kernels.records import (
    AT_DAMAGE,
    BAD_BODY_CRC,
    MAXIMUM_PIECES,
    OUTPUT_FULL,
    Sums,
    check_intact,
    check_shape,
    entry_hashes,
    find_candidate,
    find_intact_backwards,
    find_record,
    has_sane_texts,
    scan_keys,
    sort_entries,
    tag_entry_hash,
    walk_records,
)
from storage.kernels.region import Region

BASE = 1 << 32


segment = partial(segment_at, BASE)


def scan(
    data: bytes, position: int = 0, stop: int | None = None, room: int = 1000
) -> tuple[int, int, set[tuple[int, int]]]:
    held = Bytes(data)
    hashes, offsets = np.zeros(room + MAXIMUM_PIECES, np.int32), np.zeros(room + MAXIMUM_PIECES, np.int64)
    limit, boundary = len(data) if stop is None else stop, BASE + len(data)
    found = scan_keys(held.region, position, limit, len(data), BASE, boundary, hashes, offsets)
    pairs = zip(hashes[: found.entries].tolist(), offsets[: found.entries].tolist(), strict=True)
    return found.position, found.reason, set(pairs)


changes = st.fixed_dictionaries(
    {
        "keys": st.sampled_from([None, "a", "a a b", " ", "ключ 🔑"]),
        "unique_key": st.sampled_from([None, "U1", "Aa"]),
        "tags": st.sampled_from([None, "TagA", "标签"]),
        "sys_flag": st.sampled_from([0, 4, 8, 12, 0x30]),
        "body": st.binary(max_size=10),
    }
)


OFFSET = 4096


def packed(**changes: Any) -> bytes:
    return record_at(
        changes.pop("physical_offset", OFFSET), **{"keys": "a b", "unique_key": "U", "tags": "t", **changes}
    )


def shape(data: bytes, offset: int = OFFSET) -> int:
    return check_shape(Bytes(data).region, 0, len(data), offset)


def intact(data: bytes, offset: int = OFFSET) -> int:
    return check_intact(Bytes(data).region, 0, len(data), offset)


class TestCheck:
    @given(st.data())
    def test_damaged_records_are_judged_like_the_oracle(self, data: st.DataObject) -> None:
        record = bytearray(packed(body=data.draw(st.binary(max_size=20))))
        for _ in range(data.draw(st.integers(0, 3))):
            record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
        assert (intact(bytes(record)) > 0) == (oracles.read_record(bytes(record), 0, OFFSET) is not None)

    @given(st.binary(min_size=0, max_size=200))
    def test_random_bytes_are_judged_like_the_oracle(self, tail: bytes) -> None:
        data = (0).to_bytes(2, "big") + bytes([0, 120]) + (0xDAA320A7).to_bytes(4, "big") + tail
        assert (shape(data, -1) > 0) == (oracles.read_record(data, 0, check_crc=False) is not None)

    def test_a_cut_record_has_a_bad_size(self) -> None:
        assert shape(packed()[:-1]) == records.BAD_SIZE
        assert shape(b"") == records.BAD_SIZE

    def test_a_property_checksum_is_verified_over_everything_before_it(self) -> None:
        data = packed(property_crc=True)
        assert intact(data) == len(data)
        topic = data.index(b"TopicTest")
        assert intact(data[:topic] + b"X" + data[topic + 1 :]) == records.BAD_PROPERTY_CRC

    def test_digits_that_are_none_are_no_checksum(self) -> None:
        data = bytearray(packed(property_crc=True))
        topic = data.index(b"TopicTest")
        data[topic], data[-5] = ord("X"), ord("x")
        assert intact(bytes(data)) == len(data)


class TestProperties:
    @given(st.lists(st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"K", b"\x01", b"\x02", b"v", b"a b", b"", b"\0"])))
    def test_properties_are_found_by_the_brokers_parsing_rules(self, pieces: list[bytes]) -> None:
        data = packed(properties_bytes=b"".join(pieces))
        record = oracles.read_record(data, 0, OFFSET)
        assert record is not None
        found = entry_hashes(Bytes(data).region, 0, len(data))
        assert set(found) == {oracles.index_hash(text) for text in oracles.index_keys(record)}
        tag = oracles.parse_properties(oracles.decode_java(b"".join(pieces))).get("TAGS")
        expected = None if tag is None else oracles.index_hash(f"TopicTest#T#{tag}")
        assert tag_entry_hash(Bytes(data).region, 0, len(data)) == expected


class TestDoors:
    """Nothing outside a region is read, whatever is asked for."""

    def test_what_is_no_record_has_no_texts_and_no_entries(self) -> None:
        """It may have been one when it was looked at before."""
        region = Region(bytes(200))
        assert [ask(region, 0, 200) for ask in (has_sane_texts, tag_entry_hash, entry_hashes)] == [False, None, None]


class TestScanKeys:
    def test_a_full_output_ends_before_the_next_record(self) -> None:
        data, positions = segment(*({"keys": "a b c"} for _ in range(4)))
        reached, why, pairs = scan(data, room=2)
        assert (reached, why) == (positions[1], OUTPUT_FULL)
        assert len(pairs) == 3


class TestWalkRecords:
    def test_checksums_are_looked_at_only_when_asked(self) -> None:
        data, positions = segment({}, {"crc": 1}, {})
        place = Bytes(data).region, 0, len(data), BASE, BASE + len(data)
        assert walk_records(*place, False).position == len(data)
        walk = walk_records(*place, True)
        assert (walk.position, walk.reason, walk.code) == (positions[1], AT_DAMAGE, BAD_BODY_CRC)


class TestFindRecord:
    @given(st.binary(max_size=120), st.lists(changes, max_size=3))
    def test_a_candidate_is_what_has_magic_and_offset_of_a_record(
        self, noise: bytes, plan: list[dict[str, object]]
    ) -> None:
        data, _ = segment_at(BASE + len(noise), *plan)
        assert find_candidate(Bytes(noise + data).region, 0, len(noise + data), BASE) == (len(noise) if data else -1)


def nest(depth: int, offset: int, draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    """A record, sound or not, whose body has such records within, and filling around them."""
    if depth == 0:
        return draw(st.sampled_from([b"", b"filling", bytes(3000)]))  # type: ignore[no-any-return]
    front = draw(st.sampled_from([b"", b"\xda\xa3", bytes(1500), b"x" * 5000]))
    body = front + nest(depth - 1, offset + 88 + len(front), draw)
    body += nest(depth - 1, offset + 88 + len(body), draw) + draw(st.sampled_from([b"", b"behind" * 500]))
    changes: dict[str, Any] = draw(st.sampled_from([{}, {"crc": 1}, {"keys": "k"}, {"crc": 7, "keys": "k"}]))
    return record_at(offset, body=body, **changes)


class TestSums:
    @settings(max_examples=examples(12))
    @given(st.data())
    def test_the_same_is_found_whether_sums_are_kept_or_not(self, data: st.DataObject) -> None:
        log = nest(data.draw(st.integers(1, 4)), BASE, data.draw) + bytes(100)
        region, end = Region(log), len(log)
        kept, position = Sums(patience=-1), 0
        intact = [at for at in range(end) if check_intact(region, at, end, BASE + at) > 0]
        for at in [*intact, end]:
            assert find_record(region, position, end, BASE, kept) == find_record(region, position, end, BASE) == at
            walk = walk_records(region, position, end, BASE, BASE + end, True, kept)
            assert walk.records == walk_records(region, position, end, BASE, BASE + end, True).records
            assert find_intact_backwards(region, 0, at, end, BASE) == max((n for n in intact if n < at), default=-1)
            position = at + 1

    @pytest.mark.parametrize("magic", [records.MAGIC_V1, records.MAGIC_V2])
    def test_headers_in_one_another_are_not_summed_up_again_and_again(self, magic: int) -> None:
        step, count, size = 100, 20_000, 2_000_200
        log = headers_in_one_another(BASE, step, count, magic)
        sound = record_at(BASE + size)
        region, end = Region(bytes(log) + sound), size + len(sound)
        assert check_shape(region, step * (count // 2), end, -1) == size - step * (count // 2)
        sums = Sums()
        for position in range(step * (count - 1), -1, -step * 7):  # as entries may lead there, in any order
            assert check_intact(region, position, end, BASE + position, sums) == BAD_BODY_CRC
        assert check_intact(region, size, end, BASE + size, sums) == len(sound)
        assert sums.summed < 2 * records.SUM_PATIENCE + 2 * count * records.SUM_STEP + 3 * size
        sums = Sums()
        assert find_record(region, 0, end, BASE, sums) == size
        assert walk_records(region, 0, end, BASE, BASE + end, True, sums).code == BAD_BODY_CRC
        assert find_record(region, 1, end, BASE, sums) == size
        # Half of the step of each of the two ends of each body, twice; one by one it would be some 40 GB.
        assert sums.summed < 2 * records.SUM_PATIENCE + 2 * count * records.SUM_STEP + 3 * size


@given(
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1) | st.integers(0, 9), st.integers(0, 2**63 - 1) | st.integers(0, 9)),
        min_size=1,
    ),
    st.booleans(),
)
def test_entries_are_sorted_by_hash_and_then_by_offset(entries: list[tuple[int, int]], is_scanned: bool) -> None:
    asked = sorted(entries, key=lambda entry: entry[1]) if is_scanned else entries
    hashes, offsets = array("i", [hashed for hashed, _ in asked]), array("q", [offset for _, offset in asked])
    span = sort_entries(hashes, offsets)
    assert list(zip(hashes, offsets, strict=True)) == sorted(entries)
    assert (span.first, span.last) == (min(offsets), max(offsets))


def test_entries_that_do_not_belong_together_are_refused() -> None:
    for hashes, offsets in ((array("i", [1]), array("q", [1, 2])), (array("i"), array("q"))):
        with pytest.raises(ValueError, match=f"{len(hashes)} hashes of {len(offsets)} offsets"):
            sort_entries(hashes, offsets)
