"""A log made from an earlier one: what grew at its end, what expired at its start, and what forces a whole new look."""

import os
import shutil
from pathlib import Path

import pytest

from storage.log.commit_log import CommitLog, Segment
from store_writer import StoreWriter

SEGMENT = 1024


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    """A log of several segments."""
    writer = StoreWriter(tmp_path / "store", segment_size=SEGMENT)
    for number in range(18):
        writer.append("T", bytes([number]) * 100, keys=f"k{number}")
    writer.flush()
    return writer


def opened(writer: StoreWriter) -> CommitLog:
    return CommitLog.open(writer.log.directories)


def files(log: CommitLog) -> list[object]:
    return [segment.file for segment in log.segments]


class TestGrown:
    def test_a_longer_last_segment_is_all_that_changes(self, writer: StoreWriter) -> None:
        before = opened(writer)
        last = writer.append("T", b"new")
        after = before.grown([*before.segments[:-1], Segment(before.segments[-1].base_offset, *grown_by(before, last))])
        assert after.end == last.physical_offset + last.size
        assert after.record_at(last.physical_offset) == last.record
        assert after.view.record_at(last.physical_offset, 0) == last.record
        assert files(after) == files(before)


def grown_by(log: CommitLog, written: object) -> tuple[object, int]:
    """File and valid length of the last segment with one more message."""
    last = log.segments[-1]
    return last.file, written.physical_offset + written.size - last.base_offset  # type: ignore[attr-defined]


class TestTorn:
    def test_what_lies_behind_the_end_is_told_when_it_will_not_change_any_more(self, writer: StoreWriter) -> None:
        log = opened(writer)
        writer.overwrite(log.end, b"\0\0\1\0garbage")
        assert log.problems == ()
        torn = log.torn()
        assert torn.torn_end is not None
        assert torn.torn_end.physical_offset == log.end
        assert any(f"at physical offset {log.end}" in problem for problem in torn.problems)
        assert log.problems == ()


class TestRelisted:
    def test_a_segment_that_is_lost_in_the_middle_is_a_hole(self, writer: StoreWriter) -> None:
        log = opened(writer)
        log.segments[1].file.path.unlink()
        after = log.relisted(writer.log.directories)
        assert after.holes == ((SEGMENT, 2 * SEGMENT),)
        assert files(after) == [files(log)[0], *files(log)[2:]]

    def test_a_segment_that_was_replaced_is_mapped_anew(self, writer: StoreWriter) -> None:
        log = opened(writer)
        path = log.segments[0].file.path
        shutil.copy(path, path.with_name("copy"))
        os.replace(path.with_name("copy"), path)
        after = log.relisted(writer.log.directories)
        assert files(after)[0] is not files(log)[0]
        assert files(after)[1:] == files(log)[1:]

    def test_a_segment_that_could_not_be_read_is_tried_again(self, writer: StoreWriter) -> None:
        first = opened(writer).segments[0].file.path
        os.rename(first, first.with_name("away"))
        os.mkfifo(first)
        log = opened(writer)
        os.replace(first.with_name("away"), first)
        after = log.relisted(writer.log.directories)
        assert after.record_at(writer.written[0].physical_offset) == writer.written[0].record
