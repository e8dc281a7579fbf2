"""`rocketlens export`: what its options ask for, and a run that is killed and goes on."""

import json
import os
import signal
import subprocess
import sys

import pytest

from column_rows import expected_rows
from command_line import rocketlens
from job_runs import left_in
from loop_engine import run_jobs_here
from process import COMMAND, ROOT
from rocketlens.cli import command_run
from spark_jobs.export.export_request import ExportDetails, ExportRequest
from spark_jobs.places.place_names import WORK
from spark_jobs.run.report import Damage, Report
from spark_jobs.tables.table_request import TableDetails, TableRequest
from storage.extras import install_line
from store_writer import StoreWriter

OPTIONS = {
    "--topic A --topic B": {"topics": ("A", "B")},
    "--since 5 --until 1970-01-01T00:00:01+00:00": {"begin": 5, "end": 1000},
    "--timezone +08:00 --since 2024-05-31T16:30 --until 2024-05-31T16:31": {
        "begin": 1717144200000,
        "end": 1717144260000,
    },
    "--tag A||B": {"tag": "A||B"},
    "--where a>5": {"where": "a>5"},
    "--columns topic,body": {"columns": ("topic", "body")},
    "--mask body --mask hosts": {"masked": ("body", "hosts")},
    "--unpack": {"unpack": True},
    "--no-unpack": {"unpack": False},
    "--charset gbk": {"charset": "gbk"},
    "--commit-log /a,/b": {"commit_log_directories": ("/a", "/b")},
    "--storage-options {}": {"storage": "{}"},
    "--out-storage-options {}": {"out_storage": "{}"},
    "--fresh": {"fresh": True},
    "--engine local": {"engine": "local"},
    "--master spark://h:7077": {"master": "spark://h:7077"},
    "--conf spark.a=1": {"settings": {"spark.a": "1"}},
}


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[ExportRequest]:
    """What was asked for; nothing is compiled or run."""
    found: list[ExportRequest] = []

    def run(request: ExportRequest, progress: object, launch: object) -> Report[ExportDetails]:
        found.append(request)
        damage = Damage("/s/0", 7, 5, "an intact record", "gone")
        details = ExportDetails(format=request.format, parts=3, part_bytes=2048, part_seconds=1.5, found=True)
        return Report(command="export", store=request.store, out=request.out, details=details, damages=[damage])

    monkeypatch.setattr("spark_jobs.export.export.run_export", run)
    monkeypatch.setattr("spark_jobs.run.engine.find_java", lambda: "java")
    monkeypatch.setattr(command_run.signal, "signal", lambda number, handler: None)
    return found


def test_an_option_reaches_the_request(requests, tmp_path) -> None:
    store, out = str(tmp_path / "none"), str(tmp_path / "out")
    for options, fields in (OPTIONS | {"": {}}).items():
        assert rocketlens("export", store, "--format", "csv", "--out", out, *options.split()).code == 4
        assert requests.pop() == ExportRequest(store=store, out=out, format="csv", **fields)


def test_wrong_usage_is_told_before_anything_is_started(g1_store, monkeypatch) -> None:
    run_jobs_here(monkeypatch, lambda *_: pytest.fail("an engine was started"))
    words = ("--since 5 --until 4", "--where a>", "--tag ||", "--columns topic,nothing")
    for wrong in map(str.split, words):
        assert rocketlens("export", g1_store, "--format", "csv", "--out", "o", *wrong).code == 2


def test_a_killed_export_goes_on(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=1024)
    while len(writer.log.segments) < 40:
        writer.append("T", b"x" * 100)
    writer.close()
    export = ["export", str(writer.root), "--format", "ndjson", "--out", str(tmp_path / "out"), "--json"]
    killer = [sys.executable, str(ROOT / "tests" / "support" / "killed_command.py"), "export", "2"]
    killed = subprocess.run([*killer, *export], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "out" / "_manifest.json").exists()
    left = left_in(tmp_path / "out" / WORK)
    records = [left.done(path.stem) for path in (left.root / "done").iterdir()]
    written = {(left.root / "partial" / record["attempt"]).stat().st_ino for record in records if record is not None}
    assert 3 <= len(written) < 40
    done = subprocess.run([*COMMAND, *export], cwd=ROOT, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["resumed"]
    assert written <= {path.stat().st_ino for path in (tmp_path / "out").glob("part-*")}
    lines = [line for path in sorted((tmp_path / "out").glob("part-*")) for line in path.read_text().splitlines()]
    found = [json.loads(line)["physicalOffset"] for line in lines]
    assert found == [row["physical_offset"] for row in expected_rows(writer.records)]


TABLE_OPTIONS = {
    "--since-last": {"since_last": True},
    "--partition-by topic,date": {"partition_by": ("topic", "date")},
    "--drop-before 7d": {"drop_before": "7d"},
    "--compact-files": {"compact_bytes": 256 * 1024 * 1024},
    "--compact-files 1000": {"compact_bytes": 1000},
    "--to 1970-01-01T00:00:01+00:00": {"end": 1000},
    "--topic A --columns topic,body": {"topics": ("A",), "columns": ("topic", "body")},
}


class TestTable:
    @pytest.fixture
    def requests(self, monkeypatch: pytest.MonkeyPatch) -> list[TableRequest]:
        """What was asked for; nothing is run, nor looked for Spark."""
        found: list[TableRequest] = []

        def run(request: TableRequest, progress: object, launch: object) -> Report[TableDetails]:
            found.append(request)
            written = {"start": 5, "stop": 9, "files": 2, "file_bytes": 10, "engine": "local", "is_empty": False}
            details = TableDetails(format=request.format, **written)
            return Report(command="export", store=request.store, out=request.table, details=details)

        monkeypatch.setattr("spark_jobs.tables.append.run_append", run)
        monkeypatch.setattr(command_run, "check_spark", lambda: pytest.fail("no Spark is needed"))
        monkeypatch.setattr(command_run.signal, "signal", lambda number, handler: None)
        return found

    def test_an_option_reaches_the_request(self, requests, tmp_path) -> None:
        store, table = str(tmp_path / "none"), str(tmp_path / "table")
        for options, fields in (TABLE_OPTIONS | {"": {}}).items():
            outcome = rocketlens("export", store, "--format", "jsonl", "--to", table, *options.split())
            assert (outcome.code, outcome.errors) == (0, "")
            assert requests.pop() == TableRequest(store=store, table=table, format="jsonl", **fields)
        assert "2 files of jsonl, 10 bytes, of physical offsets 5 to 9, written by local" in outcome.text

    def test_a_catalog_and_a_name_reach_the_request(self, requests, tmp_path) -> None:
        table = str(tmp_path / "table")
        named = ["--catalog", "uri=http://c/?a=b", "--catalog", "token=t", "--table", "a.b"]
        outcome = rocketlens("export", tmp_path / "none", "--format", "iceberg", "--to", table, *named)
        assert (outcome.code, outcome.errors) == (0, "")
        (request,) = requests
        assert (request.catalog, request.name) == ({"uri": "http://c/?a=b", "token": "t"}, "a.b")

    @pytest.mark.parametrize("needed", ["parquet", "iceberg", "delta"])
    def test_what_a_format_needs_is_named_where_it_is_missing(self, requests, tmp_path, monkeypatch, needed) -> None:
        find = "rocketlens.cli.export.importlib.util.find_spec"
        monkeypatch.setattr(find, lambda name: None if name == "pyarrow" else name)
        outcome = rocketlens("export", tmp_path / "none", "--format", needed, "--to", tmp_path / "table")
        assert outcome.code == 2
        assert f"needs pyarrow: {install_line(needed)}" in outcome.errors
        assert requests == []

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--format", "csv"], "either --out DIR, or --to"),
            (["--format", "csv", "--to", "5"], "either --out DIR, or --to"),
            (["--format", "csv", "--out", "o", "--since-last"], "--since-last is for a table"),
            (["--format", "csv", "--to", "t", "--metrics", "9000"], "--metrics is for --every"),
            (["--format", "csv", "--to", "t", "--every", "5m"], "--every needs --since-last"),
            (["--format", "csv", "--to", "t", "--every", "5m", "--metrics", "host"], "is no [HOST:]PORT"),
            (["--format", "msgpack", "--to", "t"], "a table is of parquet, jsonl, ndjson, csv, iceberg, delta"),
            (["--format", "delta", "--out", "o"], "--format delta is for a table, which --to names"),
        ],
    )
    def test_wrong_usage_is_named(self, requests, g1_store, words, said) -> None:
        outcome = rocketlens("export", g1_store, *words)
        assert (outcome.code, said in outcome.errors) == (2, True), outcome.errors
        assert requests == []
