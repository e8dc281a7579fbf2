"""The log as one stream: segments, reading, taking over maps, recorded logs."""

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import oracles
from golden_store import GOLDEN, log_folders, unpack
from kernel_memory import headers_in_one_another, record_at
from small_logs import G2, SEGMENT, fill, opened
from storage.files.waiting import Unfinished, begin
from storage.kernels import records as codes
from storage.log.commit_log import CommitLog
from store_files import write_file
from store_writer import StoreWriter


class TestSegments:
    """ "Segments = union of commitlog dirs, sorted numerically; check adjacency; minimum = first name." """

    def test_a_hole_is_a_problem_and_holds_no_record(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 2)
        writer.skip_segments(3)
        after = writer.append("T", b"after")
        log = opened(writer)
        assert list(log.holes) == [(SEGMENT, 4 * SEGMENT)]
        assert log.problems == (f"hole in the log: no segment holds physical offsets {SEGMENT} to {4 * SEGMENT}",)
        assert log.segment_of(2 * SEGMENT) is None
        assert log.next_segment_start(2 * SEGMENT) == 4 * SEGMENT
        assert log.next_segment_start(4 * SEGMENT) is None
        assert log.record_at(after.physical_offset) == after.record

    def test_a_segment_that_overlaps_the_next_counts_up_to_it(self, tmp_path: Path) -> None:
        first, inner = record_at(0, body=bytes(100)), record_at(600)
        write_file(tmp_path / f"{0:020d}", 2048, {0: first, 600: record_at(600, body=b"hidden")})
        write_file(tmp_path / f"{600:020d}", 1024, {0: inner})
        log = CommitLog.open([tmp_path])
        assert bytes(log.record_at(600) or b"") == inner
        assert log.segments[0].end == 600
        assert any("the overlap is ignored" in problem for problem in log.problems)

    def test_foreign_files_are_named_and_ignored(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 2)
        writer.close()
        directory = tmp_path / "commitlog"
        (directory / "notes.txt").write_text("hello")
        (directory / f"{SEGMENT:020d}.bak").write_bytes(b"x")
        (directory / f"{SEGMENT:019d}").write_bytes(b"x")
        (directory / "lost+found").mkdir()
        log = CommitLog.open([directory])
        assert log.end == writer.log.end
        assert sorted(log.problems) == [
            f"{directory / name} is no segment and is ignored"
            for name in sorted(["notes.txt", f"{SEGMENT:020d}.bak", f"{SEGMENT:019d}"])
        ]

    @pytest.mark.parametrize("name", ["9" * 20, "09223372036854775807", "09223372036854775800"])
    @pytest.mark.parametrize("content", [b"\0", b"\xff"])
    def test_a_name_beyond_what_an_offset_can_be_is_no_segment(self, tmp_path: Path, name: str, content: bytes) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 2)
        writer.close()
        (tmp_path / "commitlog" / name).write_bytes(content * SEGMENT)
        log = CommitLog.open([tmp_path / "commitlog"])
        assert log.end == writer.log.end
        assert log.record_at(0) == writer.written[0].record
        assert [name in problem and "ignored" in problem for problem in log.problems] == [True]


class TestReading:
    @pytest.mark.parametrize("offset", [-1, -(2**63), -(2**64), 2**63, 2**70, 10**30])
    def test_offsets_that_no_log_has_hold_nothing(self, tmp_path: Path, offset: int) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 1)
        log = opened(writer)
        assert log.segment_of(offset) is None
        assert log.record(offset, 1) is None
        assert log.damaged_record_at(offset) is None
        assert log.check(offset) == codes.NO_SEGMENT

    def test_places_that_say_to_be_long_records_are_not_summed_up_again_and_again(self, tmp_path: Path) -> None:
        """Entries may lead to all of them, in any order; one by one it would be some 20 GB."""
        step, count, sound = 100, 20_000, record_at(0)
        log = headers_in_one_another(0, step, count)
        log[: len(sound)] = sound
        write_file(tmp_path / "0".zfill(20), len(log), {0: bytes(log)})
        commit_log = CommitLog.open([tmp_path])
        places = [step * number for number in range(count) if step * number >= len(sound)]
        random.Random(7).shuffle(places)
        whole = [replace(segment, valid_length=len(log)) for segment in commit_log.segments]
        commit_log = CommitLog(whole, ())
        assert {commit_log.check(place) for place in places} == {codes.BAD_BODY_CRC}
        assert commit_log.check(0) == len(sound)
        summed = sum(sums.summed for sums in commit_log._sums.values())
        assert codes.SUM_PATIENCE < summed < 2 * codes.SUM_PATIENCE + 2 * count * codes.SUM_STEP


class TestGolden:
    """Recorded logs of real brokers: every record is found, and the end is where the oracle stops reading."""

    @pytest.mark.parametrize("name", ["store", "store-crashed"])
    def test_the_recorded_log_is_read_whole(self, name: str, tmp_path: Path) -> None:
        self.check([unpack(name, tmp_path) / "commitlog"])

    @pytest.mark.parametrize("name", G2[::3])
    def test_the_logs_of_other_recorded_stores_are_read_whole(self, name: str, tmp_path: Path) -> None:
        root = unpack("store", tmp_path, archives=GOLDEN / "g2" / name)
        self.check(log_folders(root))

    def check(self, directories: list[Path]) -> None:
        records = oracles.read_log(directories)
        log = CommitLog.open(directories)
        assert len(records) > 20
        assert log.record_start(log.minimum) == records[0].physical_offset
        assert log.end == records[-1].physical_offset + records[-1].total_size
        assert log.problems == ()
        for record in records:
            found = log.record_at(record.physical_offset)
            assert found is not None
            assert len(found) == record.total_size
            assert log.store_timestamp_at(record.physical_offset, record.total_size) == record.store_timestamp


class TestCold:
    @pytest.mark.parametrize("look", ["record_at", "unchecked_record_at"])
    def test_what_is_cold_is_asked_for_and_then_there(
        self, tmp_path: Path, look: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = StoreWriter(tmp_path, segment_size=1 << 20)
        written = writer.append("T", bytes(200_000))
        log = opened(writer)
        view = log.view

        def cold_at_first(physical_offset: int, tick: int) -> memoryview | int:
            return codes.COLD if tick else getattr(view, look)(physical_offset, tick)

        monkeypatch.setattr(log, "view", SimpleNamespace(**{look: cold_at_first, "find_segment": view.find_segment}))
        step = begin(getattr(log, f"{look}_lookup")(0))
        assert isinstance(step, Unfinished)
        assert str(step.wait) == "physical offset 0 is cold"
        assert step.finish() == getattr(log, look)(0) == written.record
