"""Programs that a machine may not have, and what becomes of the tests that need one that is missing."""

import os
import shutil

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
def pytest_runtest_setup():
    yield from _skipping()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    yield from _skipping()


def _skipping():
    try:
        return (yield)
    except ToolMissing as error:
        pytest.skip(str(error))
