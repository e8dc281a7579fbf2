"""Where a log's valid data end, whatever a crash left behind (store-format §6.4, §6.6)."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from small_logs import SEGMENT, fill, opened
from storage.files.mapped_file import FileIdentity
from storage.log import segment_end as module
from storage.log.commit_log import CommitLog
from store_files import write_file
from store_writer import START_TIMESTAMP, StoreWriter


class TestEnd:
    """ "End = first failure" in "the last segment whose first 8 bytes are not zero"."""

    @pytest.mark.parametrize("count", [1, 2, 4, 5, 9, 20])
    def test_a_clean_log_ends_behind_its_last_record(self, tmp_path: Path, count: int) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, count)
        log = opened(writer)
        assert (log.minimum, log.end) == (0, writer.log.end)
        assert log.end == writer.written[-1].physical_offset + writer.written[-1].size
        assert log.problems == ()

    def test_a_segment_made_in_advance_means_nothing(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 7)
        log = opened(writer, StoreWriter.crash)
        assert log.end == writer.log.end
        assert log.problems == ()

    def test_behind_a_blank_the_log_goes_on_in_the_segment_made_in_advance(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 2)
        writer.roll()
        writer.log.overwrite(SEGMENT, b"")  # comes into being, with nothing in it
        log = opened(writer)
        assert log.end == SEGMENT
        assert log.problems == ()

    def test_a_blank_at_the_very_end_is_where_the_log_ends(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 2)
        end = writer.log.end
        writer.roll()
        assert opened(writer).end == end

    def test_a_segment_with_nothing_but_a_blank_is_passed_over(self, tmp_path: Path) -> None:
        """Left by a record that is larger than a segment."""
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 2)
        writer.roll()
        writer.roll()
        after = writer.append("T", b"after")
        log = opened(writer)
        assert log.end == after.physical_offset + after.size
        assert log.record_at(after.physical_offset) == after.record
        assert log.problems == ()

    def test_a_blank_alone_in_the_last_segment_is_no_damage(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 2)
        writer.roll()
        writer.roll()
        log = opened(writer)
        assert log.end == SEGMENT
        assert log.problems == ()

    @pytest.mark.parametrize("kept", [1, 4, 8, 40, 90, 150])
    def test_a_torn_last_record_is_not_valid_data(self, tmp_path: Path, kept: int) -> None:  # killed inside memcpy
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 3)
        torn = writer.written[-1]
        writer.overwrite(torn.physical_offset, torn.record[:kept].ljust(torn.size, b"\0"))
        log = opened(writer)
        assert log.end == torn.physical_offset
        assert log.record_at(torn.physical_offset) is None
        assert log.record(torn.physical_offset, 1) is None

    def test_a_last_record_whose_body_does_not_match_its_crc_is_not_valid_data(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 2)
        end = writer.log.end
        writer.append("T", b"torn", body_crc=1)
        assert opened(writer).end == end

    def test_a_last_record_whose_properties_are_torn_is_caught_by_its_property_crc(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 2)
        torn = writer.append("T", b"body", keys="abc", property_crc=True)
        writer.overwrite(torn.physical_offset + torn.record.index(b"abc"), b"abd")
        assert opened(writer).end == torn.physical_offset

    def test_a_record_that_states_another_place_ends_the_log(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 2)
        end = writer.log.end
        writer.append("T", b"elsewhere", own_offset=5)
        assert opened(writer).end == end

    def test_old_records_behind_the_end_are_never_served(self, tmp_path: Path) -> None:
        """Truncation zeroes nothing: what was cut off is still there, well-formed, and older than what came since."""
        writer = StoreWriter(tmp_path, segment_size=8192)
        fill(writer, 5)
        stale = writer.written[3]
        writer.log.end = writer.written[0].size
        new = writer.append("T", b"written after the cut", keys="k", store_timestamp=START_TIMESTAMP + 60_000)
        log = opened(writer)
        assert log.end == new.physical_offset + new.size
        assert oracles.read_record(stale.record, 0, stale.physical_offset) is not None
        assert log.record_at(stale.physical_offset) is None
        assert log.store_timestamp_at(stale.physical_offset, stale.size) == -1

    def test_whole_old_segments_behind_a_cut_are_never_served(self, tmp_path: Path) -> None:
        """The last segment starts with a record that belongs elsewhere: the log ends in the one before."""
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 3)
        end = writer.log.end
        writer.roll()
        writer.append("T", b"of another log", own_offset=77)
        log = opened(writer)
        assert log.end == end or log.end == SEGMENT
        assert log.record_at(SEGMENT) is None
        assert any("starts with no record" in problem for problem in log.problems)

    def test_a_log_of_zeros_is_empty(self, tmp_path: Path) -> None:
        write_file(tmp_path / f"{0:020d}", SEGMENT, {})
        write_file(tmp_path / f"{SEGMENT:020d}", SEGMENT, {})
        log = CommitLog.open([tmp_path])
        assert (log.minimum, log.end) == (0, 0)
        assert log.record_at(0) is None

    def test_a_log_whose_first_segment_is_damaged_from_its_start_is_empty(self, tmp_path: Path) -> None:
        write_file(tmp_path / f"{4096:020d}", SEGMENT, {0: b"\xff" * 100})
        log = CommitLog.open([tmp_path])
        assert (log.minimum, log.end) == (4096, 4096)

    def test_damage_inside_an_earlier_segment_does_not_end_the_log(self, tmp_path: Path) -> None:
        """A page lost in a power cut: what follows in later segments is served."""
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 12)
        lost = writer.written[1]
        writer.overwrite(lost.physical_offset, bytes(lost.size))
        log = opened(writer)
        assert log.end == writer.log.end
        assert log.record_at(lost.physical_offset) is None
        for written in writer.written[2:]:
            assert log.record_at(written.physical_offset) == written.record

    @settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_a_log_cut_anywhere_ends_where_the_oracle_stops(
        self, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        root = tmp_path_factory.mktemp("cut")
        writer = StoreWriter(root, segment_size=2048)
        for _ in range(data.draw(st.integers(1, 8))):
            writer.append("T", data.draw(st.binary(max_size=60)), keys="k")
        writer.close()
        path = root / "commitlog" / f"{0:020d}"
        cut = data.draw(st.integers(1, writer.log.end))
        tail = data.draw(st.sampled_from([b"\0", b"\xff", b"\xda\xa3\x20\xa7"]))
        write_file(path, 2048, {cut: (tail * 2048)[: 2048 - cut]})
        log = CommitLog.open([root / "commitlog"])
        valid = list(oracles.scan_segment(path.read_bytes(), 0))
        assert log.end == sum(record.total_size for record in valid)
        for record in valid:
            found = log.record_at(record.physical_offset)
            assert found is not None
            assert len(found) == record.total_size


class TestSteps:
    """The end is looked for in steps; records larger than a step, and the last steps' checksums, count as any other."""

    @pytest.fixture(autouse=True)
    def small_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "WALK_STEP", 512)

    @pytest.mark.parametrize("sizes", [[100] * 30, [2000], [10, 2000, 10], [600] * 5, [2000, 2000, 3]])
    def test_the_end_is_found_whatever_the_step_cuts(self, tmp_path: Path, sizes: list[int]) -> None:
        writer = StoreWriter(tmp_path, segment_size=16384)
        for size in sizes:
            writer.append("T", bytes(size))
        assert opened(writer).end == writer.log.end

    @pytest.mark.parametrize("sizes", [[100] * 30, [600] * 5, [2000, 2000, 3]])
    def test_a_bad_checksum_in_the_last_steps_is_found_and_passed_over(self, tmp_path: Path, sizes: list[int]) -> None:
        writer = StoreWriter(tmp_path, segment_size=16384)
        for size in sizes:
            writer.append("T", bytes(size))
        bad = writer.append("T", b"bad", body_crc=3)
        good = writer.append("T", b"good")
        torn = writer.append("T", b"bad at the end", body_crc=3)
        log = opened(writer)
        assert log.end == torn.physical_offset
        assert [(damage.start, damage.stop) for damage in log.damage] == [(bad.physical_offset, good.physical_offset)]

    def test_a_blank_behind_several_steps_declares_the_segment_full(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=4096)
        fill(writer, 12)
        writer.roll()
        writer.log.overwrite(4096, b"")
        assert opened(writer).end == 4096

    @pytest.mark.parametrize("known", [0, 1, 250, 10**6, -5, 2**63 - 1])
    def test_a_cached_end_that_is_none_does_no_harm(self, tmp_path: Path, known: int) -> None:
        writer = StoreWriter(tmp_path, segment_size=16384)
        fill(writer, 20)
        writer.close()
        path = tmp_path / "commitlog" / f"{0:020d}"
        ends = {FileIdentity.of(os.stat(path)): known}
        assert CommitLog.open([path.parent], known_ends=ends).end == writer.log.end

    def test_a_cached_end_is_walked_on_from(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=16384)
        fill(writer, 20)
        writer.close()
        path = tmp_path / "commitlog" / f"{0:020d}"
        for written in writer.written:
            ends = {FileIdentity.of(os.stat(path)): written.physical_offset}
            assert CommitLog.open([path.parent], known_ends=ends).end == writer.log.end


def test_a_record_larger_than_sixteen_mebibytes_is_stepped_over(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=40 * 1024 * 1024)
    writer.append("T", b"before")
    large = writer.append("T", bytes(17 * 1024 * 1024))
    after = writer.append("T", b"after")
    log = opened(writer)
    assert log.end == after.physical_offset + after.size
    found = log.record_at(large.physical_offset)
    assert found is not None
    assert len(found) == large.size
