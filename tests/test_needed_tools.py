"""A test for which a program is missing is left out, and the program is named; every other test runs."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = """
import pytest
from needed_tools import tool

@pytest.fixture
def jvm(): return tool("java")

def test_of_a_fixture(jvm): ...
def test_of_its_own(): tool("go")
def test_of_maven_too(): tool("mvn")
def test_of_nothing(): ...
"""


def test_tests_that_need_a_missing_program_are_left_out_and_counted_by_it(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mvn").touch(mode=0o755)
    (tmp_path / "test_it.py").write_text(TESTS)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-ra", "-c", os.devnull, "-p", "needed_tools", str(tmp_path)],
        env={"PATH": str(programs), "PYTHONPATH": str(ROOT / "tests" / "support")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed, 2 skipped" in ended.stdout
    assert "java is not on the PATH: needs a JDK 17 or later" in ended.stdout
    assert "go is not on the PATH: needs Go 1.18 or later" in ended.stdout
