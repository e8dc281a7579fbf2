"""A stream over a store that grows while it is followed: every message once, and no more of it than there is."""

import fsspec
import pytest

import rocketlens
from column_rows import expected_rows
from exported_files import append, with_date
from growing_store import GrowingStore
from protocol.errors import StoreError
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.read._stream_reader import OFFSET, MessageStreamReader
from spark_jobs.read.data_source import check_schema, struct_type
from spark_jobs.read.source_options import read_options

NAMES = ("topic", "queue_offset", "physical_offset")


@pytest.fixture
def growing(tmp_path):
    store = GrowingStore(tmp_path / "store")
    for _ in range(45):
        store.add()
    store.flush()
    return store


def following(store: GrowingStore | str, **options: str) -> MessageStreamReader:
    path = store if isinstance(store, str) else str(store.root)
    return MessageStreamReader(read_options({"path": path, **options}), check_schema(struct_type(NAMES)))


def offsets(reader: MessageStreamReader, start: int, end: int) -> list[int]:
    partitions = reader.partitions({OFFSET: start}, {OFFSET: end})
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return [offset for batch in batches for offset in batch.column("physical_offset").to_pylist()]


def in_batches(reader):
    """Start, end and messages of the micro-batches of a stream, as Spark asks for them."""
    at, limit = reader.initialOffset()[OFFSET], reader.getDefaultReadLimit()
    while (end := reader.latestOffset({OFFSET: at}, limit)[OFFSET]) > at:
        yield at, end, offsets(reader, at, end)
        at = end


class TestReader:
    def test_a_stream_starts_where_it_is_told(self, growing: GrowingStore) -> None:
        end = growing.log.end
        assert following(growing).initialOffset() == {OFFSET: 0}
        assert following(growing, startingOffset="latest").initialOffset() == {OFFSET: end}
        assert following(growing, startingOffset="77").initialOffset() == {OFFSET: 77}
        assert following(growing).latestOffset() == {OFFSET: end}, "before Spark 4.2 it is asked for alone"

    def test_every_step_reads_what_came_and_nothing_torn(self, growing: GrowingStore) -> None:
        reader = following(growing)
        at, found = 0, []
        for step in range(6):
            end = reader.latestOffset({OFFSET: at})[OFFSET]
            found += offsets(reader, at, end)
            at = end
            if step == 2:
                growing.add_torn()
            elif growing.is_torn:
                growing.mend()
            else:
                growing.add()
            growing.flush()
        end = reader.latestOffset({OFFSET: at})[OFFSET]
        found += offsets(reader, at, end)
        assert found == [written.physical_offset for written in growing.writer.written]
        assert reader.latestOffset({OFFSET: end}) == {OFFSET: end}
        assert reader.partitions({OFFSET: end}, {OFFSET: end}) == []

    @pytest.mark.parametrize("most", [1, 500, 10**9])
    def test_a_batch_holds_no_more_than_allowed_but_for_a_single_record_and_is_the_same_when_it_is_read_again(
        self, growing, most
    ) -> None:
        written = [each.physical_offset for each in growing.writer.written]
        batches = list(in_batches(following(growing, maxBytesPerTrigger=str(most))))
        assert [offset for _, _, found in batches for offset in found] == written
        assert all(found for _, _, found in batches)
        assert all(end - at <= most or len(found) == 1 for at, end, found in batches)
        if most == 1:
            assert len(batches) == len(written) > 40
        segments = [found for _, _, found in in_batches(following(growing, maxSegmentsPerTrigger="1"))]
        assert len(segments) == len(growing.log.segments) > 2
        growing.add()
        growing.flush()
        assert [offsets(following(growing), at, end) for at, end, _ in batches] == [found for _, _, found in batches]

    def test_of_several_limits_the_least_counts_and_what_is_asked_at_once_has_none(self, growing: GrowingStore) -> None:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

        limits = {"maxSegmentsPerTrigger": "2", "maxBytesPerTrigger": "3000", "maxRecordsPerTrigger": "3"}
        reader = following(growing, **limits)
        assert reader.getDefaultReadLimit() == ReadMaxFiles(2)
        assert {len(found) for _, _, found in in_batches(reader)} <= {1, 2, 3}
        assert reader.latestOffset({OFFSET: 0}, ReadAllAvailable()) == {OFFSET: growing.log.end}
        assert following(growing, maxBytesPerTrigger="3000").getDefaultReadLimit() == ReadMaxBytes(3000)
        assert following(growing, maxRecordsPerTrigger="3").getDefaultReadLimit() == ReadMaxRows(3)
        assert following(growing).getDefaultReadLimit() == ReadAllAvailable()

    def test_a_query_of_what_is_there_now_takes_nothing_that_comes_later(self, growing: GrowingStore) -> None:
        reader = following(growing, maxRecordsPerTrigger="20")
        reader.prepareForTriggerAvailableNow()
        before = [each.physical_offset for each in growing.writer.written]
        growing.add()
        growing.flush()
        assert [offset for _, _, found in in_batches(reader) for offset in found] == before
        end = reader.latestOffset({OFFSET: growing.log.end})
        assert end == {OFFSET: growing.log.end}

    def test_what_expired_is_skipped_or_an_error(self, growing, capsys) -> None:
        growing.expire()
        end = growing.log.end
        minimum = following(growing).initialOffset()[OFFSET]
        assert minimum > 0
        found = offsets(following(growing), 0, end)
        assert found == [each.physical_offset for each in growing.writer.written if each.physical_offset >= minimum]
        assert f"{minimum} bytes from physical offset 0 on have expired" in capsys.readouterr().err
        with pytest.raises(StoreError, match="have expired"):
            following(growing, mode="failfast").partitions({OFFSET: 0}, {OFFSET: end})

    def test_a_log_that_was_cut_is_told(self, growing: GrowingStore) -> None:
        beyond = growing.log.end + 100
        assert following(growing).latestOffset({OFFSET: beyond}) == {OFFSET: beyond}
        with pytest.raises(StoreError, match="it was truncated"):
            following(growing, mode="failfast").latestOffset({OFFSET: beyond})


class TestBehindUrls:
    @pytest.fixture
    def memory(self):
        yield "memory://rocketlens/stream"
        fsspec.filesystem("memory").rm("/rocketlens", recursive=True)

    def test_the_end_is_found_by_reading_the_last_segment(self, growing: GrowingStore, memory: str) -> None:
        system = fsspec.filesystem("memory")
        at, found = 0, []
        for _ in range(3):
            system.put(f"{growing.root}/", "/rocketlens/stream/", recursive=True)
            reader = following(memory)
            end = reader.latestOffset({OFFSET: at})[OFFSET]
            found += offsets(reader, at, end)
            at = end
            growing.add()
            growing.flush()
        written = growing.writer.written[:-1]
        assert found == [each.physical_offset for each in written]
        assert following(memory, startingOffset="latest").initialOffset() == {OFFSET: at}


@pytest.mark.soak  # in each run: the test below, and the stream of docs/spark.md
def test_a_query_follows_a_store_that_grows(session, growing, tmp_path) -> None:
    """And goes on where it was, when it is started again from its checkpoint."""
    stream = session.readStream.format("rocketlens").option("columns", ",".join(NAMES)).load(str(growing.root))

    def run() -> None:
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", str(tmp_path / "out")).start()
        try:
            query.processAllAvailable()
            growing.add("Another")
            growing.flush()
            query.processAllAvailable()
        finally:
            query.stop()

    run()
    growing.add("Third")
    growing.flush()
    run()
    rows = session.read.parquet(str(tmp_path / "out")).orderBy("physical_offset").toArrow().to_pylist()
    assert rows == [{name: row[name] for name in NAMES} for row in expected_rows(growing.writer.records)]


def test_a_stream_and_the_command_grow_one_table_in_turns_which_spark_reads(session, growing, tmp_path) -> None:
    place, partitions = OutputPlace(f"file://{tmp_path}/table"), ("topic", "date")
    options = {"format": "parquet", "partition_by": partitions}
    first = append(growing.writer, place, **options)
    growing.add("Another")
    growing.flush()
    grow = rocketlens.append_batches(growing.root, tmp_path / "table", **options)
    frame = rocketlens.spark(session).readStream.format("rocketlens").option("columns", "physical_offset,size")
    writer = frame.load(str(growing.root)).writeStream.foreachBatch(grow)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(180)
    query.stop()
    growing.add("Third")
    growing.flush()
    assert (first.messages, append(growing.writer, place, **options).messages) == (45, 1)
    table = session.read.parquet(f"{tmp_path}/table/data")
    types = dict(table.dtypes)
    assert [types[each] for each in ("store_timestamp", "date", "topic", "keys", "properties", "body")] == [
        "timestamp", "date", "string", "array<string>", "map<string,string>", "binary",
    ]  # fmt: skip
    names = ("physical_offset", "topic", "date", "body")
    rows = table.select(*names).orderBy("physical_offset").toArrow().to_pylist()
    expected = map(with_date, expected_rows(growing.writer.records))
    assert [row | {"date": row["date"].isoformat()} for row in rows] == [
        {name: row[name] for name in names} for row in expected
    ]
