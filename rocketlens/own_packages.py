"""Where our packages come from: their names are plain words, which packages of other people bear too.

Imported before anything else of ours wherever we are started: by the command, what scripts import and Spark's workers.
So it imports nothing of ours, and little else.
"""

import os
import sys
from importlib.util import find_spec
from typing import Final

PACKAGES: Final = ("broker", "protocol", "spark_jobs", "storage")
"""Those that lie beside `rocketlens`; Spark's workers are sent some of them only."""

CANNOT_RUN: Final = "RocketLens cannot run: "
"""How the sentences begin that tell somebody what to do about an installation."""


def require_own_packages() -> None:
    """Raise ImportError, with a sentence that names the path in the way, where an import would find another package."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not os.path.isdir(ours):
        raise ImportError(
            f"{CANNOT_RUN}no Python loads compiled modules out of the archive {ours}: install or unpack it"
        )
    for name in PACKAGES:
        own = os.path.join(ours, name, "__init__.py")
        found = _origin(name)
        if found == own or not os.path.exists(own):
            continue
        if found is None or not os.path.exists(found) or not os.path.samefile(found, own):
            raise ImportError(f"{CANNOT_RUN}{_in_the_way(name, found, ours)}")


def _origin(name: str) -> str | None:
    """The file that an import of a package runs, or has run; None where nothing would be found."""
    try:
        spec = find_spec(name)
    except ValueError:  # somebody has made a module of that name by hand
        return getattr(sys.modules[name], "__file__", None) or f"a module {name} without a file"
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), name)


def _in_the_way(name: str, found: str | None, ours: str) -> str:
    if found is None:
        return f"its package {name} lies in {ours}, which Python does not search for modules"
    path = os.path.dirname(found) if os.path.basename(found) == "__init__.py" else found
    folder = os.path.dirname(path)
    return (
        f"{path} is in the way of its own package {name} in {ours}; take {folder} off Python's path "
        "(PYTHONPATH, the current directory, an installed package) or rename what is there"
    )
