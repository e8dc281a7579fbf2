"""Messages that are wanted, found in a log beside the oracle that reads it record by record."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from column_rows import expected_rows, read_log_rows, read_rows
from examples import examples
from protocol.errors import FilterSyntaxError, StoreError, TruncatedFile
from storage.columns.rows import RowReader
from storage.columns.wanted import HIGHEST, Wanted
from storage.kernels import records as codes
from storage.log.damaged_ranges import ZEROS, DamagedRange
from storage.log.log_window import LocalFile, LogWindow
from store_writer import START_TIMESTAMP, StoreWriter
from strategies import BatchPlan, StorePlan, batch_plans, store_plans


def offsets(rows: list[dict[str, object]]) -> list[object]:
    return [row["physical_offset"] for row in rows]


class TestWholeLogs:
    @settings(max_examples=examples(12))
    @given(store_plans(maximum_messages=25))
    def test_every_record_of_a_log_is_a_row(self, plan: StorePlan) -> None:
        with tempfile.TemporaryDirectory() as directory:
            writer = plan.write(Path(directory))
            assert read_log_rows(Path(directory) / "commitlog") == expected_rows(writer.records)

    def test_every_message_of_a_recorded_store_is_a_row(self, g1_store: Path) -> None:
        log = g1_store / "commitlog"
        assert read_log_rows(log) == expected_rows(oracles.read_log(log))

    @settings(max_examples=examples(12))
    @given(batch_plans)
    def test_every_message_of_a_batch_is_a_row(self, plan: BatchPlan) -> None:
        with tempfile.TemporaryDirectory() as directory:
            messages = expected_rows(plan.write(Path(directory)).records)
            log = Path(directory) / "commitlog"
            assert read_log_rows(log) == messages
            chosen = Wanted(tags=frozenset({b"Aa", b"TagA"}), queue_offsets=(1, 9))
            wanted = [row for row in messages if row["tags"] in ("Aa", "TagA") and 1 <= row["queue_offset"] <= 9]
            assert read_log_rows(log, chosen) == wanted
            by_name = [row for row in messages if row["properties"].get("UNIQ_KEY") == "BB"]
            assert read_log_rows(log, Wanted(where="UNIQ_KEY = 'BB'")) == by_name

    def test_a_record_longer_than_the_window_is_read_whole(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path)
        for size in (10, 30_000, 20):
            writer.append("T", bytes(size))
        writer.close()
        assert [len(row["body"]) for row in read_log_rows(tmp_path / "commitlog")] == [10, 30_000, 20]

    def test_reading_may_start_and_stop_at_any_record(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path)
        places = [writer.append("T", b"x").physical_offset for _ in range(6)]
        writer.close()
        (segment,) = writer.log.segments.values()
        found, damage = read_rows(segment, 0, start=places[2], stop=places[4], is_last=False)
        assert (offsets(found), damage) == (places[2:4], [])

    def test_what_lies_far_before_the_first_offset_wanted_is_not_read(self, disk_path: Path) -> None:
        writer = StoreWriter(disk_path, segment_size=1 << 23)
        places = [writer.append("T", bytes(100_000)).physical_offset for _ in range(60)]
        writer.overwrite(places[50] + 4, b"#")
        writer.close()
        (segment,) = writer.log.segments.values()
        for first, expected in ((places[55], places[55:]), (places[50], places[51:]), (places[50] + 1, places[51:])):
            wanted = Wanted(physical_offsets=(first, HIGHEST))
            with LogWindow(LocalFile(segment), 0) as window:
                reader = RowReader(window, wanted)
                found = [rows.table["position"] + rows.base_offset for rows in reader.read(0, writer.log.end)]
                assert [offset for each in found for offset in each.tolist()] == expected
                assert [each.start for each in reader.damage] == [places[50]]  # it lies near before, or behind
                assert window.bytes_read < writer.log.end / 2

    def test_where_the_log_ends_is_told_by_all_that_is_before(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=1 << 23)
        old, new = START_TIMESTAMP, START_TIMESTAMP + 1001  # more than a second: left over
        for number in range(40):
            writer.append("T", bytes(100_000), store_timestamp=new if number < 20 else old)
        writer.overwrite(writer.written[20].physical_offset + 4, b"#")
        writer.close()
        (segment,) = writer.log.segments.values()
        found, _ = read_rows(segment, 0, wanted=Wanted(physical_offsets=(writer.written[39].physical_offset, HIGHEST)))
        assert found == []


@pytest.fixture
def varied(tmp_path: Path) -> StoreWriter:
    """Two topics, three queues, tags and clocks that differ."""
    writer = StoreWriter(tmp_path, segment_size=1 << 20)
    for number in range(60):
        writer.append(
            ("Ta", "Tb", "标题")[number % 3],
            b"body",
            queue_id=number % 4 - 1,
            tags=(None, "Aa", "BB", "标签")[number % 4],
            store_timestamp=START_TIMESTAMP + (number * 37) % 60,
            properties={"n": str(number)},
        )
    writer.close()
    return writer


class TestChoosing:
    @pytest.mark.parametrize(
        "wanted",
        [
            Wanted(topics=frozenset({b"Ta"})),
            Wanted(topics=frozenset({"标题".encode(), b"Tb", b"none"})),
            Wanted(topics=frozenset()),
            Wanted(queue_ids=frozenset({-1, 2})),
            Wanted(tags=frozenset({b"Aa", "标签".encode()})),
            Wanted(times=(START_TIMESTAMP + 10, START_TIMESTAMP + 30)),
            Wanted(queue_offsets=(2, 4)),
            Wanted(physical_offsets=(500, 2500)),
            Wanted(topics=frozenset({b"Ta"}), tags=frozenset({b"BB"}), queue_ids=frozenset({1}), times=(0, HIGHEST)),
        ],
    )  # fmt: skip
    def test_exactly_what_is_wanted_is_found(self, varied: StoreWriter, wanted: Wanted) -> None:
        def is_wanted(record: oracles.Record) -> bool:
            tag = record.properties.get("TAGS")
            return (
                (wanted.topics is None or record.topic_bytes in wanted.topics)
                and (wanted.queue_ids is None or record.queue_id in wanted.queue_ids)
                and (wanted.tags is None or (tag is not None and tag.encode() in wanted.tags))
                and wanted.times[0] <= record.store_timestamp <= wanted.times[1]
                and wanted.queue_offsets[0] <= record.queue_offset <= wanted.queue_offsets[1]
                and wanted.physical_offsets[0] <= record.physical_offset <= wanted.physical_offsets[1]
            )

        found = read_log_rows(varied.root / "commitlog", wanted)
        assert found == expected_rows(filter(is_wanted, varied.records))

    @pytest.mark.parametrize(
        ("where", "numbers"),
        [
            ("n > 57", [58, 59]),
            ("n IN ('3', '5')", [3, 5]),
            ("n > 1.5e1 AND n < 18", [16, 17]),
            ("missing IS NULL AND n = '7'", [7]),
            ("n CONTAINS 'x'", []),
            ("n > 58 OR n BETWEEN 3 AND 4", [3, 4, 59]),
        ],
    )
    def test_a_sql92_expression_decides_as_for_a_consumer(
        self, varied: StoreWriter, where: str, numbers: list[int]
    ) -> None:
        found = read_log_rows(varied.root / "commitlog", Wanted(where=where))
        assert [int(row["properties"]["n"]) for row in found] == numbers

    def test_an_expression_that_is_none_is_refused_at_once(self, varied: StoreWriter) -> None:
        (segment,) = varied.log.segments.values()
        with LogWindow(LocalFile(segment), 0) as window, pytest.raises(FilterSyntaxError):
            RowReader(window, Wanted(where="a >"))

    @given(st.binary(max_size=12).filter(lambda tag: b"\1" not in tag and b"\2" not in tag))
    @settings(max_examples=examples(30))
    def test_a_tag_is_compared_byte_by_byte(self, tag: bytes) -> None:
        with tempfile.TemporaryDirectory() as directory:
            writer = StoreWriter(Path(directory))
            writer.append("T", properties=b"TAGS\1" + tag + b"\2")
            writer.append("T", properties=b"TAGS\1other\2")
            writer.close()
            found = read_log_rows(Path(directory) / "commitlog", Wanted(tags=frozenset({tag})))
        assert len(found) == (1 if tag else 0) + (tag == b"other")


class TestDamage:
    @pytest.fixture
    def log(self, tmp_path: Path) -> StoreWriter:
        writer = StoreWriter(tmp_path, segment_size=1 << 16)
        for number in range(10):
            writer.append("T", b"body of %d" % number, property_crc=True)
        writer.flush()
        return writer

    def read(self, writer: StoreWriter, **more: object) -> tuple[list[int], list[DamagedRange]]:
        writer.flush()
        (segment,) = writer.log.segments.values()
        rows, damage = read_rows(segment, 0, **more)  # type: ignore[arg-type]
        numbers = {written.physical_offset: number for number, written in enumerate(writer.written)}
        return [numbers[row["physical_offset"]] for row in rows], damage

    def test_a_body_that_does_not_match_its_crc_is_no_message(self, log: StoreWriter) -> None:
        third = log.written[3]
        log.overwrite(third.physical_offset + 90, b"X")
        found, damage = self.read(log)
        assert found == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert damage == [DamagedRange(third.physical_offset, third.physical_offset + third.size, codes.BAD_BODY_CRC)]

    def test_a_magic_number_that_is_none_costs_one_message(self, log: StoreWriter) -> None:
        third = log.written[3]
        log.overwrite(third.physical_offset + 4, b"\0\0\0\1")
        found, damage = self.read(log)
        assert found == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert damage == [DamagedRange(third.physical_offset, third.physical_offset + third.size, codes.BAD_MAGIC)]

    def test_a_size_beyond_the_segment_is_damage(self, log: StoreWriter) -> None:
        log.overwrite(log.written[3].physical_offset, (1 << 30).to_bytes(4, "big"))
        found, damage = self.read(log)
        assert found == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert [each.code for each in damage] == [codes.BAD_SIZE]

    def test_zeros_between_records_are_damage(self, log: StoreWriter) -> None:
        first, behind = log.written[3], log.written[6]
        log.overwrite(first.physical_offset, bytes(behind.physical_offset - first.physical_offset))
        found, damage = self.read(log)
        assert found == [0, 1, 2, 6, 7, 8, 9]
        assert damage == [DamagedRange(first.physical_offset, behind.physical_offset, ZEROS)]

    def test_a_log_may_just_end(self, log: StoreWriter) -> None:
        assert self.read(log) == (list(range(10)), [])

    def test_a_segment_that_others_follow_may_not(self, log: StoreWriter) -> None:
        found, damage = self.read(log, is_last=False)
        last = log.written[-1]
        assert found == list(range(10))
        assert damage == [DamagedRange(last.physical_offset + last.size, 1 << 16, ZEROS)]

    def test_a_last_record_that_is_torn_is_told(self, log: StoreWriter) -> None:
        last = log.written[-1]
        log.overwrite(last.physical_offset + 40, bytes(last.size - 40))
        found, damage = self.read(log)
        assert found == list(range(9))
        assert [each.start for each in damage] == [last.physical_offset]

    def test_records_of_before_a_cut_do_not_count(self, log: StoreWriter) -> None:
        """What a broker left behind when it cut its log is older than what it has written since."""
        third = log.written[3]
        log.overwrite(third.physical_offset, b"\0" * third.size)
        newer = replace(log.records[0], store_timestamp=START_TIMESTAMP + 10**6)
        older = log.written[2]
        log.overwrite(older.physical_offset, log_record(newer, older.physical_offset, older.size))
        found, _ = self.read(log)
        assert found == [0, 1, 2]

    def test_a_blank_ends_a_segment(self, log: StoreWriter) -> None:
        log.roll()
        log.append("T", b"in the next one")
        log.flush()
        first, second = log.log.segments.values()
        assert len(read_rows(first, 0, is_last=False)[0]) == 10
        assert len(read_rows(second, 1 << 16)[0]) == 1

    def test_a_file_that_shrinks_while_it_is_read_is_an_error(self, tmp_path: Path, log: StoreWriter) -> None:
        (segment,) = log.log.segments.values()
        window = LogWindow(LocalFile(segment), 0, 4096)
        os.truncate(segment, 5000)
        with window, pytest.raises(TruncatedFile):
            list(RowReader(window, Wanted()).read(0, 1 << 16))

    def test_a_file_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="cannot be opened"):
            LocalFile(tmp_path / "none")


def log_record(record: oracles.Record, physical_offset: int, size: int) -> bytes:
    """A record of the same size elsewhere."""
    from store_files import pack_record

    data = pack_record(
        topic_bytes=record.topic_bytes, body=record.body, properties_bytes=b"", queue_id=0, flag=0,
        queue_offset=record.queue_offset, physical_offset=physical_offset, sys_flag=0, born_timestamp=1,
        born_host=("127.0.0.1", 1), store_timestamp=record.store_timestamp, store_host=("127.0.0.1", 1),
        reconsume_times=0, prepared_transaction_offset=0, property_crc=True,
    )  # fmt: skip
    assert len(data) == size
    return data


def test_no_message_is_wanted_where_a_choice_has_nothing_or_a_range_ends_before_it_begins() -> None:
    assert Wanted(topics=frozenset()).is_empty
    assert Wanted(times=(5, 4)).is_empty
    assert not Wanted().is_empty
