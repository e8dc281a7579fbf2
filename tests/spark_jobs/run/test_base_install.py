"""What is installed: all jobs on one machine without Spark, the scripts to submit, PySpark's public parts."""

import ast
import importlib.metadata
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from cli_reference import commands
from golden_store import unpack
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
    code: int
    printed: str
    said: str


def required():
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
        path = f"{java.parent}:{os.environ['PATH']}"
        self.environment = {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(directory)}

    def ends(self, *commands):
        asked = json.dumps([list(map(str, command)) for command in commands])
        ended = subprocess.run(
            [self.python, "-c", COMMANDS], env=self.environment, input=asked, capture_output=True, text=True,
            check=False, timeout=SECONDS,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return [Ended(*each) for each in json.loads(ended.stdout)]

    def run(self, *commands):
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
    rebuilt, read, found, _ = base.run(
        ("rebuild", "all", store, *shape, "--json"),
        ("doctor", store, "--deep"),
        ("find", store, "-f", keys, "--engine", "local"),
        ("export", store, "--format", "ndjson", "--out", tmp_path / "ndjson"),
    )
    report = json.loads(rebuilt)
    assert (report["messages"], report["details"]["queues"]["queues"]) == (390, 17)
    assert [path.read_bytes() for path in sorted((store / "index").iterdir())] == recorded
    assert files_under(store / "consumequeue") == queues
    assert read.endswith("nothing is wrong\n")
    assert {json.loads(line)["found"] for line in found.splitlines()} == {True}
    assert json.loads((tmp_path / "ndjson" / "_manifest.json").read_bytes())["records"] == 390
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


def documented() -> dict[str, list[str]]:
    """The arguments that the section on a standalone cluster gives to each script, by its name."""
    section = (ROOT / "docs" / "clusters.md").read_text().partition("## Standalone")[2].partition("\n## ")[0]
    lines = re.findall(r"^spark-submit --master \S+ spark_jobs/(\w+)\.py (.*)$", section, re.MULTILINE)
    return {name: shlex.split(arguments) for name, arguments in lines}


def scripts() -> set[str]:
    return {path.stem for path in (ROOT / "spark_jobs").glob("*.py")} - {"__init__"}


@pytest.mark.parametrize("name", sorted(scripts()))
def test_a_script_is_a_command_without_anything_of_its_own(name, monkeypatch, capsys) -> None:
    path = ROOT / "spark_jobs" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(str(path), run_name="__main__")
    command = re.findall(r"^Usage: rocketlens ((?:\w+ )+)", capsys.readouterr().out)
    assert command
    assert [each.strip() for each in command] == re.findall(r"^\"\"\"`rocketlens ([\w ]+)`", path.read_text())
    arguments = documented()[name]
    context = commands()[command[0].strip()].make_context(name, list(arguments))
    assert str(context.params["store"]) == arguments[0], "the documented line has options that the command knows"


def test_every_script_of_a_job_stands_in_the_documentation() -> None:
    assert set(documented()) == scripts()
    assert {"rebuild_all", "doctor_store", "export_store"} < scripts()


HERE = Path("spark_jobs/run/_private_pyspark.py")
PACKAGES = ("rocketlens", "spark_jobs")
"""Others may not import PySpark."""

PRIVATE_MODULES = ("pyspark.cloudpickle", "pyspark.find_spark_home", "pyspark.java_gateway", "pyspark.traceback_utils")
OBJECTS = ("SparkConf", "SparkContext", "context", "rdd", "rows", "session", "spark")
"""What PySpark's objects are called by in our source."""


def private_parts(source):
    """Names of PySpark's private attributes and modules, by a walk of the syntax."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if name.lstrip("_") in OBJECTS:
                yield node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyspark"):
            for each in node.names:
                if each.name.startswith("_") or {node.module, f"{node.module}.{each.name}"} & set(PRIVATE_MODULES):
                    yield each.name
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in PRIVATE_MODULES)


def test_one_module_alone_uses_private_parts_and_names_each() -> None:
    sources = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(sources) > 200
    texts = {path.relative_to(ROOT): path.read_text() for path in sources}
    suspects = re.compile(rf"pyspark|\b_*(?:{'|'.join(OBJECTS)})\._")
    used = {path: set(private_parts(text)) for path, text in texts.items() if suspects.search(text)}
    found = {path: names for path, names in used.items() if names}
    assert list(found) == [HERE]
    described = (ast.get_docstring(ast.parse((ROOT / HERE).read_text())) or "").split("\n\n")[1]
    assert {name for name in found[HERE] if name not in described} == set()
