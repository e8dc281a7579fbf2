"""Programs that a machine may not have, and what becomes of the tests that need one that is missing.

Such a test is skipped when it asks for the program: pytest's last lines count these tests by what they need. `.ci/run`
checks first that all programs are there. A plugin of pytest, of which tests/conftest.py is made.
"""

import os
import shutil
from collections.abc import Generator

import pytest

PROGRAMS = dict.fromkeys(("java", "javac", "javap"), "a JDK 17 or later") | {"mvn": "Maven", "go": "Go 1.18 or later"}
PROGRAMS |= dict.fromkeys(("node", "npm"), "Node.js 18 or later with npm")
PROGRAMS |= dict.fromkeys(("chromium", "chromium-headless-shell", "chromedriver"), "Chromium and its driver")
"""What has each program, as `tests/setup.sh` looks for it."""


class ToolMissing(Exception):
    """A program of `PROGRAMS` is not here."""


def tool(name: str) -> str:
    """Return the path of a program: in `$JAVA_HOME/bin` if it is there, else on the PATH; raises ToolMissing."""
    home = os.environ.get("JAVA_HOME")
    found = (shutil.which(name, path=f"{home}/bin") if home else None) or shutil.which(name)
    if found is None:
        raise ToolMissing(f"{name} is not on the PATH: needs {PROGRAMS[name]}")
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """Skip a test of which a fixture needs a program that is missing."""
    yield from _skipping()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Skip a test that needs a program that is missing."""
    yield from _skipping()


def _skipping() -> Generator[None]:
    try:
        return (yield)
    except ToolMissing as error:
        pytest.skip(str(error))
