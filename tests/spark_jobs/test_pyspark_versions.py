"""The jobs and the data source run with the newest pyspark of each line that the requirement admits."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from other_versions import pyspark_of

ROOT = Path(__file__).parents[2]
VERSIONS = ("4.0.5", "4.1.4", "4.2.1")
LEFT_OPEN = "ignore:unclosed <socket.socket:ResourceWarning"
"""What pyspark 4.0 does with sockets of its own, between Python and the JVM."""

RUN = (
    "tests/spark_jobs/read/test_data_source.py",
    "tests/spark_jobs/read/test_stream_reader.py::test_a_query_follows_a_store_that_grows",
    "tests/spark_jobs/run/test_engines.py",
    "tests/spark_jobs/build/test_shuffle_exchange.py",
)
"""Reading as a batch and as a stream, all jobs on either engine, and by Spark's own shuffle."""


def line(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))


def test_the_requirement_admits_the_lines_that_are_run_and_no_others() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = [*map(line, VERSIONS), line(version("pyspark"))]
    (major, first), (_, last) = min(lines), max(lines)
    assert lines == [(major, minor) for minor in range(first, last + 1)]
    assert f"pyspark>={major},<{major}.{last + 1}" in extras["spark"]


@pytest.mark.soak
@pytest.mark.parametrize("number", VERSIONS)
def test_jobs_and_the_data_source_run_with_a_version(number: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(pyspark_of(number))}
    shown = "import pyspark; print(pyspark.__version__)"
    seen = subprocess.run([sys.executable, "-c", shown], env=environment, capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == number
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", LEFT_OPEN, *RUN]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert ended.returncode == 0, ended.stdout[-6000:]
