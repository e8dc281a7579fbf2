"""A real cluster: the job is submitted with the wheel as a zip, both workers do their share, the bytes are the same."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from built_wheel import build_wheel
from oracles import build_index, read_log
from spark_cluster import LOOPBACK, spark_cluster
from spark_events import SparkEvents
from store_writer import StoreWriter

ROOT = Path(__file__).parents[2]
SUBMIT_SECONDS = 300


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, under a name that Spark takes for a Python archive."""
    work = tmp_path_factory.mktemp("wheel")
    return Path(shutil.copy(build_wheel(work), work / "rocketlens.zip"))


def write_store(root: Path, segments: int) -> None:
    writer = StoreWriter(root, segment_size=4096, index_slots=97, index_entries=150, queue_file_size=2000)
    number = 0
    while len(list((root / "commitlog").iterdir()) if (root / "commitlog").exists() else []) < segments:
        for _ in range(50):
            writer.append("TopicTest", b"x" * 100, keys=f"k{number} hot", tags=f"Tag{number % 3}", queue_id=number % 4)
            number += 1
        writer.flush()
    writer.close()


def submit(master: str, packages: Path, work: Path, store: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """`spark-submit` as on a machine that has our sources in the zip alone."""
    events = work / "events"
    events.mkdir()
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable,
        "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(work / "numba")),
    }  # fmt: skip
    settings = {
        "spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}", "spark.eventLog.compress": "false", "spark.executor.memory": "512m",
    }  # fmt: skip
    command = [str(home / "bin" / "spark-submit"), "--master", master, "--py-files", str(packages)]
    command += [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]
    command += [str(ROOT / "spark_jobs" / "rebuild_all.py"), str(store), "--out", str(out)]
    command += ["--slots", "97", "--entries", "150", "--queue-file-size", "2000"]
    return subprocess.run(
        command, env=environment, cwd=work, capture_output=True, text=True, timeout=SUBMIT_SECONDS, check=False
    )


def test_both_workers_of_a_cluster_run_tasks_and_the_bytes_are_those_of_one_machine(
    tmp_path: Path, packages: Path
) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    write_store(store, segments=22)
    with spark_cluster(tmp_path, workers=2) as master:
        ended = submit(master, packages, tmp_path, store, out)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    events = SparkEvents(tmp_path / "events")
    assert len(events.executors("scan")) == 2
    assert sum(events.executors("scan").values()) == len(list((store / "commitlog").iterdir())) >= 20
    assert len(events.executors("build")) == 2
    built = [path.read_bytes() for path in sorted((out / "index").iterdir())]
    assert built == build_index(read_log(store / "commitlog"), 97, 150)
    for path in (store / "consumequeue").rglob("*"):
        if path.is_file():
            assert (out / path.relative_to(store)).read_bytes() == path.read_bytes(), path
