"""Hold one attempt of a task at its beginning, wherever it runs, so that a test can have its machine fail just then.

The product has no hook for this: the Python of the cluster's machines gets a `sitecustomize` that listens to what is
opened. The first attempt that opens a file whose name begins with the wanted text waits until the test lets it go on.

The same listener keeps machines apart that are processes of this one: what lies below a directory of others, or below
another executor's directories for blocks, cannot be opened, listed or changed.
"""

import os
from pathlib import Path

from blocking_client import eventually
from spark_classes import site_packages_of

VARIABLE = "HELD_TASKS"
APART = "APART_DIRECTORIES"
"""The environment variable with directories of other machines, separated by commas."""

HELD_SECONDS = 300

LISTENER = """
import os
import sys
import time

control = os.environ.get("HELD_TASKS")


def hold(event, arguments):
    if event != "open" or not isinstance(arguments[0], (str, os.PathLike)):
        return
    try:
        wanted = os.readlink(f"{control}/wanted")
        if os.path.basename(os.fspath(arguments[0])).startswith(wanted):
            os.symlink(str(os.getpid()), f"{control}/held")
        else:
            return
    except OSError:
        return
    while os.path.lexists(f"{control}/wanted"):
        time.sleep(0.02)


others = [path for path in os.environ.get("APART_DIRECTORIES", "").split(",") if path]
touching = {"open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir"}


def keep_apart(event, arguments):
    if event not in touching:
        return
    own = [path for path in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if path]
    for argument in arguments[:2]:
        if not isinstance(argument, str):
            continue
        path = os.path.abspath(argument)
        if any(path.startswith(f"{mine}/") or path == mine for mine in own):
            continue
        if "/blockmgr-" in path or any(path.startswith(f"{other}/") for other in others):
            raise PermissionError(1, "is on another machine", path)


if control:
    sys.addaudithook(hold)
if others:
    sys.addaudithook(keep_apart)
"""


def plant_listener(python: Path) -> None:
    write_listener(site_packages_of(python))


def write_listener(directory: Path) -> None:
    (directory / "sitecustomize.py").write_text(LISTENER)


class HeldTasks:
    """What is to be held, and what is; `directory` must be one that all machines see."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._wanted, self._held = directory / "wanted", directory / "held"

    def hold(self, beginning: str) -> None:
        self._held.unlink(missing_ok=True)
        self._wanted.symlink_to(beginning)

    def wait_for_one(self) -> int:
        eventually(lambda: self._held.is_symlink(), "an attempt that is held", HELD_SECONDS)
        return int(os.readlink(self._held))

    def let_go(self) -> None:
        self._wanted.unlink(missing_ok=True)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_alive(pid: int) -> bool:
    """Whether a process runs, or is stopped; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
