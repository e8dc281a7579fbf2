"""Compiled modules are unpacked from an archive, out of which no Python imports them."""

import os
import subprocess
import sys
import zipfile
import zlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("protocol", "storage")
USE_A_KERNEL = "from storage.kernels import records; print(records.__file__, records.crc32(b'123456789'))"


def archive_of_sources(path: Path) -> Path:
    """The modules as a zip file, as the executors of a cluster get them."""
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for package in PACKAGES:
            for source in sorted((ROOT / package).rglob("*")):
                if source.name.endswith((".py", *EXTENSION_SUFFIXES)):
                    archive.write(source, source.relative_to(ROOT))
    return path


def use_a_kernel(archive: Path, cache: Path) -> Path:
    """Import one in a process that has our modules in the archive alone; where it found it."""
    environment = os.environ | {"PYTHONPATH": str(archive), "XDG_CACHE_HOME": str(cache), "TMPDIR": str(archive.parent)}
    command = [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}[1:]\n{USE_A_KERNEL}"]
    ended = subprocess.run(command, env=environment, cwd=archive.parent, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found, checksum = ended.stdout.split()
    assert int(checksum) == zlib.crc32(b"123456789")
    return Path(found)


def test_kernels_of_an_archive_are_unpacked_once_for_all_jobs_that_bring_one(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, second = (archive_of_sources(tmp_path / job / "rocketlens.zip") for job in ("one", "two"))
    found = use_a_kernel(first, cache)
    assert found.is_relative_to(cache)
    made = found.stat().st_mtime_ns
    assert use_a_kernel(second, cache) == found
    assert found.stat().st_mtime_ns == made
    assert len(list((cache / "rocketlens").iterdir())) == 1


def test_a_directory_that_others_may_write_to_is_not_imported_from(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "rocketlens").mkdir(parents=True)
    (cache / "rocketlens").chmod(0o777)
    found = use_a_kernel(archive_of_sources(tmp_path / "job" / "rocketlens.zip"), cache)
    assert not found.is_relative_to(cache)
    assert list((cache / "rocketlens").iterdir()) == []
    assert not found.exists(), "what lies in a temporary directory goes with the process"
