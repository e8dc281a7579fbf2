"""Keys scanned from the log where no index file covers it, against the oracle that reads every record."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from storage import tail_index as module
from storage.commit_log import CommitLog
from storage.kernels.scan import MAXIMUM_PIECES
from storage.tail_index import TailIndex, empty_tail, extend_tail, merge_candidates
from store_writer import StoreWriter
from strategies import StorePlan, store_plans

EVERYTHING = 2**62


def filled(root: Path, count: int = 40, segment_size: int = 1024) -> StoreWriter:
    writer = StoreWriter(root, segment_size=segment_size)
    for number in range(count):
        writer.append("T", b"x" * 20, keys=f"k{number} a a", unique_key=f"u{number}", tags="t")
    writer.close()
    return writer


def log_of(writer: StoreWriter) -> CommitLog:
    return CommitLog.open(writer.log.directories)


def pairs(tail: TailIndex) -> set[tuple[int, int]]:
    return set(zip(tail.hashes.tolist(), tail.offsets.tolist(), strict=True))


def expected_pairs(writer: StoreWriter, start: int = 0, stop: int = EVERYTHING) -> set[tuple[int, int]]:
    return {
        (oracles.index_hash(text), record.physical_offset)
        for record in writer.records
        if start <= record.physical_offset < stop
        for text in oracles.index_keys(record)
    }


class TestScanning:
    def test_a_tail_that_scanned_nothing_knows_what_is_left(self) -> None:
        tail = empty_tail([(0, 100), (500, 600)])
        assert (tail.hashes.size, tail.offsets.size, tail.skipped) == (0, 0, ())
        assert tail.remaining_bytes == 200

    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(plan=store_plans(maximum_messages=15))
    def test_a_whole_log_is_found_under_what_a_broker_indexes(
        self, plan: StorePlan, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        writer = plan.write(tmp_path_factory.mktemp("scan"))
        if not writer.written:
            return
        log = log_of(writer)
        tail = extend_tail(empty_tail([(log.minimum, log.end)]), log, EVERYTHING)
        assert pairs(tail) == expected_pairs(writer)
        assert (tail.remaining, tail.skipped) == ((), ())
        order = list(zip(tail.hashes.tolist(), tail.offsets.tolist(), strict=True))
        assert order == sorted(order)

    def test_records_that_start_in_a_range_are_scanned_and_no_others(self, tmp_path: Path) -> None:
        writer = filled(tmp_path)
        at = [written.physical_offset for written in writer.written]
        for start, stop in ((at[3], at[5]), (at[3], at[5] + 1), (at[0], at[39]), (at[20], at[20] + 1)):
            tail = extend_tail(empty_tail([(start, stop)]), log_of(writer), EVERYTHING)
            assert pairs(tail) == expected_pairs(writer, start, stop)
            assert tail.remaining == ()

    def test_several_ranges_are_scanned(self, tmp_path: Path) -> None:
        writer = filled(tmp_path)
        at = [written.physical_offset for written in writer.written]
        ranges = [(at[1], at[3]), (at[3], at[4] + 1), (at[30], writer.log.end)]
        tail = extend_tail(empty_tail(ranges), log_of(writer), EVERYTHING)
        assert pairs(tail) == {pair for start, stop in ranges for pair in expected_pairs(writer, start, stop)}

    def test_a_hole_in_the_log_is_passed_over(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=1024)
        writer.append("T", keys="a")
        writer.skip_segments(5)
        writer.append("T", keys="b")
        writer.close()
        for budget in (1, 100, EVERYTHING):
            tail, log = empty_tail([(0, writer.log.end)]), log_of(writer)
            while tail.remaining:
                tail = extend_tail(tail, log, budget)
            assert pairs(tail) == expected_pairs(writer)
            assert tail.skipped == ()

    def test_an_empty_log_has_no_keys(self) -> None:
        tail = extend_tail(empty_tail([(0, 100)]), CommitLog([], []), EVERYTHING)
        assert (pairs(tail), tail.remaining) == (set(), ())


class TestBudget:
    @pytest.mark.parametrize("budget", [1, 60, 100, 500, 1024, 5000])
    def test_a_scan_in_steps_finds_what_one_in_a_go_finds(self, tmp_path: Path, budget: int) -> None:
        writer = filled(tmp_path)
        log = log_of(writer)
        tail, steps = empty_tail([(0, writer.log.end)]), 0
        while tail.remaining:
            before = tail.remaining_bytes
            tail = extend_tail(tail, log, budget)
            assert tail.remaining_bytes < before
            steps += 1
        assert steps <= writer.log.end // budget + 1
        assert pairs(tail) == expected_pairs(writer)
        assert len(tail.hashes) == len(expected_pairs(writer))

    @pytest.mark.parametrize("budget", [0, -5])
    def test_no_budget_scans_nothing(self, tmp_path: Path, budget: int) -> None:
        writer = filled(tmp_path)
        tail = extend_tail(empty_tail([(0, 500)]), log_of(writer), budget)
        assert (tail.hashes.size, tail.remaining) == (0, ((0, 500),))

    def test_a_full_output_is_emptied_and_the_scan_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "OUTPUT_ENTRIES", 3)
        writer = filled(tmp_path)
        tail = extend_tail(empty_tail([(0, writer.log.end)]), log_of(writer), EVERYTHING)
        assert pairs(tail) == expected_pairs(writer)

    def test_a_record_with_more_keys_than_fit_a_block_is_noted_whole(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=1 << 17)
        keys = " ".join(chr(0x21 + number % 90) for number in range(16_000))
        writer.append("T", keys=keys)
        writer.append("T", keys="last")
        writer.close()
        assert len(keys) < MAXIMUM_PIECES
        tail = extend_tail(empty_tail([(0, writer.log.end)]), log_of(writer), EVERYTHING)
        assert pairs(tail) == expected_pairs(writer)


class TestDamage:
    def test_damage_is_stepped_over_and_named(self, tmp_path: Path) -> None:
        writer = filled(tmp_path, segment_size=8192)
        lost = writer.written[10:12]
        for written in lost:
            writer.overwrite(written.physical_offset, bytes(written.size))
        writer.roll()
        writer.append("T", keys="after")
        log = log_of(writer)
        tail = extend_tail(empty_tail([(0, log.end)]), log, EVERYTHING)
        assert pairs(tail) == expected_pairs(writer)
        assert tail.skipped == ((lost[0].physical_offset, lost[1].physical_offset + lost[1].size),)

    def test_a_damaged_rest_of_a_segment_is_named_up_to_its_end(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=1024)
        first = writer.append("T", keys="a")
        lost = writer.append("T", keys="b")
        writer.overwrite(lost.physical_offset, b"\xff" * (1024 - lost.physical_offset))
        writer.log.end = 1024
        writer.append("T", keys="c")
        writer.close()
        log = log_of(writer)
        tail = extend_tail(empty_tail([(0, log.end)]), log, EVERYTHING)
        assert tail.skipped == ((first.size, 1024),)
        assert pairs(tail) == expected_pairs(writer)

    def test_a_range_that_starts_inside_a_record_goes_on_with_the_next(self, tmp_path: Path) -> None:
        writer = filled(tmp_path)
        at = [written.physical_offset for written in writer.written]
        tail = extend_tail(empty_tail([(at[3] + 5, at[6])]), log_of(writer), EVERYTHING)
        assert pairs(tail) == expected_pairs(writer, at[4], at[6])

    def test_a_record_with_a_wrong_checksum_is_noted_for_its_keys_may_be_sound(self, tmp_path: Path) -> None:
        """Whether it is served is decided when it is asked for."""
        writer = StoreWriter(tmp_path, segment_size=1024)
        writer.append("T", b"bad", keys="a", body_crc=1)
        writer.roll()
        writer.append("T", keys="b")
        writer.close()
        log = log_of(writer)
        tail = extend_tail(empty_tail([(0, log.end)]), log, EVERYTHING)
        assert (oracles.index_hash("T#a"), 0) in pairs(tail)
        assert tail.skipped == ()

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_any_damage_hides_only_what_it_hit(
        self, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        writer = filled(tmp_path_factory.mktemp("damage"), 12, 4096)
        writer.roll()
        writer.append("T", keys="in the last segment")
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, writer.written[11].physical_offset + 50))
            writer.overwrite(place, data.draw(st.binary(min_size=1, max_size=12)))
        log = log_of(writer)
        tail = extend_tail(empty_tail([(0, log.end)]), log, EVERYTHING)
        assert pairs(tail) >= expected_pairs(writer)


class TestCandidates:
    def test_candidates_join_what_is_known_of_a_hash_once_each_in_order(self, tmp_path: Path) -> None:
        writer = filled(tmp_path)
        tail = extend_tail(empty_tail([(0, writer.log.end)]), log_of(writer), EVERYTHING)
        hashed = oracles.index_hash("T#a")
        known = [written.physical_offset for written in writer.written]
        merged = merge_candidates(tail, hashed, np.array([known[2], 7, 10**9, 7]))
        assert merged.offsets.tolist() == sorted({*known, 7, 10**9})
        assert set(merged.hashes.tolist()) == {hashed}
        assert merged.remaining == tail.remaining

    @pytest.mark.parametrize("key_hash", [0, 2**31 - 1])
    def test_hashes_at_both_ends_have_candidates_too(self, key_hash: int) -> None:
        tail = TailIndex(np.array([0, 5, 2**31 - 1], np.int32), np.array([1, 2, 3], np.int64))
        merged = merge_candidates(tail, key_hash, np.zeros(0, np.int64))
        assert merged.offsets.tolist() == [1 if key_hash == 0 else 3]
