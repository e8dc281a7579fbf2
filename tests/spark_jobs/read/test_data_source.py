"""The format `rocketlens` in a session: rows are those of the log, and options choose like filters."""

import os
import shutil
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import cast

import pyarrow as pa
import pytest

from column_rows import expected_rows
from protocol.errors import ConfigError, CorruptRecord, StoreError
from spark_jobs.read._registered_source import RocketLensDataSource
from store_writer import START_TIMESTAMP, StoreWriter

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SEGMENT = 4096


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def rows_of(batches):
    rows = []
    for row in (row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")):
        for name in ("store_timestamp", "born_timestamp"):
            if name in row:
                row[name] = round(row[name].timestamp() * 1000)
        rows.append(row)
    return sorted(rows, key=lambda row: row["physical_offset"])


def load(session, root, **options):
    return session.read.format("rocketlens").options(**options).load(str(root))


def read_here(root, **options):
    source = RocketLensDataSource({"path": str(root), **options})
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in cast("Iterator[pa.RecordBatch]", reader.read(part))]
    return rows_of(batches)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    with StoreWriter(tmp_path_factory.mktemp("source") / "store", segment_size=SEGMENT) as writer:
        for number in range(80):
            body = b"body of %d" % number
            writer.append(
                ("Orders", "Payments")[number % 2], zlib.compress(body) if number % 7 == 0 else body,
                sys_flag=int(number % 7 == 0), queue_id=number % 3, tags=(None, "Aa", "BB")[number // 2 % 3],
                keys=f"k{number} all", unique_key=f"U{number}", properties={"n": str(number), "标题": "值"},
                store_timestamp=START_TIMESTAMP + number * 1000 - (number % 5) * 3000,
            )  # fmt: skip
    return writer


class TestSession:
    """What only a session shows; what is read by which options is the same in this process, below."""

    @pytest.mark.parametrize("is_bucket", [False, pytest.param(True, marks=pytest.mark.soak)])
    def test_every_message_is_a_row_in_a_directory_and_in_a_bucket(self, session, store, is_bucket, request) -> None:
        if is_bucket:
            objects = request.getfixturevalue("objects")
            frame = load(session, objects.put(store.root, "archive"), storage_options=objects.options)
        else:
            frame = load(session, store.root)
        assert frame.rdd.getNumPartitions() == len(store.log.segments) >= 3
        assert rows_of(frame.toArrow().to_batches()) == expected_rows(store.records)

    @pytest.mark.soak
    def test_a_frame_that_is_asked_several_times_forgets_no_rows(self, session, store) -> None:
        """In a session that has Spark offer filters to data sources in Python, from which it then takes them over."""
        setting = "spark.sql.python.filterPushdown.enabled"
        session.conf.set(setting, "true")
        try:
            frame = load(session, store.root, columns="topic")
            counts = (frame.where("topic = 'Orders'").count(), frame.count())
        finally:
            session.conf.unset(setting)
        assert counts == (40, 80)

    @pytest.mark.soak
    def test_a_table_of_a_catalog_has_its_options_for_good(self, session, store) -> None:
        session.sql(
            "CREATE TABLE messages USING rocketlens OPTIONS (Topic 'Orders', columns 'topic,physical_offset') "
            f"LOCATION '{store.root}' COMMENT 'of ours' TBLPROPERTIES (team = 'ours')"
        )
        try:
            found = rows_of(session.table("messages").toArrow().to_batches())
        finally:
            session.sql("DROP TABLE messages")
        names = ("topic", "physical_offset")
        expected = [{name: row[name] for name in names} for row in expected_rows(store.records)]
        assert found == [row for row in expected if row["topic"] == "Orders"]

    def test_errors_are_sentences(self, session, store, tmp_path) -> None:
        with pytest.raises(Exception, match=f"{tmp_path} is no store that can be served"):
            load(session, tmp_path, columns="topic").count()
        session.sql(f"CREATE TABLE messages (topic string) USING rocketlens LOCATION '{store.root}'")
        try:
            with pytest.raises(Exception, match="create it without a list of columns"):
                session.table("messages").count()
        finally:
            session.sql("DROP TABLE messages")


class TestOptions:
    def test_options_choose_like_filters(self, store: StoreWriter) -> None:
        found = read_here(
            store.root, topic="Orders,none", tag="Aa || BB", queue_id="0, 1", where="n > 10",
            **{"from": str(START_TIMESTAMP + 5000), "to": moment(START_TIMESTAMP + 60_000).isoformat()},
        )  # fmt: skip
        expected = [
            row
            for row in expected_rows(store.records)
            if row["topic"] == "Orders" and row["tags"] in ("Aa", "BB") and row["queue_id"] in (0, 1)
            and int(row["properties"]["n"]) > 10
            and START_TIMESTAMP + 5000 <= row["store_timestamp"] <= START_TIMESTAMP + 60_000
        ]  # fmt: skip
        assert found == expected != []
        options = {"queue_offset": "4-9", "physical_offset": "3000-12000", "queue_id": "0,2"}
        assert [row["physical_offset"] for row in read_here(store.root, **options)] == [
            each.physical_offset for each in store.written
            if 3000 <= each.physical_offset <= 12_000 and 4 <= each.queue_offset <= 9 and each.queue_id in (0, 2)
        ] != []  # fmt: skip

    def test_what_is_masked_is_in_no_row(self, store: StoreWriter) -> None:
        rows = read_here(store.root, mask="keys\n/body of [0-9]+/", columns="physical_offset,keys,body,tags")
        assert len(rows) == 80
        assert {(tuple(row["keys"]), row["body"]) for row in rows} == {(("***", "***"), b"***")}

    def test_a_schema_of_other_types_and_writing_are_refused(self, store: StoreWriter) -> None:
        from pyspark.sql.types import StringType, StructField, StructType

        source = RocketLensDataSource({"path": str(store.root)})
        with pytest.raises(ConfigError, match="column queue_id: type string, expected int"):
            source.reader(StructType([StructField("queue_id", StringType())]))
        with pytest.raises(ConfigError, match="the format rocketlens reads stores, and never writes to one"):
            source.writer(source.schema(), overwrite=True)


class TestDamage:
    @pytest.fixture(scope="class")
    def damaged(self, store, tmp_path_factory):
        root = tmp_path_factory.mktemp("damaged") / "store"
        shutil.copytree(store.root, root)
        segments = sorted((root / "commitlog").iterdir())
        os.remove(segments[1])
        with segments[0].open("r+b") as file:
            file.seek(store.written[3].physical_offset + 89)
            file.write(b"#")
        return root

    def test_what_is_damaged_is_no_row_and_damage_is_a_table_of_its_own(self, store, damaged) -> None:
        third = store.written[3]
        assert read_here(damaged) == [
            row for row in expected_rows(store.records)
            if row["physical_offset"] != third.physical_offset
            and not SEGMENT <= row["physical_offset"] < 2 * SEGMENT
        ]  # fmt: skip
        rows = read_here(damaged, table="damage")
        assert [(row["physical_offset"], row["length"], row["reason"]) for row in rows] == [
            (third.physical_offset, third.size, "its body does not match its CRC"),
            (SEGMENT, SEGMENT, "no segment is there"),
        ]
        assert rows[0]["path"].endswith("/commitlog/00000000000000000000")

    def test_failfast_names_the_first_damage(self, store, damaged, tmp_path) -> None:
        with pytest.raises(StoreError, match="physical offset 4096: 4,096 bytes missing: no segment is there"):
            read_here(damaged, mode="FAILFAST")
        (tmp_path / "commitlog").mkdir()
        shutil.copy(min((damaged / "commitlog").iterdir()), tmp_path / "commitlog")
        said = f"physical offset {store.written[3].physical_offset}: no intact record"
        with pytest.raises(CorruptRecord, match=said):
            read_here(tmp_path, mode="failfast")
