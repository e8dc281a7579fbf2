"""Tables of files, and what is alike for all: runs that append what came, whatever the log has become meanwhile."""

import urllib.request

import fsspec
import pytest

import rocketlens
from column_rows import expected_rows
from dying import AT_EACH_PLACE
from exported_files import append, rows_of_table, with_date, write_days
from lake_tables import Lake
from protocol.errors import ConfigError, StoreError
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.run.report import Report
from spark_jobs.tables._files_table import FilesCommit
from spark_jobs.tables._table import TableCommit, read_commit
from spark_jobs.tables.every import TableMetrics, append_every, served
from store_writer import StoreWriter
from verifying import upload


@pytest.fixture
def place(tmp_path):
    return OutputPlace(f"file://{tmp_path}/table")


def commits(place):
    return Lake("jsonl", place).commits()


def expected(store, start=0):
    return [with_date(row) for row in expected_rows(store.records) if row["physical_offset"] >= start]


def test_a_table_has_nothing_that_its_mask_hides_and_keeps_its_mask(tmp_path, place) -> None:
    writer = StoreWriter(tmp_path / "store")
    columns = ("physical_offset", "body", "keys")
    for number in range(2):
        writer.append("T", b'{"phone":"138","n":%d}' % number, tags="A", keys="138 k")
        writer.flush()
        append(writer, place, format="parquet", masked=("$.phone", "/138/"), columns=columns)
    rows = rows_of_table(place, "parquet")
    assert [row["body"] for row in rows] == [b'{"phone":"***","n":%d}' % number for number in range(2)]
    assert [row["keys"] for row in rows] == [["***", "k"]] * 2
    for options in ({"masked": ("$.phone",)}, {"masked": ()}, {"masked": ("$.phone", "/138/"), "where": "a = 1"}):
        with pytest.raises(ConfigError):
            append(writer, place, format="parquet", columns=columns, **options)


@AT_EACH_PLACE
def test_a_run_that_finds_nothing_new_commits_nothing(store, new_place) -> None:
    place = new_place()
    assert append(store, place).notes == []
    before = place.objects("")
    report = append(store, place)
    assert (report.details.is_empty, report.messages, report.exit_code) == (True, 0, 0)
    assert place.objects("") == before


def test_a_store_behind_a_url_is_read_on_from_where_it_was(store: StoreWriter, place: OutputPlace) -> None:
    url = "memory://store-of-a-table"
    for count in (0, 9):
        write_days(store, count, 36)
        upload(store.root, url)
        assert [append(store, place, url).details.is_empty for _ in range(2)] == [False, True]
        assert rows_of_table(place) == expected(store)
    fsspec.filesystem("memory").rm(url, recursive=True)


def test_a_run_that_cannot_see_whether_it_has_committed_keeps_its_messages(store, place, monkeypatch) -> None:
    create, read = OutputPlace.create, OutputPlace.read
    created: list[str] = []

    def create_and_note(self: OutputPlace, name: str, data: bytes) -> None:
        create(self, name, data)
        created.append(name)

    def read_nothing_of_it(self: OutputPlace, name: str) -> bytes | None:
        if "/commits/" in name and name in created:
            raise StoreError(self.path(name), what="cannot be used: it does not answer")
        return read(self, name)

    with monkeypatch.context() as patched:
        patched.setattr(OutputPlace, "create", create_and_note)
        patched.setattr(OutputPlace, "read", read_nothing_of_it)
        with pytest.raises(StoreError, match="does not answer"):
            append(store, place)
    assert append(store, place).details.is_empty
    assert rows_of_table(place) == expected(store)


class TestLog:
    def test_segments_that_expired_between_two_runs_are_a_gap(self, store: StoreWriter, place: OutputPlace) -> None:
        end = append(store, place).details.stop
        before = expected(store)
        write_days(store, 90, 36)
        after = expected(store, 8192)
        for name in (0, 4096):
            (store.root / "commitlog" / f"{name:020d}").unlink()
        assert 4096 < end < 8192
        report = append(store, place)
        assert (report.exit_code, report.details.gap) == (4, (end, 8192))
        (damage,) = report.damages
        assert (damage.physical_offset, damage.length, damage.found) == (end, 8192 - end, "expired segments")
        assert commits(place)[-1].record.gap == (end, 8192)
        assert rows_of_table(place) == before + after
        assert append(store, place).details.is_empty

    def test_the_log_of_another_store_and_one_that_was_truncated_are_refused(self, store, place, tmp_path) -> None:
        append(store, place)
        other = StoreWriter(tmp_path / "other", segment_size=4096)
        write_days(other, 60, 1)
        with pytest.raises(ConfigError, match="is the log of another store, or was truncated and written anew"):
            append(other, place)
        cut = StoreWriter(tmp_path / "cut", segment_size=4096)
        write_days(cut, 30)
        said = r"the log ends at \d+, but .* has its messages up to \d+: it was truncated"
        with pytest.raises(ConfigError, match=said):
            append(cut, place)
        write_days(cut, 30, 50)
        with pytest.raises(ConfigError, match="was truncated and written anew"):
            append(cut, place)


class TestShape:
    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ({"partition_by": ()}, "made with --partition-by [a-z,]+, and this run is without --partition-by"),
            ({"format": "csv"}, "made with --format jsonl, and this run is with --format csv"),
            ({"topics": ("Orders", "a b")}, "without --topic, and this run is with --topic Orders --topic 'a b'"),
            ({"masked": ("body",)}, "made without --mask, and this run is with --mask body"),
            ({"columns": ("topic", "body")}, "the table has a column queue_id"),
            ({"since_last": False}, "there is a table already: --since-last"),
        ],
    )
    def test_other_rows_than_those_of_the_table_are_refused(self, store, place, more, said) -> None:
        append(store, place)
        with pytest.raises(ConfigError, match=said):
            append(store, place, **more)

    def test_somebody_elses_files_are_refused(self, store: StoreWriter, place: OutputPlace) -> None:
        place.create("precious", b"x")
        with pytest.raises(ConfigError, match="it contains precious, and no table"):
            append(store, place)
        assert list(place.objects("")) == ["precious"]


def test_a_log_without_a_message_leaves_nothing_to_drop_or_to_put_together(place, tmp_path) -> None:
    empty = StoreWriter(tmp_path / "empty", segment_size=4096)
    (empty.log.directories[0] / f"{0:020d}").write_bytes(bytes(4096))
    for format_ in ("jsonl", "iceberg", "delta"):
        at = OutputPlace(f"{place.url}-{format_}")
        assert append(empty, at, format=format_, drop_before="0d", compact_bytes=1 << 20).details.is_empty


class TestHousekeeping:
    def test_a_table_of_many_commits_is_listed_by_some_of_them(self, store, place, monkeypatch) -> None:
        monkeypatch.setattr("spark_jobs.tables._files_table.LISTED", 5)
        for number in range(7):
            write_days(store, 1, 36 + number)
            append(store, place, partition_by=(), columns=("physical_offset", "unique_key"))
        listed = [each.number for each in commits(place) if each.live is not None]
        assert listed == [5]
        append(store, place, partition_by=(), columns=("physical_offset", "unique_key"), compact_bytes=1 << 20)
        assert len(place.objects("data")) == 1
        assert [row["unique_key"] for row in rows_of_table(place)] == [row["unique_key"] for row in expected(store)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "json"}, "format json: expected one of parquet"),
        ({"partition_by": "day"}, "partition_by day: expected topic, date"),
        ({"partition_by": ["date", "date"]}, "each once"),
        ({"engine": "fast"}, "engine fast: expected one of auto"),
        ({"columns": ["nothing"]}, "nothing"),
    ],
)
def test_options_of_a_stream_that_cannot_be_are_refused_at_once(store, tmp_path, options, said) -> None:
    with pytest.raises(ConfigError, match=said):
        rocketlens.append_batches(store.root, tmp_path / "table", **options)


class Stopped(BaseException):
    """What a signal makes of the waiting."""


def figures(port: int) -> dict[str, float]:
    """The metrics by name and labels, without the times at which counters were made."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs if "_created" not in name}


def test_each_run_is_shown_and_counted(tmp_path) -> None:
    store = StoreWriter(tmp_path / "store", segment_size=4096)
    place = OutputPlace(f"file://{tmp_path}/table")
    damaged = [store.append("Orders", b"x" * 40) for _ in range(5)][1]
    store.flush()
    store.overwrite(damaged.physical_offset + 8, b"\xff" * 8)
    shown = []
    waited: list[float] = []

    def run():
        if len(shown) == 2:
            raise StoreError("s3://stores/x", what="cannot be used: it does not answer")
        return append(store, place)

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise Stopped

    metrics = TableMetrics()
    with served(metrics, "127.0.0.1", 0) as port:
        with pytest.raises(Stopped):
            append_every(run, 300, metrics, shown.append, wait)
        found = figures(port)
    first, second, third = shown
    assert isinstance(first, Report)
    assert isinstance(second, Report)
    assert (first.messages, second.details.is_empty, "does not answer" in str(third)) == (4, True, True)
    assert all(0 < seconds < 300 for seconds in waited)
    files = sum(each.size for each in place.objects("data").values())
    end = sum(each.size for each in store.written)
    names = ("messages_total", "log_bytes_total", "file_bytes_total", "damaged_places_total", "gap_bytes_total")
    assert [found[f"rocketlens_table_{name}"] for name in names] == [4, end, files, 1, 0]
    assert found["rocketlens_table_position"] == end
    results = ("committed", "empty", "failed")
    assert [found[f'rocketlens_table_runs_total{{result="{result}"}}'] for result in results] == [1, 1, 1]


def test_what_cannot_succeed_later_ends_it() -> None:
    def run():
        raise ConfigError("another store")

    with pytest.raises(ConfigError, match="another store"):
        append_every(run, 1, TableMetrics(), lambda _: None, lambda _: pytest.fail("it waits"))


@pytest.mark.parametrize("form", [TableCommit, FilesCommit])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no JSON", "has no commit of RocketLens"),
        ('{"version": 1}', "has no commit of RocketLens: Object missing required field"),
        ('{"version": 2, "run": "r"}', "was written by another version: version 2, expected 1"),
    ],
)
def test_what_is_no_commit_is_refused(form: type[TableCommit], text: str, said: str) -> None:
    with pytest.raises(StoreError) as refused:
        read_commit(text, "s3://bucket/table", form)
    assert "s3://bucket/table" in str(refused.value)
    assert said in str(refused.value)
