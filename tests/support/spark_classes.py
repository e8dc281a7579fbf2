"""What makes processes of Spark cheap which tests start, JVMs and Pythons: tests that start many wait for little else.

RocketLens leaves Spark's classes, loaded and verified, in an archive of the user's cache for the next JVM that it
starts (`spark_jobs.run.class_archive`). Masters, workers, executors and submitted drivers have the same class path, so
they take the same archive.
"""

import fcntl
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pyspark
import pytest

from spark_jobs.run.class_archive import class_archive

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 600

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""What a JVM of a few seconds compiles well is not worth it."""

SESSION = """
import sys
from pathlib import Path
from spark_jobs.run.session import run_tasks, spark_context

with spark_context("classes", "local[1]", Path(sys.argv[1])) as context:
    run_tasks(context, "one", [7], lambda number: {"number": number})
"""
"""A session whose JVM leaves the archive as it ends: with the classes of a driver and those of an executor."""


def quick_jvm(factory: pytest.TempPathFactory) -> list[str]:
    """The options; the first of the test processes that asks has the archive made where there is none."""
    home = Path(pyspark.__file__).parent
    root = factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with (root / "spark-classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if class_archive(home).is_missing:
            environment = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
            subprocess.run(
                [sys.executable, "-c", SESSION, str(factory.mktemp("spark-classes"))],
                env=environment, cwd=ROOT, check=True, capture_output=True, timeout=TIMEOUT_SECONDS,
            )  # fmt: skip
    archive = class_archive(home)
    return [*QUICK, *([] if archive.is_missing else archive.options())]


WITHOUT_ARCHIVES = "import sys; sys.path[:] = [path for path in sys.path if not path.endswith(('.zip', '.jar'))]\n"
"""A line of a .pth file: what Spark puts in front of the path of its Pythons is looked for in site-packages instead."""


def site_packages_of(python: Path) -> Path:
    """The directory of packages of a virtual environment, by its Python."""
    return next(python.parents[1].glob("lib/python*/site-packages"))


def find_no_archives(python: Path) -> None:
    """Have a virtual environment's Python import pyspark from its directory wherever Spark starts it."""
    (site_packages_of(python) / "without_archives.pth").write_text(WITHOUT_ARCHIVES)


def quick_python(directory: Path) -> Path:
    """A Python with the packages of this one, at their places, that does so."""
    venv.create(directory, symlinks=True)
    python = directory / "bin" / "python"
    packages = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (site_packages_of(python) / "packages_of_tests.pth").write_text(packages)
    find_no_archives(python)
    return python
