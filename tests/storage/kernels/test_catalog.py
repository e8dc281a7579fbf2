"""The table of segments: which one holds an offset, and whether an intact record starts there."""

import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from kernel_memory import KernelStore, record_at
from storage.kernels import catalog as table
from storage.kernels import record as codes
from storage.kernels.catalog import check_record, find_segment, segment_is_hot

TICK = 1000


@st.composite
def segment_lists(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """Segments of any size, with holes between some; base offsets ascend and nothing overlaps."""
    segments, base = [], draw(st.integers(0, 2**62))
    for _ in range(draw(st.integers(0, 6))):
        size = draw(st.integers(1, 40))
        segments.append((base, bytes(size)))
        base += size + draw(st.sampled_from([0, 0, 0, 7, 1000]))
    return segments


def segment_of(segments: list[tuple[int, bytes]], offset: int) -> int:
    """The row of the segment that holds an offset, by looking at each; −1 for none."""
    numbers = [number for number, (base, data) in enumerate(segments) if base <= offset < base + len(data)]
    return table.HEADER + table.SEGMENT_ROW * numbers[0] if numbers else -1


class TestFindSegment:
    @given(segment_lists(), st.integers(-5, 60), st.data())
    def test_any_offset_is_found_where_looking_at_each_segment_finds_it(
        self, segments: list[tuple[int, bytes]], distance: int, data: st.DataObject
    ) -> None:
        store = KernelStore(segments)
        base = data.draw(st.sampled_from([base for base, _ in segments])) if segments else 0
        assert find_segment(store.catalog, base + distance) == segment_of(segments, base + distance)

    @given(st.integers(1, 5), st.integers(1, 50), st.integers(0, 2**62), st.integers(-60, 300))
    def test_segments_of_one_size_are_found_by_division(self, count: int, size: int, base: int, distance: int) -> None:
        segments = [(base + number * size, bytes(size)) for number in range(count)]
        store = KernelStore(segments)
        store.catalog[table.SEGMENT_SIZE] = size
        assert find_segment(store.catalog, base + distance) == segment_of(segments, base + distance)

    @pytest.mark.parametrize("offset", [-(2**63), -1, 0, 2**63 - 1])
    def test_an_empty_log_holds_no_offset(self, offset: int) -> None:
        assert find_segment(KernelStore([]).catalog, offset) == -1

    @pytest.mark.parametrize("size", [0, 10])
    def test_bytes_behind_the_valid_part_are_in_no_segment(self, size: int) -> None:
        store = KernelStore([(0, bytes(10)), (10, bytes(10))])
        store.catalog[table.SEGMENT_SIZE] = size
        store.catalog[table.HEADER + table.SEGMENT_ROW + table.VALID_LENGTH] = 4
        assert find_segment(store.catalog, 13) == table.HEADER + table.SEGMENT_ROW
        assert find_segment(store.catalog, 14) == -1
        assert find_segment(store.catalog, 2**63 - 1) == -1


class TestCheckRecord:
    @given(st.data())
    def test_a_record_is_found_exactly_where_the_oracle_reads_one(self, data: st.DataObject) -> None:
        base = 1 << 40
        whole = bytearray()
        for _ in range(3):
            whole += record_at(base + len(whole), keys="a", body=data.draw(st.binary(max_size=9)))
        for _ in range(data.draw(st.integers(0, 2))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        store = KernelStore([(base - 100, bytes(100)), (base, bytes(whole))])
        for position in range(len(whole)):
            expected = oracles.read_record(bytes(whole), position, base + position)
            found = check_record(store.catalog, base + position, 0)
            assert max(found, 0) == (1 << 32 | expected.total_size if expected else 0)

    def test_codes_name_the_reason(self) -> None:
        data = record_at(0, crc=1)
        store = KernelStore([(0, data)])
        assert check_record(store.catalog, 0, 0) == codes.BAD_BODY_CRC
        assert check_record(store.catalog, 1, 0) == codes.BAD_MAGIC
        assert check_record(store.catalog, len(data), 0) == codes.NO_SEGMENT
        assert check_record(store.catalog, -1, 0) == codes.NO_SEGMENT

    def test_pages_that_are_not_in_memory_are_not_read(self) -> None:
        data = record_at(0, body=bytes(200_000))
        with tempfile.TemporaryFile() as short:  # as short as it is, every probe comes back short, as over cold pages
            store = KernelStore([(0, data)], descriptor=short.fileno())
            row = table.HEADER
            assert not segment_is_hot(store.catalog, row, 0, 64, TICK)
            assert check_record(store.catalog, 0, TICK) == codes.COLD
            assert check_record(store.catalog, 0, 0) == len(data)

    def test_a_cold_body_behind_a_hot_head_is_cold(self) -> None:
        data = record_at(0, body=bytes(200_000))
        with tempfile.TemporaryFile() as short:
            store = KernelStore([(0, data)], descriptor=short.fileno())
            store._heat[0][0] = TICK
            assert segment_is_hot(store.catalog, table.HEADER, 0, 64, TICK)
            assert check_record(store.catalog, 0, TICK) == codes.COLD
            store._heat[0][:] = TICK
            assert check_record(store.catalog, 0, TICK) == len(data)


def test_a_catalog_is_one_array_of_the_stated_shape() -> None:
    store = KernelStore([(0, bytes(8)), (8, bytes(8))])
    assert store.catalog.dtype == np.int64
    assert store.catalog.shape == (table.HEADER + 2 * table.SEGMENT_ROW,)
