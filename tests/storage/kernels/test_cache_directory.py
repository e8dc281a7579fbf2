"""Compiled kernels are kept under the digest of all kernels: numba itself looks at one file only."""

import shutil
from pathlib import Path

from numba import config

import broker.kernels
import storage.kernels
from storage.kernels import SOURCES, sources_digest


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
