"""One stretch read for Spark: damage is passed over and named, or is an error."""

import zlib
from pathlib import Path

import pytest

from protocol.errors import CorruptRecord
from spark_jobs.read.log_ranges import Problem, find_ranges
from spark_jobs.read.read_range import MOST_REPORTED, RangeReader, read_damage, report_problems
from storage.columns.rows import RowReader
from storage.columns.wanted import Wanted
from store_writer import StoreWriter


@pytest.fixture
def store(tmp_path: Path) -> StoreWriter:
    writer = StoreWriter(tmp_path)
    for number in range(9):
        writer.append("T", b"body of %d" % number)
    writer.close()
    writer.overwrite(writer.written[4].physical_offset + 90, b"#")
    return writer


def reader(store: StoreWriter, **more: bool) -> RangeReader:
    (range_,) = find_ranges(str(store.root)).ranges
    return RangeReader(range_, Wanted(), ("body",), **more)


def test_damage_is_passed_over_and_noted(store: StoreWriter) -> None:
    reading = reader(store)
    assert sum(columns.count for columns in reading.read()) == reading.messages == 8
    fifth, path = store.written[4], str(store.log.segments[0])
    expected = [Problem(path, fifth.physical_offset, fifth.size, "its body does not match its CRC")]
    assert reading.problems == expected
    (range_,) = find_ranges(str(store.root)).ranges
    assert read_damage(range_) == expected


def test_damage_is_an_error_for_who_wants_it_and_so_is_a_body_that_cannot_be_decompressed(
    store: StoreWriter, tmp_path: Path
) -> None:
    with pytest.raises(CorruptRecord, match="its body does not match its CRC"):
        list(reader(store, fails_fast=True).read())
    packed = StoreWriter(tmp_path / "packed")
    packed.append("T", zlib.compress(b"good"), sys_flag=1)
    packed.append("T", b"bad\xff\x01", sys_flag=1)
    packed.close()
    with pytest.raises(CorruptRecord, match="cannot be decompressed"):
        list(reader(packed, fails_fast=True).read())


def test_the_first_places_are_named_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    report_problems([Problem("/s/0", number, 5, "gone") for number in range(MOST_REPORTED + 2)])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "rocketlens: /s/0: 5 bytes at physical offset 0: gone"
    assert lines[-1] == "rocketlens: 2 more places are damaged"
    assert len(lines) == MOST_REPORTED + 1


@pytest.mark.parametrize("parts", [1, 7])
def test_the_messages_of_a_ledger_are_read_once_in_any_parts_and_damage_is_named(tmp_path: Path, parts: int) -> None:
    writer = StoreWriter(tmp_path, segment_size=4096, is_ledger=True)
    for number in range(60):
        writer.append("T", b"body of %d" % number)
        if number % 5 == 0:
            writer.log.write_empty_entry(2 + number % 2, b"" if number % 2 == 0 else b"n0-127.0.0.1:40911")
    writer.close()
    bad, lost = writer.written[31], writer.written[40]
    writer.overwrite(bad.physical_offset + 90, b"#")
    writer.overwrite(lost.physical_offset - 48, b"\xff")
    found = find_ranges(str(tmp_path))
    step = -(-writer.log.end // parts)
    offsets, problems = [], []
    for start in range(0, writer.log.end, step):
        for range_ in found.ranges:
            with range_.open() as window:
                reading = RowReader(window, Wanted(), is_last=range_.is_last, boundary=range_.boundary)
                first, last = max(start - range_.base_offset, 0), min(start + step - range_.base_offset, range_.stop)
                if first < last:
                    at = first if parts == 1 else window.find_candidate(first)
                    for rows in reading.read(at, last) if 0 <= at < last else ():
                        offsets += (rows.table["position"] + rows.base_offset).tolist()
                    problems += [each.start for each in reading.damage]
    assert sorted(offsets) == [each.physical_offset for each in writer.written if each is not bad]
    assert bad.physical_offset in problems
