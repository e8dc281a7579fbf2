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
from lookups import at_once, wait_of
from protocol.message import decode_messages
from storage.files.mapped_file import MappedFile
from storage.log.absence import SEARCH_BACK_BYTES, explain_absence, explain_absence_lookup
from storage.log.commit_log import CommitLog, Segment
from store_writer import StoreWriter

BLANK_MAGIC = oracles.BLANK_MAGIC.to_bytes(4, "big")


def log_of(writer: StoreWriter) -> CommitLog:
    writer.close()
    return CommitLog.open([writer.root / "commitlog"])


def log_in_memory(data: bytes, base_offset: int = 0) -> CommitLog:
    """One segment whose last byte is the last that may be read: a page behind it is not there."""
    file = HeldFile(data)
    return CommitLog([Segment(base_offset, cast(MappedFile, file), file.size)], [])


class TestReasons:
    def test_an_empty_log_says_so(self) -> None:
        assert explain_absence(CommitLog([], []), 7) == "physical offset 7: the log is empty"

    def test_an_offset_before_the_log_names_its_start(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, start=131072)
        writer.append("T", b"x")
        log = log_of(writer)
        for offset in (-(2**63), -1, 0, 131071):
            expected = f"physical offset {offset} lies before the log's start at 131072"
            assert explain_absence(log, offset) == expected

    def test_an_offset_past_the_end_names_the_end(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path)
        written = writer.append("T", b"x")
        log = log_of(writer)
        for offset in (written.size, written.size + 1, 131072, 2**63 - 1):
            expected = f"physical offset {offset} lies past the end of the log's valid data at {written.size}"
            assert explain_absence(log, offset) == expected

    def test_an_offset_inside_a_record_names_the_record(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path)
        first, second = writer.append("T", b"one"), writer.append("T", b"two two")
        log = log_of(writer)
        for written in (first, second):
            for offset in range(written.physical_offset + 1, written.physical_offset + written.size):
                assert explain_absence(log, offset) == (
                    f"physical offset {offset} lies inside the record that starts at {written.physical_offset}"
                    f" ({written.size} bytes)"
                )

    def test_the_recorded_view_inside_a_record_is_explained(self, g1_store: Path) -> None:
        log = CommitLog.open([g1_store / "commitlog"])
        offset = 0x1BD
        record = next(r for r in oracles.read_log(g1_store / "commitlog") if r.physical_offset + r.total_size > offset)
        assert record.physical_offset != offset
        expected = f"lies inside the record that starts at {record.physical_offset} ({record.total_size} bytes)"
        assert explain_absence(log, offset).endswith(expected)

    def test_an_offset_in_a_hole_names_the_hole(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=1024)
        writer.append("T", b"x")
        writer.skip_segments(2)
        writer.append("T", b"x")
        log = log_of(writer)
        for offset in (1024, 2000, 3071):
            assert explain_absence(log, offset) == (
                f"physical offset {offset} lies in a hole of the log: no segment holds 1024 to 3072"
            )

    @pytest.mark.parametrize("padding", [b"", b"\xff", record_at(0)])
    def test_the_blank_rest_of_a_segment_is_named(self, tmp_path: Path, padding: bytes) -> None:
        writer = StoreWriter(tmp_path, segment_size=1024, padding=padding)
        first = writer.append("T", b"x")
        writer.roll()
        writer.append("T", b"y")
        log = log_of(writer)
        for offset in (first.size, first.size + 4, first.size + 8, 1000, 1023):
            expected = f"physical offset {offset} lies in the blank rest of its segment, behind the record at 0"
            assert explain_absence(log, offset) == expected

    def test_a_segment_of_nothing_but_a_blank_is_named(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=1024)
        writer.roll()
        writer.append("T", b"y")
        assert explain_absence(log_of(writer), 100).endswith("lies in a segment that is blank from its start")

    def test_a_wrong_body_checksum_is_named(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=1024)
        damaged = writer.append("T", b"x", body_crc=1)
        writer.roll()
        writer.append("T", b"y")
        assert explain_absence(log_of(writer), damaged.physical_offset) == (
            "physical offset 0: the record there is damaged: its body does not match its CRC"
        )

    def test_a_wrong_property_checksum_is_named(self) -> None:
        data = bytearray(record_at(0, property_crc=True))
        data[data.index(b"TopicTest")] ^= 1
        assert explain_absence(log_in_memory(bytes(data)), 0).endswith("it does not match its property CRC")

    def test_damage_between_records_names_where_the_last_one_ends(self) -> None:
        first = record_at(0)
        data = first + b"\x00" * 40 + record_at(len(first) + 40)
        assert explain_absence(log_in_memory(data), len(first) + 20) == (
            f"physical offset {len(first) + 20} is unreadable: no record starts there, the last one before it ends at"
            f" {len(first)}"
        )

    def test_damage_where_a_record_should_start_says_what_is_wrong_with_it(self) -> None:
        first, torn = record_at(0), bytearray(record_at(len(record_at(0))))
        torn[4:8] = b"\xff" * 4
        third = record_at(len(first) + len(torn))
        assert explain_absence(log_in_memory(first + bytes(torn) + third), len(first)) == (
            f"physical offset {len(first)} is unreadable: the record that should start there is damaged: "
            "its magic number is wrong"
        )

    def test_damage_from_the_start_says_how_far_was_searched(self) -> None:
        assert explain_absence(log_in_memory(bytes(5000)), 4000).endswith(
            f"no record starts there or reaches it from up to {SEARCH_BACK_BYTES} bytes before"
        )

    def test_an_intact_record_is_no_absence(self) -> None:
        data = record_at(0)
        assert explain_absence(log_in_memory(data), 0) == (
            f"physical offset 0: an intact record of {len(data)} bytes starts there"
        )


class TestBounds:
    def test_no_more_than_four_mebibytes_are_searched(self) -> None:
        """The record around an offset starts 4 MiB before it, or a byte further: found, and not found."""
        data = record_at(0, body=bytes(SEARCH_BACK_BYTES + 1000))
        log = log_in_memory(data)
        assert "inside the record that starts at 0" in explain_absence(log, SEARCH_BACK_BYTES)
        assert "is unreadable" in explain_absence(log, SEARCH_BACK_BYTES + 1)

    @pytest.mark.parametrize("distance", range(1, 100))
    def test_the_last_bytes_of_a_segment_are_explained_without_reading_behind_it(self, distance: int) -> None:
        first = record_at(0)
        data = first + (300).to_bytes(4, "big") + BLANK_MAGIC + bytes(292)
        assert explain_absence(log_in_memory(data), len(data) - distance).endswith("behind the record at 0")

    @settings(max_examples=examples(60))
    @given(st.data())
    def test_any_offset_of_any_bytes_gets_one_clause(self, data: st.DataObject) -> None:
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

    def test_every_offset_of_the_recorded_store_is_explained_by_its_record(self, g1_store: Path) -> None:
        log = CommitLog.open([g1_store / "commitlog"])
        records = oracles.read_log(g1_store / "commitlog")
        assert len(records) > 100
        for record in records[::20]:
            for distance in (1, 50, record.total_size - 1):
                text = explain_absence(log, record.physical_offset + distance)
                assert text.endswith(f"starts at {record.physical_offset} ({record.total_size} bytes)")


class TestWaiting:
    def test_a_search_is_left_to_a_thread_that_may_wait(self) -> None:
        log = log_in_memory(record_at(0))
        assert str(wait_of(explain_absence_lookup(log, 5))) == "looking for the record around an offset"

    def test_what_needs_no_search_is_answered_at_once(self) -> None:
        log = log_in_memory(record_at(0), base_offset=0)
        assert "before the log's start" in at_once(explain_absence_lookup(log, -1))
        assert "past the end" in at_once(explain_absence_lookup(log, 10_000))


def test_records_decode_where_absence_says_they_start(g1_store: Path) -> None:
    log = CommitLog.open([g1_store / "commitlog"])
    text = explain_absence(log, 0x1BD)
    start = int(text.split("starts at ")[1].split(" ")[0])
    record = log.record_at(start)
    assert record is not None
    assert next(decode_messages(record)).physical_offset == start
