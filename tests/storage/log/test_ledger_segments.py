"""Logs of DLedger entries, of several directories, and of plain segments that entries follow."""

from pathlib import Path

import pytest

from oracles import read_log
from storage.files.mapped_file import MappedFile
from storage.files.waiting import Unfinished, begin
from storage.log.absence import explain_absence
from storage.log.commit_log import CommitLog
from store_files import LEDGER_HEAD
from store_queries import at_once
from store_writer import StoreWriter


def filled(writer: StoreWriter, count: int = 12) -> StoreWriter:
    for number in range(count):
        writer.append("T", b"x" * 100, keys=f"k{number}")
    return writer


def check(log: CommitLog, directories: list[Path], messages: int) -> None:
    records = read_log(directories)
    assert len(records) == messages
    for record in records:
        found = log.record_at(record.physical_offset)
        assert found is not None
        assert len(found) == record.total_size
    assert log.end == records[-1].physical_offset + records[-1].total_size
    assert log.problems == ()
    assert log.holes == ()


def test_every_record_is_where_the_oracle_reads_it(tmp_path: Path) -> None:
    writer = filled(StoreWriter(tmp_path, segment_size=1024, is_ledger=True))
    log = CommitLog.open(writer.log.directories)
    check(log, writer.log.directories, 12)
    assert len(log.segments) > 2


def test_entries_go_on_where_plain_segments_end(tmp_path: Path) -> None:
    plain = filled(StoreWriter(tmp_path / "plain", segment_size=1024))
    plain.roll()
    ledger = filled(StoreWriter(tmp_path / "ledger", segment_size=1024, is_ledger=True, start=plain.log.end))
    directories = [*plain.log.directories, *ledger.log.directories]
    check(CommitLog.open(directories), directories, 24)


def test_a_place_in_a_head_is_named_as_such(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=4096, is_ledger=True)
    first, second = writer.append("T", b"x"), writer.append("T", b"y")
    log = CommitLog.open(writer.log.directories)
    text = f"lies in DLedger's head in front of the record at {first.physical_offset}"
    assert explain_absence(log, 0) == f"physical offset 0 {text}"
    assert explain_absence(log, 40) == f"physical offset 40 {text}"
    head = second.physical_offset - LEDGER_HEAD
    for offset in (head, head + 47):
        assert explain_absence(log, offset) == (
            f"physical offset {offset} lies in DLedger's head in front of the record at {second.physical_offset}"
        )
    inside = f"lies inside the record that starts at {first.physical_offset} ({first.size} bytes)"
    assert explain_absence(log, first.physical_offset + 1) == f"physical offset {first.physical_offset + 1} {inside}"


def test_the_start_of_a_record_lies_behind_entries_without_one_of_any_size(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=4096, is_ledger=True)
    places = []
    for number in range(6):
        places.append(writer.log.end)
        writer.log.write_empty_entry(2 + number % 2, b"members" * number)
    written = writer.append("T", b"x")
    log = CommitLog.open(writer.log.directories)
    assert [log.record_start(place) for place in places] == [written.physical_offset] * 6


def test_on_the_event_loop_the_start_of_a_record_waits_for_the_pages_of_each_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = StoreWriter(tmp_path, segment_size=4096, is_ledger=True)
    heads = [0, (writer.log.write_empty_entry(), writer.log.end)[1]]
    written = writer.append("T", b"x")
    log = CommitLog.open(writer.log.directories)
    asked = []

    def is_hot(_: MappedFile, position: int, length: int, _tick: int) -> bool:
        asked.append((position, length))
        return len(asked) > 1

    monkeypatch.setattr(MappedFile, "is_hot", is_hot)
    step = begin(log.record_start_lookup(0))
    assert isinstance(step, Unfinished)
    assert asked == [(0, LEDGER_HEAD)]
    assert at_once(log.record_start_lookup(0)) == written.physical_offset
    assert asked[1:] == [(head, LEDGER_HEAD) for head in heads]


@pytest.mark.parametrize("is_ledger", [False, True])
def test_the_first_store_time_is_that_of_the_first_record(tmp_path: Path, is_ledger: bool) -> None:
    writer = StoreWriter(tmp_path, segment_size=4096, is_ledger=is_ledger)
    assert CommitLog.open(writer.log.directories).first_timestamp() == -1
    if is_ledger:
        writer.log.write_empty_entry()
        assert CommitLog.open(writer.log.directories).first_timestamp() == -1
    written = writer.append("T", b"x")
    writer.append("T", b"y")
    assert CommitLog.open(writer.log.directories).first_timestamp() == written.store_timestamp
