"""What kernels see of a store: is a page in memory, which segment holds an offset, is an intact record there."""

import os
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from kernel_memory import HeldFile, KernelStore, record_at
from storage.files.mapped_file import MappedFile
from storage.kernels import records as codes
from storage.kernels.store_view import PROBE_BYTES, IndexFilesView, LogView, RunsView, StoreView, stay_alike

TICK = 1000


def found_size(found: memoryview | int) -> int:
    return found if isinstance(found, int) else len(found)


@st.composite
def segment_lists(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    segments, base = [], draw(st.integers(0, 2**62))
    for _ in range(draw(st.integers(0, 6))):
        size = draw(st.integers(1, 40))
        segments.append((base, bytes(size)))
        base += size + draw(st.sampled_from([0, 0, 0, 7, 1000]))
    return segments


def segment_of(segments: list[tuple[int, bytes]], offset: int) -> int:
    numbers = [number for number, (base, data) in enumerate(segments) if base <= offset < base + len(data)]
    return numbers[0] if numbers else -1


class TestHeat:
    def test_what_is_in_use_is_asked_for_again_after_sixteen_seconds(self, disk_path) -> None:
        path = disk_path / "file"
        path.write_bytes(bytes(PROBE_BYTES))
        descriptor = os.open(path, os.O_RDONLY)
        file = HeldFile(bytes(PROBE_BYTES), descriptor)
        assert file.is_hot(0, 10, 1000)
        os.close(descriptor)  # from now on, a new probe says that nothing is in memory
        assert [file.is_hot(0, 10, tick) for tick in range(1000, 1017)] == [True] * 17
        assert not file.is_hot(0, 10, 1017)

    def test_places_stay_alike_until_one_of_them_says_something_else(self, tmp_path) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"a mark, and at the end nothing\0\0\0")
        file = MappedFile.open(path)
        places: list[tuple[MappedFile, int, int, bytes]] = [
            (file, 0, 6, b"a mark"), (file, 30, 8, bytes(3)), (file, 99, 8, b""),
        ]  # fmt: skip
        assert stay_alike(places, 0, 1)
        assert stay_alike(places, 0.0001, 3)
        for changed in (b"A mark", b"a mark, and at the end nothing\0\1\0", b"a mark, and at the end nothing\0\0"):
            path.write_bytes(changed)
            assert not stay_alike(places, 0, 1)
        assert stay_alike([], 0, 1)
        for refused in ([places[0]] * 5, [(file, 0, 65, b"")], [(file, 0, -1, b"")]):
            with pytest.raises(ValueError, match="bytes of place"):
                stay_alike(refused, 0, 1)


class TestFindSegment:
    @given(segment_lists(), st.integers(-5, 60), st.data())
    def test_any_offset_is_found_where_looking_at_each_segment_finds_it(self, segments, distance, data) -> None:
        store = KernelStore(segments)
        base = data.draw(st.sampled_from([base for base, _ in segments])) if segments else 0
        assert store.log.find_segment(base + distance) == segment_of(segments, base + distance)

    @given(st.integers(1, 5), st.integers(1, 50), st.integers(0, 2**62), st.integers(-60, 300))
    def test_segments_of_one_size_are_found_by_division(self, count: int, size: int, base: int, distance: int) -> None:
        segments = [(base + number * size, bytes(size)) for number in range(count)]
        assert KernelStore(segments).log.find_segment(base + distance) == segment_of(segments, base + distance)


class TestRecords:
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
            found = store.log.record_at(base + position, 0)
            assert max(found_size(found), 0) == (expected.total_size if expected else 0)
            if not isinstance(found, int):
                assert found == whole[position : position + len(found)]

    def test_pages_that_are_not_in_memory_are_not_read(self) -> None:
        data = record_at(0, body=bytes(200_000))
        with tempfile.TemporaryFile() as short:  # as short as it is, every probe comes back short, as over cold pages
            store = KernelStore([(0, data)], descriptor=short.fileno())
            assert not store.segments[0].is_hot(0, 64, TICK)
            assert store.log.record_at(0, TICK) == codes.COLD
            assert store.log.record_at(0, 0) == data


def test_a_file_just_written_is_hot_and_remembered(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * PROBE_BYTES + 5))
    file = MappedFile.open(path)
    assert file.is_hot(0, file.size, 1000)
    heat, can_be_asked = file.heat, file.descriptor >= 0
    del file  # Under sanitizers a kernel writes to a copy, which is copied back when it is let go.
    if can_be_asked:
        assert heat.tolist() == [1000] * 4


def test_a_short_read_is_cold(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    descriptor = os.open(path, os.O_RDONLY)
    # The file is shorter than the map is said to be, so that the probe comes back short, as over cold pages.
    file = HeldFile(bytes(2 * PROBE_BYTES), descriptor)
    try:
        assert not file.is_hot(0, 10, 1000)
        assert not file.is_hot(0, 10_000, 1000)
    finally:
        os.close(descriptor)
    assert not file.heat.any()


def test_what_was_found_hot_is_not_asked_for_again_within_a_second() -> None:
    closed = os.open("/dev/null", os.O_RDONLY)
    os.close(closed)
    file = HeldFile(bytes(10), closed)
    file.heat[0] = 999
    assert file.is_hot(0, 10, 1000)
    assert not file.is_hot(0, 10, 1001)


@pytest.mark.parametrize("size", [9, 10])
def test_bytes_behind_the_valid_part_are_in_no_segment(size: int) -> None:
    log = KernelStore([(0, bytes(size)), (10, bytes(10))], valid=[size, 4]).log
    assert (log.find_segment(13), log.find_segment(14), log.find_segment(2**63 - 1)) == (1, -1, -1)
    grown = log.grown(5)
    assert (grown.find_segment(14), log.find_segment(14), len(grown)) == (1, -1, 2)


def test_parts_live_as_long_as_what_is_made_of_them() -> None:
    data = record_at(0)
    view = StoreView(LogView([(0, HeldFile(data), len(data))]), IndexFilesView(), RunsView())
    view = view.with_runs(RunsView([(np.array([7], np.int32), np.array([0], np.int64))]))
    assert view.log.record_at(0, 0) == data
