"""Kernels that numba compiled are kept under the digest of all: numba itself looks at one file only.

Those that were compiled before are unpacked from an archive, out of which no Python imports them.
"""

import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from numba import config

import broker.kernels
import storage.kernels
from storage.kernels import sources_digest

ROOT = Path(__file__).parents[3]
SOURCES = tuple(Path(str(source)) for source in storage.kernels.SOURCES)
PACKAGES = ("broker/kernels", "protocol", "storage")
USE_A_KERNEL = """
import numpy as np
from storage.kernels import SOURCES, crc32, sources_digest
from storage.kernels import records
print(crc32.__file__, records.__file__, sources_digest(*SOURCES), records.crc32(b"123456789"))
"""


def test_all_kernels_count() -> None:
    assert [source.resolve() for source in SOURCES] == [
        Path(package.__file__ or "").parent.resolve() for package in (storage.kernels, broker.kernels)
    ]


def test_a_change_of_any_kernel_changes_the_cache_directory(tmp_path: Path) -> None:
    digests = {sources_digest(*SOURCES)}
    kernels = [(number, path) for number, source in enumerate(SOURCES) for path in sorted(source.glob("*.py"))]
    for changed, path in kernels:
        copies = [tmp_path / f"{changed}-{path.stem}-{number}" for number in range(len(SOURCES))]
        for source, copy in zip(SOURCES, copies, strict=True):
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        assert sources_digest(*copies) == sources_digest(*SOURCES)
        (copies[changed] / path.name).write_bytes(path.read_bytes() + b"\n")
        digests.add(sources_digest(*copies))
    assert len(digests) == 1 + len(kernels)


def test_numba_was_told_that_directory() -> None:
    assert Path(config.CACHE_DIR).name == sources_digest(*SOURCES)


def archive_of_sources(path: Path) -> Path:
    """The modules as a zip file, as the executors of a cluster get them."""
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(ROOT / "broker" / "__init__.py", "broker/__init__.py")
        for package in PACKAGES:
            for source in sorted((ROOT / package).rglob("*")):
                if source.name.endswith((".py", *EXTENSION_SUFFIXES)):
                    archive.write(source, source.relative_to(ROOT))
    return path


def use_a_kernel(archive: Path, cache: Path) -> list[str]:
    """Import one in a process that has our modules in the archive alone; what it says of where it found it."""
    environment = os.environ | {"PYTHONPATH": str(archive), "NUMBA_CACHE_DIR": str(cache), "NUMBA_DISABLE_JIT": "0"}
    environment["TMPDIR"] = str(archive.parent)
    command = [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}[1:]\n{USE_A_KERNEL}"]
    ended = subprocess.run(command, env=environment, cwd=archive.parent, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def test_kernels_of_an_archive_are_compiled_once_for_all_jobs_that_bring_one(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, second = (archive_of_sources(tmp_path / job / "rocketlens.zip") for job in ("one", "two"))
    found, compiled_before, digest, checksum = use_a_kernel(first, cache)
    assert Path(found).is_relative_to(cache)
    assert Path(compiled_before).parent == Path(found).parent
    assert int(checksum) == zlib.crc32(b"123456789")
    assert digest == sources_digest(*SOURCES)
    compiled = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")}
    assert compiled
    assert use_a_kernel(second, cache) == [found, compiled_before, digest, checksum]
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")} == compiled


def test_a_directory_that_others_may_write_to_is_not_imported_from(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    found, compiled_before, *_ = use_a_kernel(archive_of_sources(tmp_path / "job" / "rocketlens.zip"), cache)
    assert not any(Path(file).is_relative_to(cache) for file in (found, compiled_before))
    assert list(cache.iterdir()) == []
