"""Tables of files, and what is alike for all: runs that append what came, whatever the log has become meanwhile."""

import gzip
import itertools
import shutil
from pathlib import Path
from typing import Any

import fsspec
import pytest

import rocketlens
from column_rows import expected_rows
from dying import STRIDES, every_death
from exported_files import DAY, Row, append, rows_of_table, with_date
from lake_tables import Lake
from object_store import Fresh
from protocol.errors import ConfigError, StoreError
from spark_jobs.places.output_place import OutputPlace
from store_writer import START_TIMESTAMP, StoreWriter
from verifying import upload

TOPICS = ("Orders", "%RETRY%payments")


@pytest.fixture
def store(tmp_path: Path) -> StoreWriter:
    """Two segments: messages of two topics and three days."""
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    write(writer, 36)
    return writer


def write(writer: StoreWriter, count: int, start: int = 0) -> None:
    """Messages of two topics, twelve of each day."""
    for number in range(start, start + count):
        writer.append(
            TOPICS[number % 2],
            b"body \n%d" % number,
            unique_key=f"U{number}",
            keys=f"k{number}",
            store_timestamp=START_TIMESTAMP + number // 12 * DAY + number,
        )
    writer.flush()


@pytest.fixture
def place(tmp_path: Path) -> OutputPlace:
    return OutputPlace(f"file://{tmp_path}/table")


def commits(place: OutputPlace) -> list[Any]:
    return Lake("jsonl", place).commits()


def expected(store: StoreWriter, start: int = 0) -> list[Row]:
    return [with_date(row) for row in expected_rows(store.records) if row["physical_offset"] >= start]


def test_a_table_keeps_what_its_first_run_made_of_bodies_where_nothing_is_said(tmp_path: Path) -> None:
    packed = gzip.compress(b"text", mtime=0)
    writer = StoreWriter(tmp_path / "store")
    writer.append("T", packed)
    writer.flush()
    places = {each: OutputPlace(f"file://{tmp_path}/{len(each)}") for each in (b"text", packed)}
    append(writer, places[b"text"], format="parquet")
    append(writer, places[packed], format="parquet", unpack=False)
    writer.append("T", packed)
    writer.flush()
    for expected, place in places.items():
        report = append(writer, place, format="parquet")
        assert [row["body"] for row in rows_of_table(place, "parquet")] == [expected] * 2
        assert [note for note in report.notes if note.startswith("1 body was packed")] == report.notes[
            : expected == b"text"
        ]
    for options, said in (({"unpack": True}, "with --unpack"), ({"charset": "gbk"}, "with --charset gbk")):
        with pytest.raises(ConfigError, match=f"was made with.*, and this run is {said}"):
            append(writer, places[packed], format="parquet", **options)


def test_a_table_has_nothing_that_its_mask_hides_and_keeps_its_mask(tmp_path: Path, place: OutputPlace) -> None:
    writer = StoreWriter(tmp_path / "store")
    columns = ("physical_offset", "body", "keys")
    for number in range(2):
        writer.append("T", b'{"phone":"138","n":%d}' % number, tags="A", keys="138 k")
        writer.flush()
        append(
            writer, place, format="parquet", masked=("$.phone", "/138/"), columns=("physical_offset", "body", "keys")
        )
    rows = rows_of_table(place, "parquet")
    assert [row["body"] for row in rows] == [b'{"phone":"***","n":%d}' % number for number in range(2)]
    assert [row["keys"] for row in rows] == [["***", "k"]] * 2
    for options in ({"masked": ("$.phone",)}, {"masked": ()}, {"masked": ("$.phone", "/138/"), "where": "a = 1"}):
        with pytest.raises(ConfigError):
            append(writer, place, format="parquet", columns=columns, **options)


def test_a_run_that_finds_nothing_new_commits_nothing(store: StoreWriter, new_place: Fresh) -> None:
    place = new_place()
    append(store, place)
    before = place.objects("")
    report = append(store, place)
    assert (report.details.is_empty, report.messages, report.exit_code) == (True, 0, 0)
    assert place.objects("") == before


def test_a_store_behind_a_url_is_read_on_from_where_it_was(store: StoreWriter, place: OutputPlace) -> None:
    url = "memory://store-of-a-table"
    for count in (0, 9):
        write(store, count, 36)
        upload(store.root, url)
        assert [append(store, place, url).details.is_empty for _ in range(2)] == [False, True]
        assert rows_of_table(place) == expected(store)
    fsspec.filesystem("memory").rm(url, recursive=True)


@pytest.mark.parametrize("each", STRIDES)
def test_wherever_a_run_dies_the_next_one_leaves_each_message_once(
    store: StoreWriter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, each: int
) -> None:
    """Two runs, the second of a log that has grown, then one that puts files together; death at each of their steps."""
    earlier, numbers = tmp_path / "earlier", itertools.count()
    shutil.copytree(store.root, earlier)
    write(store, 14, 36)
    every = expected(store)
    old = StoreWriter(earlier.with_name("unused"))
    old.root = earlier
    places: list[OutputPlace] = []
    options = {"partition_by": ("date",), "columns": ("unique_key", "physical_offset", "store_timestamp")}

    def work() -> None:
        places.append(OutputPlace(f"file://{tmp_path}/table{next(numbers)}"))
        append(old, places[-1], **options)
        append(store, places[-1], **options)
        append(store, places[-1], **options, compact_bytes=1 << 20)

    keys, deaths = [row["unique_key"] for row in every], 0
    for death in every_death(work, monkeypatch, each):
        place = places[-1]
        seen = [row["unique_key"] for row in rows_of_table(place)]
        done = len(commits(place))
        assert seen == [key for key in keys if key in set(seen)], death
        assert set(seen) <= set(keys[: (0, 36, 50, 50)[done]]), death
        append(store, place, **options)
        found = rows_of_table(place)
        assert [row["unique_key"] for row in found] == keys, death
        assert [row["date"] for row in found] == [row["date"] for row in every], death
        assert sum(each.record.rows for each in commits(place)) == len(keys), death
        left = {name.split("/")[2][:18] for name in place.objects("_rocketlens/_attempts")}
        assert left <= {f"{len(commits(place)):018d}"}, "what can count no more is removed by the run that commits"
        assert done == 2 or not left, death
        deaths += 1
    assert deaths > 12


def test_a_run_that_cannot_see_whether_it_has_committed_keeps_its_messages(
    store: StoreWriter, place: OutputPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_table_that_another_run_makes_just_now_is_no_strange_directory(
    store: StoreWriter, place: OutputPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = OutputPlace.names

    def names_later(self: OutputPlace, below: str = "") -> list[str]:
        if not below:
            monkeypatch.setattr(OutputPlace, "names", names)
            append(store, place)
        return names(self, below)

    monkeypatch.setattr(OutputPlace, "names", names_later)
    assert append(store, place).details.is_empty
    assert rows_of_table(place) == expected(store)


def test_what_a_run_left_that_was_killed_while_it_created_its_commit_is_removed(
    store: StoreWriter, place: OutputPlace
) -> None:
    append(store, place)
    left = f"_rocketlens/commits/{0:015d}/{2:018d}.json.0123456789abcdef"
    place.create(left, b"{")
    for number in (36, 37):
        write(store, 1, number)
        append(store, place)
    assert left not in place.objects("_rocketlens")
    assert [each.number for each in commits(place)] == [1, 2, 3]


class TestLog:
    def test_damage_is_in_the_record_and_the_report(self, store: StoreWriter, place: OutputPlace) -> None:
        broken = store.written[5]
        store.overwrite(broken.physical_offset + 8, b"\xff" * 12)
        report = append(store, place)
        assert report.exit_code == 4
        assert [(each.physical_offset, each.length) for each in report.damages] == [
            (broken.physical_offset, broken.size)
        ]
        (commit,) = commits(place)
        assert [(each.physical_offset, each.length) for each in commit.record.damage] == [
            (broken.physical_offset, broken.size)
        ]
        assert [row["unique_key"] for row in rows_of_table(place)] == [f"U{n}" for n in range(36) if n != 5]

    def test_damage_at_the_end_of_the_log_of_a_stopped_broker_is_reported_until_it_is_gone(
        self, store: StoreWriter, place: OutputPlace
    ) -> None:
        store.close()
        last, rows = store.written[-1], expected(store)
        whole = store.log.segments[4096].read_bytes()
        store.overwrite(last.physical_offset, b"\xff" * 8)
        for is_empty in (False, True):
            report = append(store, place)
            assert (report.details.is_empty, report.exit_code, report.damages) == (is_empty, 4, [])
            (behind,) = report.details.behind
            assert behind.physical_offset == report.details.stop == last.physical_offset
        store.log.segments[4096].write_bytes(whole)
        report = append(store, place)
        assert (report.messages, report.exit_code, report.details.behind) == (1, 0, ())
        assert rows_of_table(place) == rows

    def test_segments_that_expired_between_two_runs_are_a_gap(self, store: StoreWriter, place: OutputPlace) -> None:
        end = append(store, place).details.stop
        before = expected(store)
        write(store, 90, 36)
        after = expected(store, 8192)
        for name in (0, 4096):
            (store.root / "commitlog" / f"{name:020d}").unlink()
        assert 4096 < end < 8192
        report = append(store, place)
        assert (report.exit_code, report.details.gap) == (4, (end, 8192))
        assert [(each.physical_offset, each.length, each.found) for each in report.damages] == [
            (end, 8192 - end, "expired segments")
        ]
        assert commits(place)[-1].record.gap == (end, 8192)
        assert rows_of_table(place) == before + after
        assert append(store, place).details.is_empty

    def test_the_log_of_another_store_and_one_that_was_truncated_are_refused(
        self, store: StoreWriter, place: OutputPlace, tmp_path: Path
    ) -> None:
        append(store, place)
        other = StoreWriter(tmp_path / "other", segment_size=4096)
        write(other, 60, 1)
        with pytest.raises(ConfigError, match="is the log of another store, or was truncated and written anew"):
            append(other, place)
        cut = StoreWriter(tmp_path / "cut", segment_size=4096)
        write(cut, 30)
        with pytest.raises(
            ConfigError, match=r"the log ends at \d+, but .* has its messages up to \d+: it was truncated"
        ):
            append(cut, place)
        write(cut, 30, 50)
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
    def test_other_rows_than_those_of_the_table_are_refused(
        self, store: StoreWriter, place: OutputPlace, more: Row, said: str
    ) -> None:
        append(store, place)
        with pytest.raises(ConfigError, match=said):
            append(store, place, **more)

    def test_somebody_elses_files_are_refused(self, store: StoreWriter, place: OutputPlace) -> None:
        place.create("precious", b"x")
        with pytest.raises(ConfigError, match="it contains precious, and no table"):
            append(store, place)
        assert list(place.objects("")) == ["precious"]


def test_a_log_without_a_message_leaves_nothing_to_drop_or_to_put_together(place: OutputPlace, tmp_path: Path) -> None:
    empty = StoreWriter(tmp_path / "empty", segment_size=4096)
    (empty.log.directories[0] / f"{0:020d}").write_bytes(bytes(4096))
    for format_ in ("jsonl", "iceberg", "delta"):
        at = OutputPlace(f"{place.url}-{format_}")
        assert append(empty, at, format=format_, drop_before="0d", compact_bytes=1 << 20).details.is_empty


class TestHousekeeping:
    def test_a_table_of_many_commits_is_listed_by_some_of_them(
        self, store: StoreWriter, place: OutputPlace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("spark_jobs.tables._files_table.LISTED", 5)
        for number in range(7):
            write(store, 1, 36 + number)
            append(store, place, partition_by=(), columns=("physical_offset", "unique_key"))
        listed = [each.number for each in commits(place) if each.live is not None]
        assert listed == [5]
        append(store, place, partition_by=(), columns=("physical_offset", "unique_key"), compact_bytes=1 << 20)
        assert len(place.objects("data")) == 1
        assert [row["unique_key"] for row in rows_of_table(place)] == [f"U{number}" for number in range(43)]


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
def test_options_of_a_stream_that_cannot_be_are_refused_at_once(
    store: StoreWriter, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        rocketlens.append_batches(store.root, tmp_path / "table", **options)


def test_a_stream_writes_no_table_into_the_store(store: StoreWriter) -> None:
    for root in (store.root, f"file://{store.root}"):
        with pytest.raises(ConfigError, match="lies inside the store"):
            rocketlens.append_batches(root, store.root / "table", format="jsonl")
