"""Kernels on memory: scan a segment, hash keys, walk a chain, build slots; compiled when RocketLens is built.

They know few objects, so that the server and the Spark jobs share them; each has a plain-Python oracle in
`tests/support/oracles.py`.
"""

from pathlib import Path

TEMPORARY = "rocketlens-kernels-"


def _unpacked(directory: Path) -> list[str]:
    """Where this package's modules are to be looked for: unpacked from the zip file in which executors get them.

    No Python imports compiled modules from an archive. They are kept in the user's cache, in a directory that bears the
    digest of what is in it; where there is none that is safe, in a temporary one, which goes with the process.
    """
    import atexit
    import hashlib
    import os
    import shutil
    import tempfile
    import zipfile
    from importlib.machinery import EXTENSION_SUFFIXES

    from storage.own_directories import user_cache

    archive = next(parent for parent in directory.parents if parent.is_file())
    packed = zipfile.Path(archive, directory.relative_to(archive).as_posix() + "/")
    suffixes = (".py", *EXTENSION_SUFFIXES)
    sources = sorted((each for each in packed.iterdir() if each.name.endswith(suffixes)), key=lambda each: each.name)
    digest = hashlib.sha256(b"".join(source.name.encode() + source.read_bytes() for source in sources))
    cache = user_cache()
    target = None if cache is None else cache / f"kernels-{digest.hexdigest()[:16]}"
    if target is not None and target.exists():
        return [str(target)]
    fresh = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=cache))
    for source in sources:
        (fresh / source.name).write_bytes(source.read_bytes())
    if target is None:
        atexit.register(shutil.rmtree, fresh, ignore_errors=True)
        return [str(fresh)]
    try:
        os.rename(fresh, target)
    except OSError:  # another process was quicker
        shutil.rmtree(fresh, ignore_errors=True)
    return [str(target)]


if not Path(__file__).parent.is_dir():
    __path__ = _unpacked(Path(__file__).parent)
