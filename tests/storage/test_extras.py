"""What is printed where a part of RocketLens lacks a library can be typed as it is."""

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from storage import extras
from storage.extras import install_line, packages_of

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
EXTRAS = sorted(set(PROJECT["optional-dependencies"]) - {"test", "dev"})


def test_a_line_names_the_packages_of_an_extra_and_not_the_distribution() -> None:
    for extra in EXTRAS:
        program, verb, *packages = shlex.split(install_line(extra))
        assert (program, verb) == ("pip", "install")
        assert packages == PROJECT["optional-dependencies"][extra]
        assert "rocketlens" not in install_line(extra)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_installed_distribution_names_the_same(extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no pyproject.toml beside a wheel's packages; the order of versions is another one in its metadata."""
    monkeypatch.setattr(extras, "_SOURCES", tmp_path)
    found = packages_of.__wrapped__(extra)
    expected = [Requirement(each) for each in PROJECT["optional-dependencies"][extra]]
    assert sorted(map(Requirement, found), key=str) == sorted(expected, key=str)


@pytest.mark.soak
@pytest.mark.parametrize("extra", EXTRAS)
def test_a_line_finds_its_packages_in_a_fresh_environment(extra: str, tmp_path: Path) -> None:
    """By the index that pip is set up for, and with all that they need."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "fresh"], check=True)
    _, *rest = shlex.split(install_line(extra))
    typed = [tmp_path / "fresh" / "bin" / "pip", *rest, "--dry-run", "--quiet"]
    ended = subprocess.run(typed, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
