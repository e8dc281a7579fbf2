"""Why no record starts at an offset, and the fillers that lie where damage was."""

import re
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kernel_memory import HeldFile, record_at
from oracles import BLANK_MAGIC, read_record, signed
from storage.files.mapped_file import MappedFile
from storage.kernels.records import AT_BLANK, AT_LIMIT, walk_records
from storage.kernels.region import Region
from storage.log.absence import explain_absence
from storage.log.commit_log import CommitLog, Segment
from storage.log.fillers import LARGEST, SMALLEST, fill
from store_writer import StoreWriter

FIRST = record_at(0)


def log_in_memory(data: bytes) -> CommitLog:
    """One segment whose last byte is the last that may be read: a page behind it is not there."""
    file = HeldFile(data)
    return CommitLog([Segment(0, cast(MappedFile, file), file.size)], [])


@pytest.mark.parametrize("padding", [b"", b"\xff", FIRST])
def test_each_part_of_a_log_has_its_reason(tmp_path, padding) -> None:
    writer = StoreWriter(tmp_path, segment_size=1024, start=2048, padding=padding)
    first = writer.append("T", b"one")
    writer.roll()
    writer.skip_segments(2)
    writer.roll()
    last = writer.append("T", b"x", body_crc=1)
    sound = writer.append("T", b"y")
    writer.close()
    log = CommitLog.open([tmp_path / "commitlog"])
    end, record = sound.physical_offset + sound.size, f"the record that starts at 2048 ({first.size} bytes)"
    for offsets, reason in (
        ((-(2**63), -1, 0, 2047), "lies before the log's start at 2048"),
        (range(2049, 2048 + first.size), f"lies inside {record}"),
        (
            (2048 + first.size, 2056 + first.size, 3071),
            "lies in the blank rest of its segment, behind the record at 2048",
        ),
        ((3072, 5119), "lies in a hole of the log: no segment holds 3072 to 5120"),
        ((5220,), "lies in a segment that is blank from its start"),
        ((end, end + 1, 2**63 - 1), f"lies past the end of the log's valid data at {end}"),
    ):
        for offset in offsets:
            assert explain_absence(log, offset) == f"physical offset {offset} {reason}"
    damaged = last.physical_offset
    assert explain_absence(log, damaged) == (
        f"physical offset {damaged}: the record there is damaged: its body does not match its CRC"
    )


@settings(max_examples=examples(60))
@given(st.data())
def test_any_offset_of_any_bytes_gets_one_clause(data: st.DataObject) -> None:
    content = bytearray()
    for _ in range(data.draw(st.integers(0, 3))):
        content += record_at(len(content), body=data.draw(st.binary(max_size=5)))
    for _ in range(data.draw(st.integers(0, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content += data.draw(st.binary(min_size=1, max_size=120))
    offset = data.draw(st.integers(0, len(content) - 1))
    text = explain_absence(log_in_memory(bytes(content)), offset)
    assert re.match(rf"physical offset {offset}\b", text)
    if inside := re.search(r"starts at (\d+) \((\d+) bytes\)", text):
        start, size = map(int, inside.groups())
        assert start < offset < start + size
        assert oracles.read_record(bytes(content), start, start, check_crc=False)


def test_offsets_of_the_recorded_store_are_explained_by_their_records(g1_store) -> None:
    log = CommitLog.open([g1_store / "commitlog"])
    records = oracles.read_log(g1_store / "commitlog")
    assert len(records) > 100
    for record in records[::20]:
        for distance in (1, 50, record.total_size - 1):
            text = explain_absence(log, record.physical_offset + distance)
            assert text.endswith(f"starts at {record.physical_offset} ({record.total_size} bytes)")


TIME = 1_700_000_000_000
ROLLBACK = 0xC


def filled(start: int, stop: int, base: int, boundary: int) -> bytes:
    data = bytearray(boundary - base)
    for piece in fill(start, stop, base, boundary, TIME):
        position = piece.physical_offset - base
        assert start <= piece.physical_offset
        assert piece.physical_offset + len(piece.data) <= stop
        data[position : position + len(piece.data)] = piece.data
    return bytes(data)


@given(start=st.integers(0, 5000), size=st.integers(SMALLEST, 3 * LARGEST))
def test_records_of_rolled_back_transactions_fill_a_range_exactly(start: int, size: int) -> None:
    base, boundary = 1 << 30, (1 << 30) + start + size + 100
    data = filled(base + start, base + start + size, base, boundary)
    walk = walk_records(Region(data), start, start + size, base, boundary, True)
    assert (walk.reason, walk.position) == (AT_LIMIT, start + size)
    position = start
    while position < start + size:
        record = read_record(data, position)
        assert record is not None
        assert record.sys_flag & 0xC == ROLLBACK
        assert (record.physical_offset, record.store_timestamp) == (base + position, TIME)
        assert "ROCKETLENS_FILLER".startswith(record.topic)
        assert record.topic
        assert record.total_size <= LARGEST
        position += record.total_size


@given(start=st.integers(1, 5000), size=st.integers(8, 5000))
def test_a_range_up_to_the_end_of_a_segment_is_one_blank(start: int, size: int) -> None:
    data = filled(start, start + size, 0, start + size)
    assert (signed(data, start, 4), data[start + 4 : start + 8]) == (size, BLANK_MAGIC.to_bytes(4, "big"))
    assert walk_records(Region(data), start, len(data), 0, len(data), True).reason == AT_BLANK
