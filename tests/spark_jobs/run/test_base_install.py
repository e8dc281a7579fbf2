"""What the base install can do alone: all jobs on one machine, without Spark, pyarrow and a JVM."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from golden_store import unpack
from oracles import read_log
from process import ROOT
from queue_runs import files_under
from storage.extras import install_line

ABSENT = ("pyspark", "py4j", "pyarrow", "fsspec", "s3fs", "pandas")
RECORDING_JAVA = '#!/bin/sh\necho "$@" >>"{calls}"\nexit 1\n'
SECONDS = 300


def required() -> Iterator[importlib.metadata.Distribution]:
    """The distributions that the project always needs, and those that these need."""
    waiting = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    seen: set[str] = set()
    while waiting:
        wanted = Requirement(waiting.pop())
        if wanted.name in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(wanted.name)
        found = importlib.metadata.distribution(wanted.name)
        waiting += found.requires or []
        yield found


class BaseInstall:
    """A fresh virtual environment with these alone, and a `java` first on PATH that fails and records its calls."""

    def __init__(self, directory: Path) -> None:
        self.calls = directory / "calls"
        venv.create(directory / "venv", symlinks=True)
        self.python = directory / "venv" / "bin" / "python"
        site = next((directory / "venv").glob("lib/python*/site-packages"))
        for each in required():
            for file in each.files or ():
                top = file.parts[0]
                if top != ".." and not (site / top).is_symlink():
                    (site / top).symlink_to(Path(str(each.locate_file(top))))
        java = directory / "bin" / "java"
        java.parent.mkdir()
        java.write_text(RECORDING_JAVA.format(calls=self.calls))
        java.chmod(0o755)
        self.environment = {
            "PATH": f"{java.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(directory),
        }  # fmt: skip

    def run(self, *arguments: object, code: int = 0) -> str:
        """Run a command, and return what it printed."""
        command = [str(self.python), "-m", "rocketlens", *map(str, arguments)]
        ended = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert ended.returncode == code, ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseInstall:
    return BaseInstall(tmp_path_factory.mktemp("base"))


def test_what_only_some_need_is_not_there(base: BaseInstall) -> None:
    for name in ABSENT:
        ended = subprocess.run([base.python, "-c", f"import {name}"], env=base.environment, capture_output=True)
        assert ended.returncode == 1
        assert f"No module named '{name}'" in ended.stderr.decode()
    assert subprocess.run(["java"], env=base.environment, check=False).returncode == 1
    assert base.calls.read_text() == "\n"
    base.calls.unlink()


def test_jobs_on_one_machine_run_and_no_java_is_called(base: BaseInstall, tmp_path: Path) -> None:
    store = unpack("store", tmp_path)
    recorded = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    queues = files_under(store / "consumequeue")
    shutil.rmtree(store / "index")
    shutil.rmtree(store / "consumequeue")
    report = json.loads(
        base.run("rebuild", "all", store, "--slots", 97, "--entries", 150, "--queue-file-size", 2000, "--json")
    )
    assert (report["messages"], report["details"]["queues"]["queues"]) == (390, 17)
    assert [path.read_bytes() for path in sorted((store / "index").iterdir())] == recorded
    assert files_under(store / "consumequeue") == queues
    assert base.run("doctor", store, "--deep").endswith("nothing is wrong\n")
    compacted = json.loads(base.run("compact", "index", store, "--out", tmp_path / "compacted", "--json"))
    assert compacted["details"]["index"]["built"]
    base.run("rebuild", "clean", tmp_path)
    hits = base.run("search", store, "--contains", "body", "--json")
    assert len(hits.splitlines()) == sum(b"body" in record.body for record in read_log(store / "commitlog")) > 0
    assert base.run("search", store, "--contains", "body", "--engine", "local", "--json") == hits
    (tmp_path / "keys").write_text("hotkey\n")
    found = [json.loads(line) for line in base.run("find", store, "-f", tmp_path / "keys").splitlines()]
    assert found == [
        json.loads(line) for line in base.run("find", store, "-f", tmp_path / "keys", "--engine", "local").splitlines()
    ]
    assert all(each["found"] for each in found)
    for format_ in ("csv", "ndjson"):
        base.run("export", store, "--format", format_, "--out", tmp_path / format_)
        assert json.loads((tmp_path / format_ / "_manifest.json").read_bytes())["records"] == 390
    assert not base.calls.exists()


def test_a_table_of_text_grows_and_shrinks(base: BaseInstall, tmp_path: Path) -> None:
    store, table = unpack("store", tmp_path), tmp_path / "table"
    offsets = sorted(record.physical_offset for record in read_log(store / "commitlog"))
    options = ("--format", "jsonl", "--columns", "physical_offset,keys", "--partition-by", "topic", "--json")
    export = ("export", store, "--to", table, *options)

    def rows() -> list[int]:
        """The physical offsets of the table's files."""
        return sorted(
            json.loads(line)["physicalOffset"]
            for path in (table / "data").rglob("*.jsonl")
            for line in path.read_text().splitlines()
        )

    report = json.loads(base.run(*export))
    assert (report["messages"], report["details"]["engine"]) == (len(offsets), "local")
    assert rows() == offsets
    assert json.loads(base.run(*export, "--since-last"))["details"]["isEmpty"]
    dropped = json.loads(base.run(*export, "--since-last", "--drop-before", "2100-01-01"))
    assert dropped["details"]["removedFiles"] == report["details"]["files"]
    assert rows() == []
    assert not base.calls.exists()


def test_what_needs_more_says_what_to_install(base: BaseInstall, tmp_path: Path) -> None:
    store = unpack("store", tmp_path)
    for arguments, extra in (
        (("rebuild", "all", store, "--out", tmp_path / "out", "--engine", "spark"), "spark"),
        (("export", store, "--out", tmp_path / "out", "--format", "parquet"), "parquet"),
        (("export", store, "--to", tmp_path / "out", "--format", "delta"), "delta"),
    ):
        command = [str(base.python), "-m", "rocketlens", *map(str, arguments)]
        ended = subprocess.run(command, env=base.environment, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
        assert install_line(extra) in ended.stderr
    assert not base.calls.exists()
