"""Every line of the documentation that submits a job is one that its command knows, each script by itself."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from cli_reference import commands

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "clusters.md"


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
    arguments = documented()[name]
    context = commands()[command[0].strip()].make_context(name, list(arguments))
    assert str(context.params["store"]) == arguments[0], "the documented line has options that the command knows"


def test_every_script_of_a_job_stands_in_the_documentation() -> None:
    assert set(documented()) == scripts()
    assert {"rebuild_all", "doctor_store", "export_store"} < scripts()
