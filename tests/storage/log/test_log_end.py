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
from store_writer import StoreWriter


class TestEnd:
    """ "End = first failure" in "the last segment whose first 8 bytes are not zero"."""

    def test_behind_a_blank_the_log_goes_on_in_the_segment_made_in_advance(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=SEGMENT)
        fill(writer, 2)
        writer.roll()
        writer.log.overwrite(SEGMENT, b"")  # comes into being, with nothing in it
        log = opened(writer)
        assert log.end == SEGMENT
        assert log.problems == ()

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

    @pytest.mark.parametrize("sizes", [[100] * 30, [10, 2000, 10], [2000, 2000, 3]])
    def test_the_end_is_found_whatever_the_step_cuts(self, tmp_path: Path, sizes: list[int]) -> None:
        writer = StoreWriter(tmp_path, segment_size=16384)
        for size in sizes:
            writer.append("T", bytes(size))
        assert opened(writer).end == writer.log.end

    @pytest.mark.parametrize("known", [0, 250, 10**6, -5])
    def test_a_cached_end_that_is_none_does_no_harm(self, tmp_path: Path, known: int) -> None:
        writer = StoreWriter(tmp_path, segment_size=16384)
        fill(writer, 20)
        writer.close()
        path = tmp_path / "commitlog" / f"{0:020d}"
        ends = {FileIdentity.of(os.stat(path)): known}
        assert CommitLog.open([path.parent], known_ends=ends).end == writer.log.end
