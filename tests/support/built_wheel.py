"""The project's wheel and source distribution, built without a network from a copy of the sources."""

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("rocketlens", "broker", "protocol", "storage", "spark_jobs")
QUICK_COMPILER = """\
#!/bin/sh
root={root}
for argument; do
    case "$before" in
    -c) source=$argument ;;
    -o) object=$argument ;;
    esac
    before=$argument
done
compiled=$root/$object
if [ -n "$source" ] && [ "$compiled" -nt "$root/$source" ] && cmp -s "$source" "$root/$source" &&
    [ -z "$(find "$root"/*/kernels/*.h "$root"/build_backend/*.py -newer "$compiled")" ]; then
    exec cp "$compiled" "$object"
fi
exec {compiler} "$@" -O0
"""
"""Compiles without optimizing, which takes most of the time; where the same C was compiled in place, it takes that."""

BESIDE = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def copy_sources(copy: Path) -> Path:
    """What a build starts from; a build folder left behind in the sources would be packed too.

    But for the C that Cython has written from these sources when they were compiled in place: it takes as long to write
    as to compile. It keeps its times, so Cython writes anew what is older than its sources.
    """
    for folder in (*PACKAGES, "build_backend"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for written in (ROOT / "build").glob(f"temp.*-{sys.implementation.cache_tag}/cython"):
        for package in PACKAGES:
            if (written / package).is_dir():
                shutil.copytree(written / package, copy / written.relative_to(ROOT) / package)
    for name in BESIDE:
        shutil.copy(ROOT / name, copy / name)
    return copy


def shared_wheel(factory):
    """The wheel, built by the first of the test processes that asks; beside it lies `source`, which it was built in."""
    root = factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with (root / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return next((root / "wheel").glob("*.whl"), None) or _build_wheel(root / "wheel")


def _build_wheel(work: Path) -> Path:
    """Build it below a directory, by a compiler that takes no time where it can."""
    work.mkdir(exist_ok=True)
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    quick = work / "quick-cc"
    quick.write_text(QUICK_COMPILER.format(root=shlex.quote(str(ROOT)), compiler=shlex.join(compiler)))
    quick.chmod(0o755)
    environment = os.environ | ({"CC": str(quick)} if shutil.which(compiler[0]) else {})
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "."]
    subprocess.run(
        [*command, "--wheel-dir", str(work)],
        cwd=copy_sources(work / "source"), env=environment, check=True, capture_output=True,
    )  # fmt: skip
    return next(work.glob("*.whl"))


def build_sdist(work: Path) -> Path:
    code = "import sys; sys.path.insert(0, 'build_backend'); import kernel_build; kernel_build.build_sdist(sys.argv[1])"
    command = [sys.executable, "-c", code, str(work.absolute())]
    subprocess.run(command, cwd=copy_sources(work / "source"), check=True, capture_output=True)
    return next(work.glob("*.tar.gz"))
