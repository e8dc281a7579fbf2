"""Messages that are wanted, found in a log beside the oracle that reads it record by record."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from column_rows import expected_rows, read_log_rows, read_rows
from examples import examples
from storage.columns.rows import RowReader
from storage.columns.wanted import HIGHEST, Wanted
from storage.kernels import records as codes
from storage.log.damaged_ranges import ZEROS, DamagedRange
from storage.log.log_window import LocalFile, LogWindow
from store_writer import START_TIMESTAMP, StoreWriter
from strategies import BatchPlan, StorePlan, batch_plans, store_plans


class TestWholeLogs:
    @settings(max_examples=examples(12))
    @given(store_plans(maximum_messages=25))
    def test_every_record_of_a_log_is_a_row(self, plan: StorePlan) -> None:
        with tempfile.TemporaryDirectory() as directory:
            writer = plan.write(Path(directory))
            assert read_log_rows(Path(directory) / "commitlog") == expected_rows(writer.records)

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
            Wanted(topics=frozenset({"标题".encode(), b"Tb", b"none"})),
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

    def test_a_segment_that_others_follow_may_not(self, log: StoreWriter) -> None:
        found, damage = self.read(log, is_last=False)
        last = log.written[-1]
        assert found == list(range(10))
        assert damage == [DamagedRange(last.physical_offset + last.size, 1 << 16, ZEROS)]


def test_no_message_is_wanted_where_a_choice_has_nothing_or_a_range_ends_before_it_begins() -> None:
    assert Wanted(topics=frozenset()).is_empty
    assert Wanted(times=(5, 4)).is_empty
    assert not Wanted().is_empty
