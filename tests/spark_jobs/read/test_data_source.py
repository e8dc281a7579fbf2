"""The format `rocketlens` in a session: rows are those of the log, filters those of Spark, wherever decided."""

import os
import shutil
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rocketlens
from column_rows import expected_rows
from object_store import ObjectStore
from spark_jobs.read._registered_source import RocketLensDataSource
from store_writer import START_TIMESTAMP, StoreWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


SEGMENT = 4096


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def rows_of(frame: "DataFrame") -> list[dict[str, Any]]:
    """Rows as the oracle tells them, by physical offset."""
    rows = []
    for row in frame.toArrow().to_pylist(maps_as_pydicts="strict"):
        for name in ("store_timestamp", "born_timestamp"):
            if name in row:
                row[name] = round(row[name].timestamp() * 1000)
        rows.append(row)
    return sorted(rows, key=lambda row: row["physical_offset"])


def test_what_is_masked_is_hidden_before_filters_of_spark_see_it(session: "SparkSession", store: StoreWriter) -> None:
    reader = session.read.format("rocketlens").option("mask", "keys\n/body of [0-9]+/")
    frame = reader.option("columns", "physical_offset,keys,body,tags").load(str(store.root))
    rows = rows_of(frame)
    assert len(rows) == 80
    assert {(tuple(row["keys"]), row["body"]) for row in rows} == {(("***", "***"), b"***")}
    assert frame.filter("array_contains(keys, 'k7')").count() == 0
    assert frame.filter("array_contains(keys, '***')").count() == 80


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    """Three segments, two topics, tags, clocks that step back."""
    writer = StoreWriter(tmp_path_factory.mktemp("source") / "store", segment_size=SEGMENT)
    for number in range(80):
        body = b"body of %d" % number
        writer.append(
            ("Orders", "Payments")[number % 2],
            zlib.compress(body) if number % 7 == 0 else body,
            sys_flag=int(number % 7 == 0),
            queue_id=number % 3,
            tags=(None, "Aa", "BB")[number // 2 % 3],
            keys=f"k{number} all",
            unique_key=f"U{number}",
            properties={"n": str(number), "标题": "值"},
            store_timestamp=START_TIMESTAMP + number * 1000 - (number % 5) * 3000,
        )
    writer.close()
    return writer


def load(session: "SparkSession", root: Path | str, **options: str) -> "DataFrame":
    return session.read.format("rocketlens").options(**options).load(str(root))


def test_every_message_is_a_row_in_a_directory_and_in_a_bucket(
    session: "SparkSession", store: StoreWriter, objects: ObjectStore
) -> None:
    there = load(session, objects.put(store.root, "archive"), storage_options=objects.options)
    for frame in (load(session, store.root), there):
        assert frame.rdd.getNumPartitions() == len(store.log.segments) >= 3
        assert rows_of(frame) == expected_rows(store.records)
    with pytest.raises(Exception, match="no store that can be served"):
        load(session, "s3://stores/nothing", storage_options=objects.options).count()


def test_a_frame_that_is_asked_several_times_forgets_no_rows(session: "SparkSession", store: StoreWriter) -> None:
    """Also in a session that has Spark offer filters to data sources in Python, from which it then takes them over."""
    setting = "spark.sql.python.filterPushdown.enabled"
    for enabled in ("false", "true"):
        session.conf.set(setting, enabled)
        try:
            frame = load(session, store.root)
            orders, payments = (frame.where(f"topic = '{topic}'") for topic in ("Orders", "Payments"))
            counts = (orders.count(), frame.count(), orders.union(payments).count(), payments.count())
        finally:
            session.conf.unset(setting)
        assert counts == (40, 80, 80, 40)


class TestOptions:
    def test_options_choose_like_filters(self, session: "SparkSession", store: StoreWriter) -> None:
        frame = load(
            session, store.root, topic="Orders,none", tag="Aa || BB", queue_id="0, 1", where="n > 10",
            **{"from": str(START_TIMESTAMP + 5000), "to": moment(START_TIMESTAMP + 60_000).isoformat()},
        )  # fmt: skip
        expected = [
            row
            for row in expected_rows(store.records)
            if row["topic"] == "Orders" and row["tags"] in ("Aa", "BB") and row["queue_id"] in (0, 1)
            and int(row["properties"]["n"]) > 10
            and START_TIMESTAMP + 5000 <= row["store_timestamp"] <= START_TIMESTAMP + 60_000
        ]  # fmt: skip
        assert rows_of(frame) == expected
        assert expected
        options = {"queue_offset": "4-9", "physical_offset": "3000-12000", "queue_id": "0,2"}
        found = [row["physical_offset"] for row in rows_of(load(session, store.root, **options))]
        assert found == [
            each.physical_offset for each in store.written
            if 3000 <= each.physical_offset <= 12_000 and 4 <= each.queue_offset <= 9 and each.queue_id in (0, 2)
        ] != []  # fmt: skip
        for options, said in (({"topics": "T"}, "no option 'topics'"), ({"where": "a >"}, "a >")):
            with pytest.raises(Exception, match=r"ConfigError|FilterSyntaxError") as raised:
                load(session, store.root, **options)
            assert said in str(raised.value)

    def test_columns_are_chosen_by_option_or_schema(self, session: "SparkSession", store: StoreWriter) -> None:
        assert load(session, store.root, columns="tags, physical_offset").columns == ["tags", "physical_offset"]
        schema = "physical_offset bigint, keys array<string>, properties map<string,string>"
        frame = session.read.format("rocketlens").schema(schema).load(str(store.root))
        names = ("physical_offset", "keys", "properties")
        assert rows_of(frame) == [{name: row[name] for name in names} for row in expected_rows(store.records)]
        with pytest.raises(Exception, match="column queue_id: type string, expected int"):
            session.read.format("rocketlens").schema("queue_id string").load(str(store.root)).count()


class TestCatalog:
    """A table of a catalog has its options for good, however it names the store."""

    @pytest.fixture(autouse=True)
    def dropped(self, session: "SparkSession") -> Iterator[None]:
        yield
        session.sql("DROP TABLE IF EXISTS messages")

    @pytest.mark.parametrize(
        "create",
        [
            "CREATE TABLE messages USING rocketlens OPTIONS (path '{store}')",
            "CREATE TABLE messages USING rocketlens LOCATION '{store}' COMMENT 'of ours' TBLPROPERTIES (team = 'ours')",
        ],
    )
    def test_a_table_is_the_store(self, session: "SparkSession", store: StoreWriter, create: str) -> None:
        session.sql(create.format(store=store.root))
        assert rows_of(session.table("messages")) == expected_rows(store.records)

    def test_options_of_a_table_choose_like_those_of_a_frame(self, session: "SparkSession", store: StoreWriter) -> None:
        options = "(Topic 'Orders', columns 'topic,physical_offset')"
        session.sql(f"CREATE TABLE messages USING rocketlens OPTIONS {options} LOCATION '{store.root}'")
        expected = rows_of(load(session, store.root, topic="Orders", columns="topic,physical_offset"))
        assert len(expected) == 40
        assert rows_of(session.table("messages")) == expected
        assert session.sql("SELECT DISTINCT topic FROM messages").collect() == [("Orders",)]

    def test_a_table_whose_columns_were_given_says_how_to_make_it(
        self, session: "SparkSession", store: StoreWriter
    ) -> None:
        session.sql(f"CREATE TABLE messages (topic string) USING rocketlens LOCATION '{store.root}'")
        with pytest.raises(Exception, match="create it without a list of columns"):
            session.table("messages").count()

    def test_writing_is_refused_with_a_sentence(self, session: "SparkSession", tmp_path: Path) -> None:
        with pytest.raises(Exception, match="the format rocketlens reads stores, and never writes to one"):
            session.range(3).write.format("rocketlens").mode("overwrite").save(str(tmp_path))
        assert os.listdir(tmp_path) == []


class TestDamage:
    @pytest.fixture(scope="class")
    def damaged(self, store: StoreWriter, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
        """A copy with two damaged messages and without its second segment; the offsets of what is lost."""
        root = tmp_path_factory.mktemp("damaged") / "store"
        shutil.copytree(store.root, root)
        segments = sorted((root / "commitlog").iterdir())
        os.remove(segments[1])
        lost = [each.physical_offset for each in store.written if SEGMENT <= each.physical_offset < 2 * SEGMENT]
        third = store.written[3]
        with segments[0].open("r+b") as file:
            file.seek(third.physical_offset + 89)
            file.write(b"#")
        return root, [third.physical_offset, *lost]

    def test_what_is_damaged_is_no_row_and_damage_is_a_table_of_its_own(
        self, session: "SparkSession", store: StoreWriter, damaged: tuple[Path, list[int]]
    ) -> None:
        root, lost = damaged
        expected = [row for row in expected_rows(store.records) if row["physical_offset"] not in lost]
        assert rows_of(load(session, root)) == expected
        rows = sorted(load(session, damaged[0], table="damage").collect(), key=lambda row: row.physical_offset)
        third = store.written[3]
        assert [(row.physical_offset, row.length, row.reason) for row in rows] == [
            (third.physical_offset, third.size, "its body does not match its CRC"),
            (SEGMENT, SEGMENT, "no segment is there"),
        ]
        assert rows[0].path.endswith("/commitlog/00000000000000000000")

    def test_failfast_names_the_first_damage(
        self, session: "SparkSession", store: StoreWriter, damaged: tuple[Path, list[int]], tmp_path: Path
    ) -> None:
        with pytest.raises(Exception, match="physical offset 4096: 4,096 bytes missing: no segment is there"):
            load(session, damaged[0], mode="FAILFAST").count()
        first = sorted((damaged[0] / "commitlog").iterdir())[0]
        (tmp_path / "commitlog").mkdir()
        shutil.copy(first, tmp_path / "commitlog")
        with pytest.raises(Exception, match=f"physical offset {store.written[3].physical_offset}: no intact record"):
            load(session, tmp_path, mode="failfast").count()


def test_the_format_is_registered_by_one_call(session: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[SparkSession] = []
    monkeypatch.setattr("spark_jobs.read.data_source.register", registered.append)
    assert rocketlens.spark().sparkContext is session.sparkContext
    assert [each.sparkContext for each in registered] == [session.sparkContext]
    assert RocketLensDataSource.name() == "rocketlens"
