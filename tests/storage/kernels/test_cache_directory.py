"""Compiled kernels are kept under the digest of all kernels: numba itself looks at one file only."""

import shutil
from pathlib import Path

from numba import config

import storage.kernels
from storage.kernels import sources_digest

SOURCES = Path(storage.kernels.__file__).parent


def test_a_change_of_any_kernel_changes_the_cache_directory(tmp_path: Path) -> None:
    digests = {sources_digest(SOURCES)}
    for path in sorted(SOURCES.glob("*.py")):
        copy = tmp_path / path.stem
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
        assert sources_digest(copy) == sources_digest(SOURCES)
        (copy / path.name).write_bytes(path.read_bytes() + b"\n")
        digests.add(sources_digest(copy))
    assert len(digests) == 1 + len(list(SOURCES.glob("*.py")))


def test_numba_was_told_that_directory() -> None:
    assert Path(config.CACHE_DIR).name == sources_digest(SOURCES)
