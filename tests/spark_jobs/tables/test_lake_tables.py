"""Tables of each format: each message once, whatever was killed, and with other writers beside, at every place."""

import itertools
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pkgutil import resolve_name

import pytest
from starlette.responses import JSONResponse

from column_rows import expected_rows
from dying import every_death
from exported_files import DAY, append, write_days
from lake_tables import Lake, with_moto
from object_store import object_store_process
from protocol.errors import ConfigError, StoreError
from spark_jobs.places.output_place import OutputPlace
from store_writer import START_TIMESTAMP, StoreWriter


def soak(value):
    return pytest.param(value, marks=pytest.mark.soak)


FEW = ("physical_offset", "unique_key", "store_timestamp")
STRANGE_TOPICS = ("..%2F", "../x", "a/b", "=", "%", ".", "..", " ", "日本", "__HIVE_DEFAULT_PARTITION__")
STRANGE_TOPICS += ("a\0b", "a\nb")
LAKES = ("iceberg", "delta")
ICEBERG = ("iceberg", soak("delta"))
"""Of what is said in the same words to both."""

TABLES = {
    "iceberg": "spark_jobs.tables._iceberg_table:IcebergTable",
    "delta": "spark_jobs.tables._delta_table:DeltaTable",
    "jsonl": "spark_jobs.tables._files_table:FilesTable",
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    with object_store_process(tmp_path_factory.mktemp("moto")) as objects:
        yield objects


@pytest.fixture
def new_lake(format_, tmp_path):
    numbers = itertools.count()
    return lambda: Lake(format_, OutputPlace(f"file://{tmp_path}/table{next(numbers)}"))


@pytest.fixture
def lake(new_lake):
    return new_lake()


def expected(store, start=0):
    return [row for row in expected_rows(store.records) if row["physical_offset"] >= start]


@pytest.mark.parametrize("format_", ["csv", *LAKES])
def test_each_run_appends_what_came_since_the_last_one(store: StoreWriter, lake: Lake) -> None:
    options = {**lake.options, "partition_by": ("topic", "date")}
    first = append(store, lake.place, **options)
    assert lake.rows() == expected(store)
    write_days(store, 7, 36)
    second = append(store, lake.place, **options)
    assert (first.messages, second.messages) == (36, 7)
    assert lake.rows() == expected(store)
    before = lake.place.objects("")
    assert append(store, lake.place, **options).details.is_empty
    assert lake.place.objects("") == before
    end = first.details.stop
    commits = [(each.record.start, each.record.stop, each.record.rows) for each in lake.commits()]
    assert commits == [(0, end, 36), (end, second.details.stop, 7)]
    assert lake.unnamed_files() == set()


@pytest.mark.parametrize("format_", ICEBERG)
def test_wherever_a_run_dies_the_next_one_leaves_each_message_once(store, new_lake, monkeypatch) -> None:
    lakes: list[Lake] = []

    def work() -> None:
        lakes.append(new_lake())
        append(store, lakes[-1].place, **lakes[-1].options, columns=FEW, partition_by=())

    write_days(store, 12, 36)
    keys = [row["physical_offset"] for row in expected(store)]
    assert len({each // 4096 for each in keys}) == 2, "two tasks"
    deaths = []
    for death in every_death(work, monkeypatch, each=3):
        lake = lakes[-1]
        append(store, lake.place, **lake.options, columns=FEW, partition_by=())
        assert [row["physical_offset"] for row in lake.rows()] == keys, death
        assert len(lake.commits()) == 1, death
        assert lake.unnamed_files() == set(), death
        assert lake.left_of_runs() == set(), death
        deaths.append(death)
    assert len(deaths) == 2 * 3, deaths


@pytest.mark.parametrize("format_", ["jsonl", *LAKES])
def test_of_two_runs_at_once_one_wins_and_the_other_ends_by_its_name(store, lake, monkeypatch) -> None:
    kind, name = resolve_name(TABLES[lake.format]), "commit" if lake.format == "jsonl" else "_change"
    append(store, lake.place, **lake.options)
    write_days(store, 9, 36)
    change = getattr(kind, name)

    def change_second(self: object, *rest: object) -> object:
        monkeypatch.setattr(kind, name, change)
        append(store, lake.place, **lake.options)
        return change(self, *rest)

    monkeypatch.setattr(kind, name, change_second)
    said = r"(is that of another|was changed by the) run:? [0-9a-f-]+ of .*; what .* removed"
    with pytest.raises(StoreError, match=said):
        append(store, lake.place, **lake.options)
    assert lake.rows() == expected(store)
    assert lake.unnamed_files() == set()
    assert lake.left_of_runs() == set()


@pytest.mark.parametrize("format_", LAKES)
def test_of_two_first_runs_at_once_one_wins(store: StoreWriter, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = resolve_name(TABLES[lake.format])
    layout = kind.layout

    def layout_second(self: object, shape: object) -> object:
        monkeypatch.setattr(kind, "layout", layout)
        append(store, lake.place, **lake.options)
        return layout(self, shape)  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "layout", layout_second)
    with pytest.raises(StoreError, match="was changed by the run"):
        append(store, lake.place, **lake.options)
    assert lake.rows() == expected(store)


def test_a_run_that_finds_nothing_new_loads_neither_pyiceberg_nor_what_it_needs(store, tmp_path) -> None:
    catalog = {"uri": f"sqlite:///{tmp_path}/other #1.db", "catalog": "of-mine"}
    lake = Lake("iceberg", OutputPlace(f"file://{tmp_path}/table"), catalog)
    append(store, lake.place, **lake.options)
    code = (
        "import sys; from spark_jobs.run.progress import Silence; from spark_jobs.tables.append import run_append\n"
        "from spark_jobs.tables.table_request import TableRequest\n"
        f"request = TableRequest(store={str(store.root)!r}, table='{tmp_path}/table', format='iceberg',\n"
        f"                       since_last=True, partition_by=('topic', 'date'), catalog={lake.catalog})\n"
        "print(run_append(request, Silence()).details.is_empty)\n"
        "print(*{'pyiceberg', 'pydantic', 'sqlalchemy', 'fsspec', 'pyspark'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60)
    assert done.stdout.split() == ["True"]


@pytest.mark.parametrize("format_", ["parquet", *LAKES])
def test_topics_of_any_name_are_values(lake, tmp_path) -> None:
    topics = STRANGE_TOPICS if lake.format == "parquet" else (*STRANGE_TOPICS, "%" * 127, "")
    writer = StoreWriter(tmp_path / "store")
    for topic in topics:
        writer.append(topic, b"x", index=False, queue=False)
    writer.flush()
    append(writer, lake.place, **lake.options, partition_by=("topic",))
    assert [row["topic"] or "" for row in lake.rows()] == list(topics)
    assert lake.unnamed_files() == set()


class TestShape:
    @pytest.mark.parametrize("format_", ["jsonl", *LAKES])
    def test_a_column_may_come_later(self, store: StoreWriter, lake: Lake) -> None:
        more = {**lake.options, "columns": ("topic", *FEW, "tags", "queue_id", "keys", "properties")}
        append(store, lake.place, **lake.options, columns=FEW, partition_by=("date",))
        write_days(store, 12, 36)
        append(store, lake.place, **more, partition_by=("date",))
        came = (*FEW, "topic", "tags", "queue_id", "keys", "properties")
        assert lake.commits()[-1].shape.columns == came
        rows = [
            {name: row[name] if number >= 36 or name in FEW else None for name in came}
            for number, row in enumerate(expected(store))
        ]
        for compact_bytes in (None, 1 << 20):
            if compact_bytes:
                append(store, lake.place, **more, partition_by=("date",), compact_bytes=compact_bytes)
            assert [{name: row.get(name) for name in came} for row in lake.rows()] == rows
        if lake.format == "iceberg":
            start, table = "write.metadata.metrics.column.", lake.iceberg()
            named = {name.removeprefix(start) for name in table.properties if name.startswith(start)}
            assert named == {"keys.element", "properties.key", "properties.value"}
            assert named < set(table.schema().column_names), "catalogs refuse those of a column that is not there"


@pytest.mark.parametrize("format_", ["csv", *LAKES])
class TestHousekeeping:
    def test_small_files_are_put_together(self, store: StoreWriter, lake: Lake) -> None:
        append(store, lake.place, **lake.options)
        write_days(store, 6, 36)
        append(store, lake.place, **lake.options)
        many = len(lake.files())
        report = append(store, lake.place, **lake.options, compact_bytes=1 << 20)
        partitions = {(row["topic"], row["store_timestamp"] // DAY) for row in expected(store)}
        assert len(lake.files()) == len(partitions) < many
        assert report.details.removed_files > many - len(partitions)
        assert lake.rows() == expected(store)
        assert append(store, lake.place, **lake.options, compact_bytes=1 << 20).details.removed_files == 0
        write_days(store, 3, 42)
        append(store, lake.place, **lake.options)
        assert lake.rows() == expected(store)


@pytest.mark.parametrize("format_", LAKES)
def test_what_other_programs_commit_between_changes_no_position(store: StoreWriter, lake: Lake) -> None:
    append(store, lake.place, **lake.options)
    if lake.format == "delta":
        lake.delta().optimize.compact()
    else:
        table = lake.iceberg()
        table.append(lake.arrow().slice(0, 0))
        table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
        assert lake.commits() == [], "the snapshot with the position has expired"
    write_days(store, 7, 36)
    assert append(store, lake.place, **lake.options).messages == 7
    assert lake.rows() == expected(store)


def test_a_delta_table_that_was_set_back_is_refused(store, tmp_path) -> None:
    lake = Lake("delta", OutputPlace(f"file://{tmp_path}/table"))
    append(store, lake.place, **lake.options)
    write_days(store, 7, 36)
    append(store, lake.place, **lake.options)
    lake.delta().restore(1)
    with pytest.raises(ConfigError, match="was set back by RESTORE"):
        append(store, lake.place, **lake.options)


@pytest.mark.parametrize("format_", ICEBERG)
def test_a_table_behind_a_url(store, objects, tmp_path, format_) -> None:
    catalog = {"uri": f"sqlite:///{tmp_path}/catalog.db"} if format_ == "iceberg" else {}
    if catalog:
        with pytest.raises(ConfigError, match="name the catalog of the table"):
            append(store, with_moto(objects, tmp_path.name), format="iceberg")
    lake = Lake(format_, with_moto(objects, f"{tmp_path.name}/table"), catalog)
    append(store, lake.place, **lake.options)
    write_days(store, 7, 36)
    append(store, lake.place, **lake.options, compact_bytes=1 << 20)
    assert lake.rows() == expected(store)
    assert [each.record.rows for each in lake.commits()] == [36, 7, 0]
    assert lake.left_of_runs() == set()


class TestRest:
    @pytest.fixture
    def rest(self, tmp_path):
        from rest_catalog import rest_catalog

        with rest_catalog(tmp_path / "rest") as rest:
            yield rest

    @pytest.fixture
    def lake(self, rest, tmp_path):
        return Lake("iceberg", OutputPlace(f"file://{tmp_path}/table"), {"uri": rest.uri})

    def test_a_commit_that_was_made_and_answered_500_is_found(self, store, lake, rest) -> None:
        append(store, lake.place, **lake.options)
        write_days(store, 7, 36)

        def make_and_fail(make):
            make()
            return JSONResponse({"error": {"message": "lost", "type": "Lost", "code": 500}}, 500)

        rest.fault = make_and_fail
        assert append(store, lake.place, **lake.options).messages == 7
        assert lake.rows() == expected(store)
        assert lake.unnamed_files() == set()

    @pytest.mark.soak  # in each run: the test before
    def test_a_commit_of_which_nothing_is_known_leaves_its_files_to_a_later_run(self, store, lake, rest) -> None:
        append(store, lake.place, **lake.options)
        write_days(store, 7, 36)
        rest.fault = lambda _make: JSONResponse({"error": {"message": "?", "type": "X", "code": 500}}, 500)
        with pytest.raises(StoreError, match="it is not known whether the catalog has the commit"):
            append(store, lake.place, **lake.options)
        assert len(lake.unnamed_files()) == 3, "two files, and the record of the task"
        rest.fault = lambda _make: None
        assert append(store, lake.place, **lake.options).messages == 7
        assert append(store, lake.place, **lake.options).details.is_empty
        assert lake.rows() == expected(store)
        assert lake.unnamed_files() == set()
        assert lake.left_of_runs() == set()


@pytest.mark.soak
class TestIcebergsOwnRestCatalog:
    """The one that Iceberg tests its clients with."""

    @pytest.fixture
    def lake(self, tmp_path):
        from rest_catalog import iceberg_rest_catalog

        with iceberg_rest_catalog(tmp_path / "rest") as uri:
            yield Lake("iceberg", OutputPlace(f"file://{tmp_path}/table"), {"uri": uri})

    def test_a_table_grows_and_is_kept_small(self, store: StoreWriter, lake: Lake) -> None:
        options = {**lake.options, "partition_by": ("date",)}
        append(store, lake.place, **options, columns=FEW)
        write_days(store, 7, 36)
        more = {**options, "columns": (*FEW, "topic", "properties")}
        assert append(store, lake.place, **more).messages == 7
        day = (START_TIMESTAMP + DAY) // DAY
        before = (date(1970, 1, 1) + timedelta(days=day)).isoformat()
        assert append(store, lake.place, **more, drop_before=before, compact_bytes=1 << 20).details.is_empty
        kept = [(number, row) for number, row in enumerate(expected(store)) if row["store_timestamp"] // DAY >= day]
        assert lake.rows() == [
            {name: row[name] if number >= 36 or name in FEW else None for name in more["columns"]}
            for number, row in kept
        ]
        assert len(lake.files()) == len({row["store_timestamp"] // DAY for _, row in kept})
        assert [each.record.command for each in lake.commits()] == ["append", "append", "drop", "compact"]
        assert lake.never_named_files() == set()
