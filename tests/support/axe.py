"""axe-core, which knows what keeps people from using a page; npm installs the locked version once into the cache."""

import functools
import hashlib
import shutil
import subprocess
from pathlib import Path

from interop.jars import cached
from needed_tools import tool

ROOT = Path(__file__).parents[2]
LOCKED = ROOT / "tests" / "broker" / "web" / "browser" / "axe"
FILES = ("package.json", "package-lock.json")
INSTALL_SECONDS = 300


@functools.cache
def axe_source() -> str:
    """The script that defines `axe` in a page."""
    checksum = hashlib.sha256(b"".join((LOCKED / name).read_bytes() for name in FILES)).hexdigest()
    folder = cached(f"axe-{checksum[:16]}", _install)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


def _install(folder: Path) -> None:
    folder.mkdir()
    for name in FILES:
        shutil.copy(LOCKED / name, folder / name)
    command = [tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=INSTALL_SECONDS)
