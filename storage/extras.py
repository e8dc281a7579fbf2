"""What to install for a part of RocketLens that needs more than the base: by its packages, not by RocketLens' name.

RocketLens is on no index: `pip install 'rocketlens[spark]'` would fail, or fetch what somebody else has put there. What
an extra needs stands once, in pyproject.toml, which the installed distribution has in its metadata.
"""

import functools
import re
import shlex
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "rocketlens"

_SOURCES: Final = Path(__file__).parents[1]
_REQUIREMENT: Final = re.compile(r"(?P<package>[^;]+?)\s*;.*extra == [\"'](?P<extra>[^\"']+)[\"']")


@functools.cache
def packages_of(extra: str) -> tuple[str, ...]:
    """The packages of an extra, each with its versions; none where nothing says what they are."""
    import tomllib  # these, and what says it, are for who lacks an extra
    from importlib import metadata

    try:
        project = tomllib.loads((_SOURCES / "pyproject.toml").read_text("utf-8"))["project"]
        return tuple(project["optional-dependencies"][extra]) if project["name"] == DISTRIBUTION else ()
    except (OSError, ValueError, KeyError):
        pass
    try:
        found = (_REQUIREMENT.fullmatch(each) for each in metadata.requires(DISTRIBUTION) or ())
        return tuple(each["package"] for each in found if each is not None and each["extra"] == extra)
    except metadata.PackageNotFoundError:
        return ()


def install_line(extra: str) -> str:
    """The command that installs what an extra needs, to be typed as it is."""
    packages = packages_of(extra)
    return f"pip install {shlex.join(packages)}" if packages else "pip install -r requirements-spark.lock"
