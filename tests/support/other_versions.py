"""Packages of other versions than the pinned ones, each installed once beside them."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SECONDS = 1800
DUCKDB_EXTENSIONS = ("avro", "iceberg", "delta")
"""Those that read tables; the one of Iceberg needs the one of Avro."""


def pyspark_of(version: str) -> Path:
    """The directory that holds a version, for PYTHONPATH."""
    return _installed("pyspark", version, ())


def duckdb_of(version: str) -> Path:
    """The directory that holds a version and its extensions, which are of just that version, for PYTHONPATH."""
    return _installed("duckdb", version, [f"duckdb-extension-{each}=={version}" for each in DUCKDB_EXTENSIONS])


def duckdb_extension(directory: Path, name: str) -> Path:
    """The file of an extension in the directory of :func:`duckdb_of`."""
    (found,) = (directory / f"duckdb_extension_{name}").rglob(f"{name}.duckdb_extension")
    return found


def _installed(name: str, version: str, more: Sequence[str]) -> Path:
    place = Path(sys.prefix) / "cache" / f"{name}-{version}"
    if not (place / f"{name}-{version}.dist-info").exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place)]
        subprocess.run([*install, f"{name}=={version}", *more], check=True, timeout=SECONDS)
    return place
