"""Pythons that have all that ours has, but for RocketLens: what a cluster's machines are."""

import sysconfig
import venv
from pathlib import Path


def python_without_rocketlens(directory: Path, *lacking: str) -> Path:
    """A virtual environment's Python, with the packages of this one; `lacking` are names of more that it is to lack."""
    venv.create(directory, symlinks=True)
    here = Path(sysconfig.get_path("purelib"))
    site = next(directory.glob("lib/python*/site-packages"))
    for entry in here.iterdir():
        if "rocketlens" not in entry.name and entry.suffix != ".pth" and not entry.name.startswith(lacking or ("\0",)):
            (site / entry.name).symlink_to(entry)
    return directory / "bin" / "python"
