"""Why no record starts at an offset: every reason in its words, and no offset that brings the server down."""

import re
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kernel_memory import HeldFile, record_at
from storage.files.mapped_file import MappedFile
from storage.log.absence import SEARCH_BACK_BYTES, explain_absence
from storage.log.commit_log import CommitLog, Segment
from store_writer import StoreWriter

BLANK = (300).to_bytes(4) + oracles.BLANK_MAGIC.to_bytes(4) + bytes(292)
FIRST = record_at(0)
SIZE = len(FIRST)


def log_in_memory(data: bytes) -> CommitLog:
    """One segment whose last byte is the last that may be read: a page behind it is not there."""
    file = HeldFile(data)
    return CommitLog([Segment(0, cast(MappedFile, file), file.size)], [])


@pytest.mark.parametrize("padding", [b"", b"\xff", FIRST])
def test_each_part_of_a_log_has_its_reason(tmp_path: Path, padding: bytes) -> None:
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


@pytest.mark.parametrize(
    ("data", "offset", "words"),
    [
        (FIRST, 0, f": an intact record of {SIZE} bytes starts there"),
        (
            FIRST + bytes(40) + record_at(SIZE + 40),
            SIZE + 20,
            f" is unreadable: no record starts there, the last one before it ends at {SIZE}",
        ),
        (
            FIRST + FIRST[:4] + b"\xff" * 4 + FIRST[8:] + record_at(2 * SIZE),
            SIZE,
            " is unreadable: the record that should start there is damaged: its magic number is wrong",
        ),
        (
            bytes(5000),
            4000,
            f" is unreadable: no record starts there or reaches it from up to {SEARCH_BACK_BYTES} bytes before",
        ),
    ],
)
def test_damage_says_what_is_wrong_and_how_far_was_searched(data: bytes, offset: int, words: str) -> None:
    assert explain_absence(log_in_memory(data), offset) == f"physical offset {offset}{words}"


def test_no_more_than_four_mebibytes_are_searched() -> None:
    """The record around an offset starts 4 MiB before it, or a byte further: found, and not found."""
    log = log_in_memory(record_at(0, body=bytes(SEARCH_BACK_BYTES + 1000)))
    assert "inside the record that starts at 0" in explain_absence(log, SEARCH_BACK_BYTES)
    assert "is unreadable" in explain_absence(log, SEARCH_BACK_BYTES + 1)


def test_the_last_bytes_of_a_segment_are_explained_without_reading_behind_it() -> None:
    log = log_in_memory(FIRST + BLANK)
    for distance in range(1, 100):
        assert explain_absence(log, SIZE + len(BLANK) - distance).endswith("behind the record at 0")


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


def test_offsets_of_the_recorded_store_are_explained_by_their_records(g1_store: Path) -> None:
    log = CommitLog.open([g1_store / "commitlog"])
    records = oracles.read_log(g1_store / "commitlog")
    assert len(records) > 100
    for record in records[::20]:
        for distance in (1, 50, record.total_size - 1):
            text = explain_absence(log, record.physical_offset + distance)
            assert text.endswith(f"starts at {record.physical_offset} ({record.total_size} bytes)")
