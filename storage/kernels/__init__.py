"""Numba kernels on arrays: scan a segment, hash keys, walk a chain, build slots.

They know no objects, so that the server and the Spark jobs share them; each has a plain-Python oracle in
`tests/oracles.py`.

numba keeps a compiled kernel as long as the kernel's own file stays the same, but a kernel contains what it calls from
the other files. So the cache directory is narrowed here, before any kernel is compiled, to one that bears the digest of
all of them, those of the server's fast lane too: after an upgrade nothing stale is ever run.
"""

import hashlib
from pathlib import Path

import numba
from numba import config


def sources_digest(*directories: Path) -> str:
    """Digest of all kernels in some directories and of the compiler's version, as 16 hexadecimal digits."""
    digest = hashlib.sha256(numba.__version__.encode())
    for directory in directories:
        for path in sorted(directory.glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


_HERE = Path(__file__).parent
SOURCES = (_HERE, _HERE.parents[1] / "broker" / "kernels")
CACHE_DIRECTORY = Path(config.CACHE_DIR or _HERE / "__pycache__") / sources_digest(*SOURCES)  # type: ignore[attr-defined]
"""Where the compiled kernels of these sources are kept."""

config.CACHE_DIR = str(CACHE_DIRECTORY)  # type: ignore[attr-defined]
