"""What makes processes of Spark cheap that tests start, JVMs and Pythons: tests with many wait for little else."""

import sysconfig
import venv

from needed_tools import tool

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""What a JVM of a few seconds compiles well is not worth it."""

WITHOUT_ARCHIVES = "import sys; sys.path[:] = [path for path in sys.path if not path.endswith(('.zip', '.jar'))]\n"
"""A line of a .pth file: what Spark puts in front of the path of its Pythons is looked for in site-packages instead."""


def site_packages_of(python):
    return next(python.parents[1].glob("lib/python*/site-packages"))


def find_no_archives(python) -> None:
    """Have a virtual environment's Python import pyspark from its directory wherever Spark starts it."""
    (site_packages_of(python) / "without_archives.pth").write_text(WITHOUT_ARCHIVES)


def quick_python(directory):
    """A Python with the packages of this one, at their places, that does so; raises ToolMissing without a JVM."""
    tool("java")
    venv.create(directory, symlinks=True)
    python = directory / "bin" / "python"
    packages = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (site_packages_of(python) / "packages_of_tests.pth").write_text(packages)
    find_no_archives(python)
    return python
