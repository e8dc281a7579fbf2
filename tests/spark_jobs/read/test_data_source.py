"""The format `rocketlens` in a session: rows are those of the log, and options choose like filters."""

import os
import re
import shutil
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

import oracles
from column_rows import expected_rows
from made_parts import made
from protocol.errors import ConfigError, CorruptRecord, FilterSyntaxError, StoreError
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.read._registered_source import RocketLensDataSource
from spark_jobs.read.source_options import NAMES, DataSourceOptions, read_options
from spark_jobs.run.progress import Silence
from storage.columns.names import KINDS
from storage.columns.wanted import HIGHEST, Wanted
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


def test_every_option_is_read_whatever_its_case() -> None:
    options = read_options(
        {
            "path": "s3://b/s", "Topic": "a, b", "tag": "X || Y", "QUEUE_ID": "3", "from": "5",
            "to": "9", "where": "a > 1", "queue_offset": "8-", "Physical_Offset": "4-17",
            "columns": "body,topic", "mode": "FailFast", "table": "damage", "commit_log": "/x,/y",
            "storage_options": '{"anon": true}', "startingOffset": "77", "maxSegmentsPerTrigger": "2",
            "maxBytesPerTrigger": "99999999999", "maxRecordsPerTrigger": "5",
        }
    )  # fmt: skip
    wanted = Wanted(
        topics=frozenset({b"a", b"b"}), tags=frozenset({b"X", b"Y"}), queue_ids=frozenset({3}), times=(5, 9),
        queue_offsets=(8, HIGHEST), physical_offsets=(4, 17), where="a > 1",
    )  # fmt: skip
    assert options == DataSourceOptions(
        path="s3://b/s", wanted=wanted, columns=("body", "topic"), mode="failfast", table="damage",
        commit_log=("/x", "/y"), storage='{"anon": true}', starting_offset="77", most_segments=2,
        most_bytes=99_999_999_999, most_records=5,
    )  # fmt: skip
    assert options.fails_fast


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"path": ""}, {"startingOffset": "soon"}, {"maxSegmentsPerTrigger": "0"}, {"table": "all"}),
        *({"queue_offset": ""}, {"queue_offset": "9-8"}, {"physical_offset": "1-2-3"}, {"push_filters": "true"}),
        *({"maxBytesPerTrigger": "1 MB"}, {"maxRecordsPerTrigger": "-1"}),
        *({"to": "never"}, {"topic": " , "}, {"queue_id": ""}, {"queue_id": "all"}),
        *({"from": "-1y"}, {"timezone": "Mars/Olympus"}, {"tag": "||"}),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str]) -> None:
    with pytest.raises((ConfigError, FilterSyntaxError)):
        read_options({"path": "/s", **options} if options and "path" not in options else options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "lax"}, "mode: 'lax', expected permissive or failfast"),
        ({"columns": "topic,boby"}, "no column 'boby'"),
        ({"queue_id": "x"}, "queue_id: 'x'"),
        ({"from": "soon"}, "from: 'soon' is neither"),
        ({"storage_options": "[1]"}, "expected a JSON object"),
    ],
)
def test_a_refusal_names_option_and_value(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_options({"path": "/s", **options})


def test_a_mask_is_rules_and_a_file_of_rules(tmp_path) -> None:
    (tmp_path / "masks").write_text("# more\n/1[3-9]{2,3}/\n")
    options = {"path": "/s", "mask": "keys\n$.a.b", "maskFile": str(tmp_path / "masks")}
    assert read_options(options).masked == ("keys", "$.a.b", "/1[3-9]{2,3}/")
    for more in ({"mask": ""}, {"mask": "kez"}, {"tag": "199"}, {"where": "a = 1"}, {"where": "KEYS = 'k'"}):
        with pytest.raises(ConfigError, match="mask"):
            read_options(options | more)


DOCUMENT = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()


def test_the_examples_run_and_find_what_is_there(session, g1_store, tmp_path, capsys) -> None:
    blocks = re.findall(r"^```python$(.*?)^```$", DOCUMENT, re.M | re.S)
    assert len(blocks) == 7
    out = f"file://{tmp_path}/export"
    run_export(ExportRequest(store=str(g1_store), out=out, format="parquet"), Silence())
    here = {"/path/to/store": str(g1_store), "s3://bucket/export": out, '"s3': '"file'}
    names = {}
    for block in blocks:
        for written, meant in here.items():
            block = block.replace(written, meant)
        exec(compile(block, "docs/spark.md", "exec"), names)
    records = [record for record in oracles.read_log(g1_store / "commitlog") if record.topic == "TopicTest"]
    assert names["count"] == len(records) == sum(row["count"] for row in names["per_minute"].collect())
    assert [row.body for row in names["found"].collect()] == ["Hello world"]
    assert names["damage"].count() == 0
    every = len(oracles.read_log(g1_store / "commitlog"))
    assert session.table("arrived").count() == every
    assert names["exported"].count() == names["dataset"].count_rows() == every
    assert "TopicTest|   52|" in capsys.readouterr().out


def test_every_column_and_option_is_explained() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \|", made(DOCUMENT), re.M)
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(KINDS) <= explained
    assert NAMES - {"path"} <= {name.lower() for name in explained}
