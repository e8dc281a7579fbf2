"""Kernels on memory: scan a segment, hash keys, walk a chain, build slots.

They know no objects, so that the server and the Spark jobs share them; each has a plain-Python oracle in
`tests/support/oracles.py`. Those in `.pyx` files are compiled when RocketLens is built; the others, numba's, when they
are first imported.

numba keeps a compiled kernel as long as the kernel's own file stays the same, but a kernel contains what it calls from
the other files. So the cache directory is narrowed here, before any kernel is compiled, to one that bears the digest of
all of them, those of the server's fast lane too: after an upgrade nothing stale is ever run.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.resources.abc import Traversable
from pathlib import Path

import numba
from numba import config

from storage.numba_cache import TEMPORARY, use_numba_cache


def sources_digest(*directories: Traversable) -> str:
    """Digest of all kernels in some directories and of the compiler's version, as 16 hexadecimal digits."""
    digest = hashlib.sha256(numba.__version__.encode())
    for directory in directories:
        for source in _kernels_in(directory):
            digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _kernels_in(directory: Traversable, suffixes: Sequence[str] = (".py",)) -> list[Traversable]:
    found = [source for source in directory.iterdir() if source.name.endswith(tuple(suffixes))]
    return sorted(found, key=lambda source: source.name)


def _in_archive(directory: Path) -> Traversable:
    """A directory of a zip file, which holds our sources on the executors of a Spark cluster."""
    archive = next(parent for parent in directory.parents if parent.is_file())
    return zipfile.Path(archive, directory.relative_to(archive).as_posix() + "/")


def _unpacked(directory: Traversable, cache: Path) -> list[str]:
    """Where a package's modules are to be looked for: in files of their own, in a directory of the cache.

    Compiled modules cannot be imported from an archive at all, and numba knows the path alone of one, which each job
    has another of, and would compile everything anew. The directory bears the digest of what is in it. Where the cache
    takes no files, it is a temporary one, which goes with the process.
    """
    sources = _kernels_in(directory, (".py", *EXTENSION_SUFFIXES))
    digest = hashlib.sha256(b"".join(source.name.encode() + source.read_bytes() for source in sources))
    target = cache / f"sources-{digest.hexdigest()[:16]}"
    if target.exists():
        return [str(target)]
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=cache))
    except OSError:
        fresh = target = Path(tempfile.mkdtemp(prefix=TEMPORARY))
        atexit.register(shutil.rmtree, fresh, ignore_errors=True)
    for source in sources:
        (fresh / source.name).write_bytes(source.read_bytes())
    if fresh != target:
        try:
            os.rename(fresh, target)
        except OSError:  # another process was quicker
            shutil.rmtree(fresh, ignore_errors=True)
    return [str(target)]


_HERE = Path(__file__).parent
_DIRECTORIES = _HERE, _HERE.parents[1] / "broker" / "kernels"
_IS_ARCHIVED = not _HERE.is_dir()
SOURCES: tuple[Traversable, ...] = tuple(map(_in_archive, _DIRECTORIES)) if _IS_ARCHIVED else _DIRECTORIES
if _IS_ARCHIVED:
    config.CACHE_DIR = str(use_numba_cache())  # type: ignore[attr-defined]
CACHE_DIRECTORY = Path(config.CACHE_DIR or _HERE / "__pycache__") / sources_digest(*SOURCES)  # type: ignore[attr-defined]
"""Where the compiled kernels of these sources are kept."""

config.CACHE_DIR = str(CACHE_DIRECTORY)  # type: ignore[attr-defined]
if _IS_ARCHIVED:
    __path__ = _unpacked(SOURCES[0], CACHE_DIRECTORY)
