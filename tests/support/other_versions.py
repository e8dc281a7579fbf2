"""Packages of other versions than the pinned ones, each installed once beside them."""

import subprocess
import sys
from pathlib import Path

SECONDS = 1800
DUCKDB_EXTENSIONS = ("avro", "iceberg", "delta")
"""Those that read tables; the one of Iceberg needs the one of Avro."""


def pyspark_of(version: str) -> Path:
    return _installed("pyspark", version, ())


def duckdb_of(version: str) -> Path:
    return _installed("duckdb", version, [f"duckdb-extension-{each}=={version}" for each in DUCKDB_EXTENSIONS])


def duckdb_extension(directory: Path, name: str) -> Path:
    (found,) = (directory / f"duckdb_extension_{name}").rglob(f"{name}.duckdb_extension")
    return found


def _installed(name, version, more):
    place = Path(sys.prefix) / "cache" / f"{name}-{version}"
    if not (place / f"{name}-{version}.dist-info").exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place)]
        subprocess.run([*install, f"{name}=={version}", *more], check=True, timeout=SECONDS)
    return place
