"""A stream over a store that grows while it is followed: every message once, and no more of it than there is."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from column_rows import expected_rows
from growing_store import GrowingStore
from protocol.errors import StoreError
from spark_jobs.read.data_source import struct_type
from spark_jobs.read.source_options import read_options
from spark_jobs.read.stream_reader import OFFSET, MessageStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("topic", "queue_offset", "physical_offset")


@pytest.fixture
def growing(tmp_path: Path) -> GrowingStore:
    store = GrowingStore(tmp_path / "store")
    for _ in range(45):
        store.add()
    store.flush()
    return store


def following(store: GrowingStore | str, **options: str) -> MessageStreamReader:
    from pyspark.sql.pandas.types import to_arrow_schema

    path = store if isinstance(store, str) else str(store.root)
    return MessageStreamReader(read_options({"path": path, **options}), to_arrow_schema(struct_type(NAMES)))


def offsets(reader: MessageStreamReader, start: int, end: int) -> list[int]:
    partitions = reader.partitions({OFFSET: start}, {OFFSET: end})
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return [offset for batch in batches for offset in batch.column("physical_offset").to_pylist()]


class Limit:
    """As pyspark's ReadMaxFiles."""

    def __init__(self, most: int) -> None:
        self.max_files = most


class TestReader:
    def test_a_stream_starts_where_it_is_told(self, growing: GrowingStore) -> None:
        end = growing.log.end
        assert following(growing).initialOffset() == {OFFSET: 0}
        assert following(growing, startingOffset="latest").initialOffset() == {OFFSET: end}
        assert following(growing, startingOffset="77").initialOffset() == {OFFSET: 77}

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

    def test_a_batch_holds_no_more_segments_than_allowed(self, growing: GrowingStore) -> None:
        reader = following(growing, maxSegmentsPerTrigger="1")
        assert reader.getDefaultReadLimit().max_files == 1
        at, steps, found = 0, 0, []
        while (end := reader.latestOffset({OFFSET: at}, Limit(1))[OFFSET]) > at:
            found += offsets(reader, at, end)
            at, steps = end, steps + 1
        assert steps == len(growing.log.segments) > 2
        assert found == [written.physical_offset for written in growing.writer.written]

    def test_what_expired_is_skipped_or_an_error(
        self, growing: GrowingStore, capsys: pytest.CaptureFixture[str]
    ) -> None:
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

    def test_before_spark_4_2_the_end_is_asked_for_alone(self, growing: GrowingStore) -> None:
        assert following(growing).latestOffset() == {OFFSET: growing.log.end}


class TestBehindUrls:
    @pytest.fixture
    def memory(self) -> Iterator[str]:
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


def test_a_query_follows_a_store_that_grows(session: "SparkSession", growing: GrowingStore, tmp_path: Path) -> None:
    """And goes on where it was, when it is started again from its checkpoint."""
    stream = (
        session.readStream.format("rocketlens").option("columns", ",".join(NAMES)).load(str(growing.root))
    )  # fmt: skip

    def run() -> None:
        query: Any = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .start()
        )
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
