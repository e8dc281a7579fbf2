"""One stretch read for Spark: damage is passed over and named, or is an error."""

import zlib
from pathlib import Path

import pytest

from protocol.errors import CorruptRecord
from spark_jobs.read.log_ranges import Problem, find_ranges
from spark_jobs.read.read_range import MOST_REPORTED, RangeReader, read_damage, report_problems
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


def test_damage_is_an_error_for_who_wants_it(store: StoreWriter) -> None:
    with pytest.raises(CorruptRecord, match="its body does not match its CRC"):
        list(reader(store, fails_fast=True).read())


def test_so_is_a_body_that_cannot_be_decompressed(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.append("T", zlib.compress(b"good"), sys_flag=1)
    writer.append("T", b"bad", sys_flag=1)
    writer.close()
    with pytest.raises(CorruptRecord, match="cannot be decompressed"):
        list(reader(writer, fails_fast=True).read())


def test_the_first_places_are_named_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    report_problems([Problem("/s/0", number, 5, "gone") for number in range(MOST_REPORTED + 2)])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "rocketlens: /s/0: 5 bytes at physical offset 0: gone"
    assert lines[-1] == "rocketlens: 2 more places are damaged"
    assert len(lines) == MOST_REPORTED + 1
