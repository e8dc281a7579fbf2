"""The project's wheel, built without a network from a copy of the sources."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "protocol", "storage", "spark_jobs")
BESIDE = ("pyproject.toml", "README.md", "LICENSE")


def build_wheel(work: Path) -> Path:
    """Build it below a directory; a build folder left behind in the sources would be packed too."""
    copy = work / "source"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BESIDE:
        shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "."]
    subprocess.run([*command, "--wheel-dir", str(work)], cwd=copy, check=True, capture_output=True)
    return next(work.glob("*.whl"))
