"""What one look has found becomes a log; a segment counts once records are found in it or behind it."""

from pathlib import Path

from storage.files.mapped_file import MappedFile
from storage.log.commit_log import CommitLog
from storage.log.log_place import RecordPlace
from storage.store._log_growth import NewRecords
from store_files import write_file
from store_writer import StoreWriter

SEGMENT = 1024


def log_of(root: Path) -> CommitLog:
    writer = StoreWriter(root, segment_size=SEGMENT)
    writer.append("T", b"x" * 100)
    writer.flush()
    return CommitLog.open(writer.log.directories)


def start_of(root: Path, number: int) -> RecordPlace:
    path = root / "commitlog" / f"{number * SEGMENT:020d}"
    write_file(path, SEGMENT, {0: b"records"})
    return RecordPlace(number * SEGMENT, MappedFile.open(path), 0)


def test_nothing_found_is_no_growth(tmp_path: Path) -> None:
    assert NewRecords(log_of(tmp_path)).growth(more=False) is None


def test_records_in_the_last_segment_make_it_longer(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    finds, end = NewRecords(log), RecordPlace(0, log.segments[0].file, log.end)
    finds.accept(end, log.end + 100, log.end + 60, [log.end, log.end + 60])
    growth = finds.growth(more=True)
    assert growth is not None
    assert (growth.commit_log.end, growth.last, growth.more) == (log.end + 100, log.end + 60, True)
    assert [len(record) for record in growth.records] == [SEGMENT - log.end, SEGMENT - log.end - 60]


def test_a_step_that_went_nowhere_adds_nothing(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    finds = NewRecords(log)
    finds.accept(RecordPlace(0, log.segments[0].file, log.end), log.end, -1, [])
    assert finds.growth(more=False) is None


def test_a_full_segment_and_records_in_the_next_one_are_two_segments(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    finds, following = NewRecords(log), start_of(tmp_path, 1)
    finds.close(RecordPlace(0, log.segments[0].file, log.end))
    finds.accept(following, 100, 0, [0])
    growth = finds.growth(more=False)
    assert growth is not None
    assert [segment.valid_length for segment in growth.commit_log.segments] == [SEGMENT, 100]
    assert growth.last == SEGMENT


def test_a_segment_that_has_nothing_but_a_blank_counts_when_records_follow(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    finds, empty, following = NewRecords(log), start_of(tmp_path, 1), start_of(tmp_path, 2)
    finds.close(RecordPlace(0, log.segments[0].file, log.end))
    finds.close(empty)
    growth = finds.growth(more=False)
    assert growth is not None
    assert len(growth.commit_log.segments) == 1
    finds.accept(following, 100, 0, [0])
    growth = finds.growth(more=False)
    assert growth is not None
    assert [segment.valid_length for segment in growth.commit_log.segments] == [SEGMENT, SEGMENT, 100]
