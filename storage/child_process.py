"""Children that we start: they run our code, never what lies in the directory that somebody happens to be in, as us.

`python -c` and `python -m` look for modules in the current directory first, which may be a store or an archive that
anybody could write to. Every Python that we start gets -P, which prevents this, and finds our packages where this
process has them: behind everything else, so that they stand in front of nobody's modules.

A process may run with less than it could take back: its real or saved user is root, its effective one is not. A shell
sets the effective user to the real one, and a process can return to a saved one. So a child gets the effective
user and group as its real and saved ones too.
"""

import os
import sys
from pathlib import Path
from typing import Final, NamedTuple

SAFE_PATH: Final = "PYTHONSAFEPATH"
"""The environment variable that does what -P does, for a Python that somebody else starts for us."""

PYTHON_PATH: Final = "PYTHONPATH"
PACKAGES: Final = str(Path(__file__).absolute().parents[1])
"""The directory, or the archive, that our packages lie in."""


def python_command(code: str, *arguments: str) -> list[str]:
    """The command that runs code in a Python of its own; its environment is to be `child_environment`."""
    return [sys.executable, "-P", "-c", f"import sys; sys.path.append({PACKAGES!r}); {code}", *arguments]


class ChildIds(NamedTuple):
    """Arguments of `subprocess.Popen`: the user and group that a child gets, None where it has them anyway."""

    user: int | None = None
    group: int | None = None


def child_ids() -> ChildIds:
    """The ids by which a child has no more rights than this process uses, nor can take any."""
    users, groups = set(os.getresuid()), set(os.getresgid())
    return ChildIds() if len(users) == len(groups) == 1 else ChildIds(os.geteuid(), os.getegid())


def settle_ids() -> None:
    """Give up the rights that this process, a child that was forked, does not use and could take back."""
    user, group = os.geteuid(), os.getegid()
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def child_environment() -> dict[str, str]:
    """Our environment, for children that are Pythons or start some: none looks into the current directory."""
    environment = {**os.environ, SAFE_PATH: "1"}
    # An empty element means the current directory, whatever -P says; many add their own to what was not set.
    paths = [path for path in environment.get(PYTHON_PATH, "").split(os.pathsep) if os.path.isabs(path)]
    environment.pop(PYTHON_PATH, None)
    return {**environment, PYTHON_PATH: os.pathsep.join(paths)} if paths else environment
