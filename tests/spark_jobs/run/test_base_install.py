"""What the base install can do alone: all jobs on one machine, without Spark, pyarrow and a JVM."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import tomllib
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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
COMMANDS = """
import contextlib, io, json, sys
from rocketlens.cli.main import main

ends = []
for arguments in json.load(sys.stdin):
    printed, said, code = io.TextIOWrapper(io.BytesIO()), io.StringIO(), 0
    sys.argv = ["rocketlens", *arguments]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            code = end.code
    printed.seek(0)
    ends.append((code, printed.read(), said.getvalue()))
print(json.dumps(ends))
"""


class Ended(NamedTuple):
    """How a command ended: exit code, stdout and stderr."""

    code: int
    printed: str
    said: str


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

    def ends(self, *commands: Sequence[object]) -> list[Ended]:
        """Run commands, one after the other in a process."""
        asked = json.dumps([list(map(str, command)) for command in commands])
        ended = subprocess.run(
            [self.python, "-c", COMMANDS],
            env=self.environment,
            input=asked,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert ended.returncode == 0, ended.stderr
        return [Ended(*each) for each in json.loads(ended.stdout)]

    def run(self, *commands: Sequence[object]) -> list[str]:
        """Run commands that succeed; what they print."""
        ends = self.ends(*commands)
        assert [each.code for each in ends] == [0] * len(commands), ends
        return [each.printed for each in ends]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseInstall:
    return BaseInstall(tmp_path_factory.mktemp("base"))


def test_what_only_some_need_is_not_there(base: BaseInstall) -> None:
    code = f"from importlib.util import find_spec; print([name for name in {ABSENT} if find_spec(name)])"
    found = subprocess.run([base.python, "-c", code], env=base.environment, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
    assert subprocess.run(["java"], env=base.environment, check=False).returncode == 1
    assert base.calls.read_text() == "\n"
    base.calls.unlink()


def test_jobs_on_one_machine_run_and_no_java_is_called(base: BaseInstall, tmp_path: Path) -> None:
    store, keys = unpack("store", tmp_path), tmp_path / "keys"
    recorded = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    queues = files_under(store / "consumequeue")
    shutil.rmtree(store / "index")
    shutil.rmtree(store / "consumequeue")
    keys.write_text("hotkey\n")
    shape = ("--slots", 97, "--entries", 150, "--queue-file-size", 2000)
    exports = [("export", store, "--format", name, "--out", tmp_path / name) for name in ("csv", "ndjson")]
    rebuilt, read, compacted, _, hits, found, *_ = base.run(
        ("rebuild", "all", store, *shape, "--json"),
        ("doctor", store, "--deep"),
        ("compact", "index", store, "--out", tmp_path / "compacted", "--json"),
        ("rebuild", "clean", tmp_path),
        ("search", store, "--contains", "body", "--engine", "local", "--json"),
        ("find", store, "-f", keys, "--engine", "local"),
        *exports,
    )
    report = json.loads(rebuilt)
    assert (report["messages"], report["details"]["queues"]["queues"]) == (390, 17)
    assert [path.read_bytes() for path in sorted((store / "index").iterdir())] == recorded
    assert files_under(store / "consumequeue") == queues
    assert read.endswith("nothing is wrong\n")
    assert json.loads(compacted)["details"]["index"]["built"]
    assert len(hits.splitlines()) == sum(b"body" in record.body for record in read_log(store / "commitlog")) > 0
    assert {json.loads(line)["found"] for line in found.splitlines()} == {True}
    for format_ in ("csv", "ndjson"):
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

    first, again = map(json.loads, base.run(export, (*export, "--since-last")))
    assert (first["messages"], first["details"]["engine"]) == (len(offsets), "local")
    assert again["details"]["isEmpty"]
    assert rows() == offsets
    (dropped,) = map(json.loads, base.run((*export, "--since-last", "--drop-before", "2100-01-01")))
    assert dropped["details"]["removedFiles"] == first["details"]["files"]
    assert rows() == []
    assert not base.calls.exists()


def test_what_needs_more_says_what_to_install(base: BaseInstall, tmp_path: Path) -> None:
    store = unpack("store", tmp_path)
    needs = {
        "spark": ("rebuild", "all", store, "--out", tmp_path / "out", "--engine", "spark"),
        "parquet": ("export", store, "--out", tmp_path / "out", "--format", "parquet"),
        "delta": ("export", store, "--to", tmp_path / "out", "--format", "delta"),
    }
    for extra, ended in zip(needs, base.ends(*needs.values()), strict=True):
        assert (ended.code, ended.said.count("\n")) == (2, 1)
        assert install_line(extra) in ended.said
    assert not base.calls.exists()
