"""The project's wheel and source distribution, built without a network from a copy of the sources."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("rocketlens", "broker", "protocol", "storage", "spark_jobs")
BESIDE = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def copy_sources(copy: Path) -> Path:
    """What a build starts from; a build folder left behind in the sources would be packed too."""
    for folder in (*PACKAGES, "build_backend"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in BESIDE:
        shutil.copy(ROOT / name, copy / name)
    return copy


def build_wheel(work: Path) -> Path:
    """Build it below a directory."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "."]
    subprocess.run(
        [*command, "--wheel-dir", str(work)], cwd=copy_sources(work / "source"), check=True, capture_output=True
    )
    return next(work.glob("*.whl"))


def build_sdist(work: Path) -> Path:
    """Build the source distribution below a directory, by the backend itself."""
    code = "import sys; sys.path.insert(0, 'build_backend'); import kernel_build; kernel_build.build_sdist(sys.argv[1])"
    command = [sys.executable, "-c", code, str(work.absolute())]
    subprocess.run(command, cwd=copy_sources(work / "source"), check=True, capture_output=True)
    return next(work.glob("*.tar.gz"))
