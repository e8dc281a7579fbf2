"""A real cluster, whose machines have no RocketLens: both workers do their share, and the bytes are the same."""

import filecmp
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from benchmarks.executor_start import python_without_rocketlens
from benchmarks.make_store import make_store
from benchmarks.store_plan import StoreParameters
from built_wheel import shared_wheel
from foreign import plant_foreign, was_imported
from oracles import build_index, read_log
from planted import imported, plant
from process import COMMAND
from spark_cluster import LOOPBACK, spark_cluster
from spark_events import SparkEvents
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.run.progress import Silence
from store_writer import StoreWriter

ROOT = Path(__file__).parents[3]
SUBMIT_SECONDS = 600
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""What a JVM of a few seconds compiles well is not worth it."""

SETTINGS = {
    "spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.executor.memory": "512m",
    "spark.rocketlens.startSeconds": "180", "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.driver.extraJavaOptions": QUICK_JVM,
}  # fmt: skip


SESSION = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master(sys.argv[2])
for setting in sys.argv[3:]:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
import spark_jobs.rocketlens_format

messages = spark.read.format("rocketlens").load(sys.argv[1])
print(messages.count(), messages.where("tags = 'Tag1'").count())
"""
"""A session of somebody else's that the data source is used in: rows, and rows of one tag."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked."""
    work = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(shared_wheel(tmp_path_factory)) as wheel:
        wheel.extractall(work / "packages")
    return work / "packages"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of the cluster's machines."""
    return python_without_rocketlens(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster of two workers."""
    with spark_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as master:
        yield master


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of more than twenty segments."""
    store = tmp_path_factory.mktemp("store")
    write_store(store, segments=22)
    return store


def write_store(root: Path, segments: int) -> None:
    writer = StoreWriter(root, segment_size=4096, index_slots=97, index_entries=150, queue_file_size=2000)
    number = 0
    while len(list((root / "commitlog").iterdir()) if (root / "commitlog").exists() else []) < segments:
        for _ in range(50):
            writer.append("TopicTest", b"x" * 100, keys=f"k{number} hot", tags=f"Tag{number % 3}", queue_id=number % 4)
            number += 1
        writer.flush()
    writer.close()


def submit(
    master: str, python: Path, packages: Path, work: Path, store: Path, out: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """`spark-submit` as on a machine that has our wheel unpacked alone."""
    events = work / "events"
    events.mkdir()
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": str(packages),
    }  # fmt: skip
    settings = {
        **SETTINGS, "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
    }  # fmt: skip
    command = [str(home / "bin" / "spark-submit"), "--master", master]
    command += as_options(settings)
    command += [str(packages / "spark_jobs" / "rebuild_all.py"), str(store), "--out", str(out), *options]
    return subprocess.run(
        command, env=environment, cwd=work, capture_output=True, text=True, timeout=SUBMIT_SECONDS, check=False
    )


def as_options(settings: dict[str, str]) -> list[str]:
    return [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]


def command(python: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """`rocketlens` from the sources, for workers of another Python."""
    return subprocess.run(
        [*COMMAND, *arguments, *as_options({**SETTINGS, "spark.pyspark.python": str(python), **settings})],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SUBMIT_SECONDS,
        check=False,
    )


def assert_both_workers_ran(events: SparkEvents, store: Path) -> None:
    """Each segment was scanned by one task, and both workers had some of these and of the building."""
    assert len(events.executors("scan")) == 2
    assert sum(events.executors("scan").values()) == len(list((store / "commitlog").iterdir())) >= 20
    assert len(events.executors("build")) == 2


def test_both_workers_of_a_cluster_run_tasks_and_the_bytes_are_those_of_one_machine(
    tmp_path: Path, packages: Path, bare: Path, master: str, store: Path
) -> None:
    """Submitted, and as a command that starts Spark's driver itself."""
    out, direct = tmp_path / "out", tmp_path / "direct"
    plant(tmp_path)  # where the submitted driver is started
    options = ("--slots", "97", "--entries", "150", "--queue-file-size", "2000")
    ended = [submit(master, bare, packages, tmp_path, store, out, *options)]
    ended.append(command(bare, "rebuild", "all", str(store), "--out", str(direct), "--master", master, *options))
    for each in ended:
        assert each.returncode == 0, each.stdout + each.stderr
    assert imported(tmp_path) == {}
    assert_both_workers_ran(SparkEvents(tmp_path / "events"), store)
    for made in (out, direct):
        built = [path.read_bytes() for path in sorted((made / "index").iterdir())]
        assert built == build_index(read_log(store / "commitlog"), 97, 150)
        for path in (store / "consumequeue").rglob("*"):
            if path.is_file():
                assert (made / path.relative_to(store)).read_bytes() == path.read_bytes(), path


def test_workers_that_share_no_directory_send_what_they_build(
    tmp_path: Path, bare: Path, master: str, store: Path
) -> None:
    """Blocks go from one worker to the other by Spark's shuffle; no --work is there for both."""
    options = ("--slots", "97", "--entries", "150", "--queue-file-size", "2000", "--exchange", "shuffle")
    ended = command(bare, "rebuild", "all", str(store), "--out", f"file://{tmp_path}/out", "--master", master, *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    parts = json.loads((tmp_path / "out" / "_manifest.json").read_text())["parts"]
    made = {part["path"]: (tmp_path / "out" / part["name"]).read_bytes() for part in parts}
    built = [made[path] for path in sorted(made) if path.startswith("index/")]
    assert built == build_index(read_log(store / "commitlog"), 97, 150)
    queues = {str(path.relative_to(store)): path for path in (store / "consumequeue").rglob("*") if path.is_file()}
    assert len(queues) > 1
    assert {path: path_of.read_bytes() for path, path_of in queues.items()} == {
        path: data for path, data in made.items() if path.startswith("consumequeue/")
    }


def test_a_foreign_package_on_the_workers_is_named(tmp_path: Path, bare: Path, master: str, store: Path) -> None:
    foreign = plant_foreign(tmp_path / "theirs", "spark_jobs", "storage")
    rebuild = ("rebuild", "index", str(store), "--out", str(tmp_path / "out"), "--master", master)
    ended = command(bare, *rebuild, **{"spark.executorEnv.PYTHONPATH": str(foreign)})
    assert ended.returncode == 3
    assert f"rocketlens: RocketLens cannot run: {foreign / 'spark_jobs'} is in the way" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not was_imported(foreign)


def test_the_data_source_reads_on_a_cluster_in_a_session_that_somebody_else_has_started(
    tmp_path: Path, bare: Path, master: str, store: Path
) -> None:
    (tmp_path / "session.py").write_text(SESSION)
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "session.py"), str(store), master, *settings],
        env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": str(bare)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SUBMIT_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    log = read_log(store / "commitlog")
    assert ended.stdout.split() == [str(len(log)), str(sum(record.properties.get("TAGS") == "Tag1" for record in log))]


@pytest.mark.soak
def test_more_than_a_gigabyte_comes_out_of_a_cluster_as_out_of_one_machine(
    tmp_path: Path, packages: Path, bare: Path, master: str
) -> None:
    slots, entries = 500_000, 2_000_000
    store = make_store(tmp_path, StoreParameters(count=2_200_000, segment_size=1 << 25), None)
    assert sum(path.stat().st_size for path in (store / "commitlog").iterdir()) >= 1 << 30
    out, alone = tmp_path / "out", tmp_path / "alone"
    ended = submit(master, bare, packages, tmp_path, store, out, "--slots", str(slots), "--entries", str(entries))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert_both_workers_ran(SparkEvents(tmp_path / "events"), store)
    request = RebuildRequest(
        store=str(store), out=str(alone), index=True, queues=True, slots=slots, entries=entries, master="local[*]"
    )
    run_rebuild(request, Silence())
    files = [path.relative_to(alone) for path in alone.rglob("*") if path.is_file()]
    assert sorted(files) == sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())
    assert sum(path.parts[0] == "index" for path in files) >= 4
    assert [str(path) for path in files if not filecmp.cmp(alone / path, out / path, shallow=False)] == []
