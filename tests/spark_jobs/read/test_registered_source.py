"""What is in the way of our packages in Spark's workers alone is named there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foreign import plant_foreign, was_imported
from spark_classes import QUICK, quick_python

SESSION = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
import rocketlens

rocketlens.spark()

try:
    spark.read.format("rocketlens").load(sys.argv[1]).count()
except Exception as error:
    print(error)
"""


@pytest.mark.soak  # in each run: test_arrival.py, by what such a worker imports
@pytest.mark.parametrize("names", [("spark_jobs",), ("protocol", "storage")])
def test_workers_name_a_foreign_package_of_the_folder_that_a_session_was_started_in(
    names: tuple[str, ...], g1_store: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Spark starts them by `python -m`, which looks there first; the script's own process does not."""
    script = tmp_path / "session.py"
    script.write_text(SESSION)
    here = plant_foreign(tmp_path / "here", *names)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    ended = subprocess.run(
        [sys.executable, str(script), str(g1_store)],
        env=environment
        | {"PYSPARK_PYTHON": str(quick_python(tmp_path / "python")), "SPARK_LOCAL_IP": "127.0.0.1"}
        | {"SPARK_LAUNCHER_OPTS": " ".join(QUICK), "SPARK_SUBMIT_OPTS": " ".join(QUICK)},
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"ImportError: RocketLens cannot run: {here / names[0]} is in the way of its own package" in ended.stdout
    assert not was_imported(here)
