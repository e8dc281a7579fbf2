"""Exports read back: every message of the store is in them once, whatever the format and whatever came between."""

import contextlib
import gzip
import os
import zlib
from pathlib import Path
from unittest import mock

import pytest
import zstandard
from click.testing import CliRunner

import oracles
from bombs import EMPTY_LZ4
from column_rows import expected_rows
from exported_files import manifest_of, read_back
from loop_engine import LoopEngine
from protocol.errors import ConfigError, FilterSyntaxError, NoSuchTopic
from rocketlens.cli.export import export_store
from spark_jobs.export.export import run_export
from spark_jobs.export.export_formats import FORMATS
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.places.hashed_file import HashedFile
from spark_jobs.places.place_names import MANIFEST
from spark_jobs.run.progress import Silence
from store_writer import START_TIMESTAMP, StoreWriter


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    writer = StoreWriter(tmp_path_factory.mktemp("export") / "store", segment_size=4096)
    bodies = [b'text, with "quotes"\r\n and lines', b"\xff\x00bytes", "文".encode(), b"", zlib.compress(b"packed")]
    for number in range(70):
        writer.append(
            ("Orders", "Payments")[number % 2], bodies[number % 5], sys_flag=int(number % 5 == 4), queue_id=number % 3,
            tags=(None, "Aa")[number // 2 % 2], keys=f"k{number} secret" if number % 3 else None,
            unique_key=f"U{number}", properties={"n": str(number), "card": "4111", "标题": '值"'},
        )  # fmt: skip
    writer.close()
    return writer


def export(store, out, format_, **more):
    return run_export(ExportRequest(store=str(store), out=str(out), format=format_, **more), Silence())


def test_bodies_that_are_bombs_are_counted_and_what_lies_behind_them_is_exported(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", segment_size=4 << 20) as writer:
        writer.append("T", EMPTY_LZ4 * 300_000, sys_flag=0x101)
        writer.append("T", gzip.compress(b"", mtime=0) * 10_000)
        writer.append("T", b"behind")
    for unpack, count in ((False, "1 body is"), (True, "2 bodies are")):
        report = export(writer.root, tmp_path / count[0], "parquet", columns=("body", "body_error"), unpack=unpack)
        bomb, _, behind = read_back(tmp_path / count[0])
        assert (bomb["body"], behind["body"]) == (None, b"behind")
        assert "expected at most 4096 frames" in bomb["body_error"]
        assert [note for note in report.notes if note.startswith(f"{count} left out")] == report.notes


def test_bodies_that_a_mask_does_not_come_to_an_end_with_are_counted(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        for body in (b"a" * 60, b"xaab", b"a" * 61):
            writer.append("T", body)
    report = export(writer.root, tmp_path / "out", "parquet", columns=("body",), masked=("/(a+)+b/",))
    assert [row["body"] for row in read_back(tmp_path / "out")] == [b"***", b"x***", b"***"]
    assert [note for note in report.notes if note.startswith("2 bodies or property values were hidden")] == report.notes


@pytest.mark.parametrize("format_", list(FORMATS))
def test_reading_it_back_equals_the_store(store: StoreWriter, g1_store: Path, tmp_path: Path, format_: str) -> None:
    report = export(store.root, tmp_path / "ours", format_)
    assert read_back(tmp_path / "ours") == expected_rows(store.records)
    assert (report.messages, report.exit_code, report.details.parts) == (70, 0, len(store.log.segments))
    assert 0 < report.details.part_seconds <= report.seconds * 2  # of two tasks at a time
    export(g1_store, tmp_path / "recorded", format_)
    assert read_back(tmp_path / "recorded") == expected_rows(oracles.read_log(g1_store / "commitlog"))


def test_only_parquet_has_a_codec(tmp_path: Path) -> None:
    options = ["--out", str(tmp_path / "out"), "--format", "csv", "--compression", "lz4"]
    outcome = CliRunner().invoke(export_store, [str(tmp_path / "store"), *options])
    assert (outcome.exit_code, outcome.output.strip()) == (2, "rocketlens: --compression lz4 is for --format parquet")


def test_a_full_disk_is_told_with_the_file_that_found_no_room() -> None:
    with HashedFile.at(Path("/dev/full")) as file:
        file.write(b"x")
        with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
            file.finish(os.fsync)


def test_only_what_is_asked_for_is_written(store: StoreWriter, tmp_path: Path) -> None:
    begin, end = START_TIMESTAMP + 20, START_TIMESTAMP + 60
    report = export(
        store.root, tmp_path, "ndjson", topics=("Orders", "none"), begin=begin, end=end, tag="Aa || Bb",
        where="n BETWEEN 25 AND 50", columns=("tags", "body"),
    )  # fmt: skip
    expected = [
        {"tags": row["tags"], "body": row["body"]}
        for row in expected_rows(store.records)
        if row["topic"] == "Orders" and begin <= row["store_timestamp"] <= end and row["tags"] == "Aa"
        and 25 <= int(row["properties"]["n"]) <= 50
    ]  # fmt: skip
    assert read_back(tmp_path) == expected
    assert 0 < len(expected) == report.messages
    assert report.notes == ["the store has no topic none"]
    manifest = manifest_of(tmp_path)
    assert (manifest["topics"], manifest["where"]) == (["Orders", "none"], "n BETWEEN 25 AND 50")
    assert manifest["log"] == {"minimum": 0, "end": store.log.end}


def test_nothing_found_is_an_export_without_parts(store: StoreWriter, tmp_path: Path) -> None:
    report = export(store.root, tmp_path, "parquet", topics=("none", "Orders"), where="n > 1000")
    assert report.exit_code == 1
    assert report.notes == ["no message of the log matches", "the store has no topic none"]
    assert read_back(tmp_path) == []


def test_of_topics_that_are_nowhere_nothing_is_made(store: StoreWriter, tmp_path: Path) -> None:
    with pytest.raises(NoSuchTopic, match="there is no topic Ordesr; did you mean Orders"):
        export(store.root, tmp_path / "not" / "there", "parquet", topics=("Ordesr",))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with StoreWriter(tmp_path_factory.mktemp("packed") / "store") as writer:
        text = "订单 4711".encode("gbk")
        compressed = gzip.compress(text, mtime=0)
        for body, flag in (
            (compressed, 0),
            (zlib.compress(zstandard.compress(text)), 1),
            (text, 0),
            ("订单".encode(), 0),
            (compressed[:-1], 0),
            (b"", 0),
            (b"no zl\xff\x01", 1),
        ):
            writer.append("T", body, sys_flag=flag)
    return writer.root


class TestBodies:
    """Bodies are written as what is in them, with `--charset` as UTF-8, with `--no-unpack` as consumers get them."""

    def test_bodies_are_written_unpacked_unless_something_else_is_asked_for(self, packed: Path, tmp_path: Path) -> None:
        text, cut = "订单 4711".encode("gbk"), gzip.compress("订单 4711".encode("gbk"), mtime=0)[:-1]
        as_text, other = "订单 4711".encode(), "订单".encode()
        for options, expected in (
            ({"unpack": False}, [gzip.compress(text, mtime=0), zstandard.compress(text), text, other, cut, b"", None]),
            ({}, [text, text, text, other, cut, b"", None]),
            ({"charset": "gbk"}, [as_text, as_text, as_text, "璁㈠崟".encode(), cut, b"", None]),
        ):
            out = tmp_path / (next(iter(options), "none"))
            export(packed, out, "parquet", **options)
            assert [row["body"] for row in read_back(out)] == expected
            assert manifest_of(out)["charset"] == options.get("charset")


def test_what_is_masked_is_nowhere_in_the_files(store: StoreWriter, tmp_path: Path) -> None:
    export(store.root, tmp_path, "csv", masked=("body", "keys", "born_host", "properties.card"))
    expected = []
    for row in expected_rows(store.records):
        properties = row["properties"] | {"card": "***"}
        if "KEYS" in properties:
            properties["KEYS"] = "***"
        masked = {"body": b"***", "body_crc": 0, "born_host": "***", "properties": properties}
        expected.append(row | masked | {"keys": ["***"] * len(row["keys"])})
    assert read_back(tmp_path) == expected


def test_places_in_json_and_what_a_pattern_matches_are_nowhere_in_the_files(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        phone = "13812345678"
        for body in (f'{{"name":"Li","phone":"{phone}"}}', f'{{"note":"call {phone}"}}', f"call {phone}"):
            for data in (body.encode(), gzip.compress(body.encode())):
                writer.append("T", data, keys=f"k {phone}", properties={"to": f"tel:{phone}"})
    (tmp_path / "masks").write_text("# phones\n$.name\n/1[3-9]\\d{9}/\n")
    for format_ in ("parquet", "ndjson"):
        arguments = ["--format", format_, "--out", tmp_path / format_, "--mask-file", tmp_path / "masks"]
        outcome = CliRunner().invoke(export_store, [str(writer.root), *map(str, arguments), "--mask", "tags"])
        assert outcome.exit_code == 0, outcome.output
        rows = read_back(tmp_path / format_)
        names, notes, texts = b'{"name":"***","phone":"***"}', b'{"note":"call ***"}', b"***"
        assert [row["body"] for row in rows] == [names, names, notes, notes, texts, texts]
        hidden = {(*row["keys"], row["properties"]["to"], row["body_crc"]) for row in rows}
        assert hidden == {("k", "***", "tel:***", 0)}
        assert manifest_of(tmp_path / format_)["masked"] == ["tags", "$.name", "/1[3-9]\\d{9}/"]


class TestStopping:
    def test_a_run_that_was_stopped_goes_on_and_keeps_what_is_finished(self, store, tmp_path) -> None:
        with stopped_after(2), pytest.raises(KeyboardInterrupt):
            export(store.root, tmp_path, "ndjson")
        assert not list(tmp_path.glob("part-*"))
        kept = {path.stat().st_ino for path in tmp_path.glob(".rocketlens-work/run-*/partial/*")}
        assert len(kept) == 2
        assert not (tmp_path / MANIFEST).exists()
        report = export(store.root, tmp_path, "ndjson")
        assert report.resumed
        assert read_back(tmp_path) == expected_rows(store.records)
        assert kept < {path.stat().st_ino for path in tmp_path.glob("part-*")}

    def test_other_options_start_over_and_leave_nothing_behind(self, store: StoreWriter, tmp_path: Path) -> None:
        with stopped_after(2), pytest.raises(KeyboardInterrupt):
            export(store.root, tmp_path, "ndjson")
        report = export(store.root, tmp_path, "msgpack", topics=("Orders",))
        assert not report.resumed
        assert report.notes == ["unfinished files of a run with other options were deleted"]
        assert len(read_back(tmp_path)) == 35


@contextlib.contextmanager
def stopped_after(parts):
    def run(_engine, _name, tasks, function) -> None:
        for task in tasks[:parts]:
            function(task)
        raise KeyboardInterrupt

    with mock.patch.object(LoopEngine, "run_tasks", run):
        yield


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"where": "a >"}, FilterSyntaxError),
            ({"tag": "||"}, FilterSyntaxError),
            ({"columns": ("boby",)}, ConfigError),
            ({"masked": ("topic",)}, ConfigError),
            ({"masked": ("tags",), "tag": "A || B"}, ConfigError),
            ({"masked": ("/a+/",), "tag": "A || aa"}, ConfigError),
            ({"masked": ("properties.card",), "where": "a = 1 OR NOT card LIKE '4%'"}, ConfigError),
            ({"masked": ("keys",), "where": "KEYS = 'k'"}, ConfigError),
            ({"masked": ("/4+/",), "where": "card IS NOT NULL"}, ConfigError),
            ({"begin": 2, "end": 1}, ConfigError),
        ],
    )
    def test_what_cannot_be_is_refused_before_anything_is_made(self, store, tmp_path, options, error) -> None:
        with pytest.raises(error):
            export(store.root, tmp_path / "out", "csv", **options)
        assert not (tmp_path / "out").exists()
