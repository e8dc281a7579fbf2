"""PySpark of another version than the pinned one, installed once beside it."""

import subprocess
import sys
from pathlib import Path

SECONDS = 1800


def pyspark_of(version: str) -> Path:
    """The directory that holds a version, for PYTHONPATH."""
    place = Path(sys.prefix) / "cache" / f"pyspark-{version}"
    if not (place / f"pyspark-{version}.dist-info").exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place)]
        subprocess.run([*install, f"pyspark=={version}"], check=True, timeout=SECONDS)
    return place
