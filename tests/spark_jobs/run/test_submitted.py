"""Every line of the documentation that submits a job is one that spark-submit runs, each script by itself."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from cli_reference import commands
from spark_classes import QUICK, quick_python
from store_writer import StoreWriter

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "clusters.md"
SUBMIT_SECONDS = 300


def documented() -> dict[str, list[str]]:
    """The arguments that the section on a standalone cluster gives to each script, by its name."""
    section = PAGE.read_text().partition("## Standalone")[2].partition("\n## ")[0]
    lines = re.findall(r"^spark-submit --master \S+ spark_jobs/(\w+)\.py (.*)$", section, re.MULTILINE)
    return {name: shlex.split(arguments) for name, arguments in lines}


def scripts() -> set[str]:
    """What lies at the root of `spark_jobs` for spark-submit."""
    return {path.stem for path in (ROOT / "spark_jobs").glob("*.py")} - {"__init__"}


@pytest.mark.parametrize("name", sorted(scripts()))
def test_a_script_is_a_command_without_anything_of_its_own(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "spark_jobs" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(str(path), run_name="__main__")
    command = re.findall(r"^Usage: rocketlens ((?:\w+ )+)", capsys.readouterr().out)
    assert command
    assert [each.strip() for each in command] == re.findall(r"^\"\"\"`rocketlens ([\w ]+)`", path.read_text())


@pytest.mark.parametrize("name", sorted(scripts()))
def test_the_documented_line_has_options_that_the_command_knows(name: str) -> None:
    command = re.findall(r"^\"\"\"`rocketlens ([\w ]+)`", (ROOT / "spark_jobs" / f"{name}.py").read_text())[0]
    arguments = documented()[name]
    context = commands()[command].make_context(command, list(arguments))
    assert str(context.params["store"]) == arguments[0]


def test_every_script_of_a_job_stands_in_the_documentation() -> None:
    assert set(documented()) == scripts()
    assert {"rebuild_all", "doctor_store", "export_store"} < scripts()


@pytest.mark.soak  # in each run: that the command knows the line, above; that it is submitted, test_cluster.py
@pytest.mark.parametrize("name", sorted(scripts()))
def test_the_documented_line_runs(name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The line itself, but for the master and the places; on a cluster its parts are tried by test_cluster.py."""
    writer = StoreWriter(tmp_path / "mnt" / "store", segment_size=4096, is_ledger=name == "convert_store")
    for number in range(60):
        writer.append("Orders", b"body %d" % number, keys=f"k{number}", tags="t")
    writer.close()
    places = {"/mnt/": f"{tmp_path}/mnt/", "s3://bucket/": f"file://{tmp_path}/mnt/"}
    arguments = [
        next((new + each.removeprefix(old) for old, new in places.items() if each.startswith(old)), each)
        for each in documented()[name]
    ]
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LAUNCHER_OPTS": " ".join(QUICK),
        "PYSPARK_PYTHON": str(quick_python(tmp_path / "python")),
    }  # fmt: skip
    options = ["--master", "local[1]", "--driver-java-options", " ".join(QUICK)]
    command = [str(home / "bin" / "spark-submit"), *options, f"spark_jobs/{name}.py", *arguments]
    ended = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=SUBMIT_SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ("120 index entries" if name == "compact_index" else "60 messages") in ended.stdout
    out = arguments[-1].removeprefix("file://") if "--out" in arguments else ""
    assert not out or any(path.is_file() for path in Path(out).rglob("*"))
