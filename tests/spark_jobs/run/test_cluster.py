"""Clusters whose machines have no RocketLens: all executors do their share, and the bytes are the same."""

import json
import os
import resource
import signal
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from blocking_client import eventually
from built_wheel import shared_wheel
from compact_oracle import build_compacted, keep_entries, read_entries, take_mark
from held_tasks import APART, VARIABLE, HeldTasks, is_alive, parent_of, plant_listener
from oracles import build_index, read_log, signed
from process import COMMAND
from queue_runs import files_under
from spark_classes import QUICK, find_no_archives
from spark_cluster import python_without_rocketlens, spark_cluster
from spark_events import SparkEvents
from store_writer import StoreWriter

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests" / "support" / "submitted_jobs.py"
LOOPBACK = "127.0.0.1"
END_SECONDS = 60


@dataclass(frozen=True)
class Ended:
    code: int
    printed: str
    said: str

    @property
    def report(self):
        assert self.code == 0, self
        return json.loads(self.printed)


class ClusterSession:
    """A driver in `work` that runs the jobs it is given; `held` holds tasks of them, `events` is what happened."""

    def __init__(self, master: str, python: Path, packages: Path, work: Path, settings: dict[str, str]) -> None:
        for name in ("events", "held", "session", "driver"):
            (work / name).mkdir(parents=True)
        self.held, self.events = HeldTasks(work / "held"), SparkEvents(work / "events")
        self.work, self._packages, self._log = work, packages, work / "session.log"
        home, pipe = Path(pyspark.__file__).parent, work / "jobs"
        os.mkfifo(pipe)
        self._pipe = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)  # both ends, so that this does not wait for the driver
        settings = {
            **settings, "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{work / 'events'}",
            "spark.eventLog.compress": "false", f"spark.executorEnv.{VARIABLE}": str(self.held.directory),
            f"spark.executorEnv.{APART}": str(work / "driver"), "spark.executorEnv.TMPDIR": "/tmp",
        }  # fmt: skip
        options = [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]
        environment = {
            **os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": str(packages), "SPARK_LAUNCHER_OPTS": " ".join(QUICK), "TMPDIR": str(work / "driver"),
        }  # fmt: skip
        command = [str(home / "bin" / "spark-submit"), "--master", master, *options, str(SCRIPT), str(work / "session")]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, str(pipe)], env=environment, cwd=work, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.held.let_go()
        os.close(self._pipe)
        self.kill()

    def start(self, script: str, *arguments: str) -> None:
        job = [str(self._packages / "spark_jobs" / f"{script}.py"), *arguments]
        os.write(self._pipe, f"{json.dumps(job)}\n".encode())

    def end(self) -> Ended:
        others = []
        for line in self.process.stdout:
            if line.startswith('{"code"'):
                return Ended(**json.loads(line))
            others.append(line)  # spark-submit has Python's stderr here too
        raise AssertionError("".join([*others, self._log.read_text()])[-4000:])

    def run(self, script: str, *arguments: str) -> Ended:
        self.start(script, *arguments)
        return self.end()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
        self.process.wait(END_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()


SUBMIT_SECONDS = 600
BOTH_WORKERS = {
    "spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}  # fmt: skip
"""Small tasks would all have been done by the executor that starts first."""

ONE_CORE = {"spark.cores.max": "1"}
"""One executor, for what needs no second one: to start one takes more than to run a job."""

ON_DEMAND = {"spark.dynamicAllocation.enabled": "true"}
"""No executor is there when the application starts, however fast the cluster is: the first job has one started."""

SHAPE = ("--slots", "97", "--entries", "150", "--queue-file-size", "2000")

UNEASY = {
    "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
}  # fmt: skip
"""Spark starts a copy of each task that takes long, which none does that nothing holds."""

SMALLEST_FILE = 64
"""Bytes that a file may have where the disk is full: less than any block, more than a task's progress."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(shared_wheel(tmp_path_factory)) as wheel:
        wheel.extractall(work / "packages")
    return work / "packages"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = python_without_rocketlens(tmp_path_factory.mktemp("bare") / "venv")
    plant_listener(python)
    find_no_archives(python)
    return python


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    work = tmp_path_factory.mktemp("cluster")
    with spark_cluster(work, workers=2, jvm_options=QUICK) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def as_options(settings: dict[str, str]) -> list[str]:
    return [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]


def command(cluster, python, *arguments, **settings):
    """`rocketlens` from the sources, for a worker of another Python."""
    options = {**cluster.settings, **ONE_CORE, "spark.pyspark.python": str(python), **settings}
    line = [*COMMAND, *arguments, "--master", cluster.url, *as_options(options)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=SUBMIT_SECONDS, check=False)


def assert_rebuilt(store: Path, out: Path) -> None:
    built = [path.read_bytes() for path in sorted((out / "index").iterdir())]
    assert built == build_index(read_log(store / "commitlog"), 97, 150)
    assert_queues(store, out)


def assert_queues(store: Path, out: Path) -> None:
    files = files_under(store / "consumequeue")
    assert len(files) >= 4
    built = files_under(out / "consumequeue")
    assert {path: built[path] for path in files} == files


@pytest.fixture(scope="class")
def session(tmp_path_factory, cluster, packages, bare):
    """One application for all jobs and losses, since to start one takes longer than to run them."""
    work = tmp_path_factory.mktemp("session")
    with ClusterSession(cluster.url, bare, packages, work, cluster.settings | BOTH_WORKERS | UNEASY) as session:
        yield session


@pytest.mark.soak  # in each run: test_arrival.py, test_work_directory.py and test_shuffle_exchange.py
@pytest.mark.usefixtures("session")
class TestOneApplication:
    """In this order: what is lost in a test stays lost, and the last one kills the driver."""

    def test_both_workers_run_tasks(self, tmp_path: Path, session: ClusterSession, store: Path) -> None:
        session.run("rebuild_all", str(store), "--out", str(tmp_path / "out"), *SHAPE, "--json")
        eventually(lambda: len(session.events.executors("build")) == 2, "the events of the job")
        assert len(session.events.executors("scan")) == 2
        assert sum(session.events.executors("scan").values()) == len(list((store / "commitlog").iterdir())) >= 20
        assert_rebuilt(store, tmp_path / "out")

    def test_each_job_runs_when_submitted(self, tmp_path: Path, session: ClusterSession, store: Path) -> None:
        out = {name: str(tmp_path / name) for name in ("index", "queues", "compact", "export")}
        for name, shape in (("index", SHAPE[:4]), ("queues", SHAPE[4:])):
            ended = session.run(f"rebuild_{name}", str(store), "--out", out[name], *shape, "--json")
            assert ended.report["messages"] == len(read_log(store / "commitlog"))
        built = [path.read_bytes() for path in sorted(Path(out["index"], "index").iterdir())]
        assert built == build_index(read_log(store / "commitlog"), 97, 150)
        assert_queues(store, Path(out["queues"]))
        assert session.run("compact_index", str(store), "--out", out["compact"], *SHAPE[:4], "--json").code == 0
        compacted = sorted(Path(out["compact"], "index").iterdir())
        assert [take_mark(path.read_bytes(), 97)[0] for path in compacted] == compacted_index(store)
        checked = session.run("doctor_store", str(store), "--deep", "--work", str(tmp_path), "--json")
        assert checked.report["verify"]["details"]["clean"] is True
        exported = session.run("export_store", str(store), "--format", "ndjson", "--out", out["export"], "--json")
        assert exported.report["messages"] == len(read_log(store / "commitlog"))
        lines = [line for part in Path(out["export"]).glob("part-*") for line in part.read_text().splitlines()]
        assert len(lines) == len(read_log(store / "commitlog"))

    def test_workers_send_one_another_blocks_by_the_shuffle_and_what_they_build_to_a_url(
        self, tmp_path, session, store
    ) -> None:
        """They can open no directory of one another's, nor of the driver's (:mod:`held_tasks`)."""
        out, before = f"file://{tmp_path}/out", session.events.lost_executors()
        session.held.hold("build-")
        session.start("rebuild_all", str(store), "--out", out, *SHAPE, "--exchange", "shuffle")
        os.kill(executor_of(session.held.wait_for_one()), signal.SIGKILL)
        session.held.let_go()
        session.end()
        assert session.events.lost_executors() > before
        assert session.events.repeated_stages(), "nothing was sent a second time"
        parts = json.loads((tmp_path / "out" / "_manifest.json").read_text())["parts"]
        made = {part["path"]: (tmp_path / "out" / part["name"]).read_bytes() for part in parts}
        built = [made[path] for path in sorted(made) if path.startswith("index/")]
        assert built == build_index(read_log(store / "commitlog"), 97, 150)
        queues = files_under(store / "consumequeue")
        assert len(queues) > 1
        sent = {path: data for path, data in made.items() if path.startswith("consumequeue/")}
        assert {f"consumequeue/{path}": data for path, data in queues.items()} == sent

    def test_a_task_that_stands_still_is_overtaken_by_its_speculative_copy(self, tmp_path, session, store) -> None:
        before = session.events.speculative()
        held = rebuild_with_one_held(session, store, tmp_path)
        assert_whole(session, store, tmp_path, held)
        assert session.events.speculative() > before

    def test_a_worker_is_killed(self, tmp_path, session, cluster, store) -> None:
        before = session.events.lost_executors()
        held = rebuild_with_one_held(session, store, tmp_path)
        os.kill(parent_of(executor_of(held)), signal.SIGKILL)
        assert_whole(session, store, tmp_path, held)
        assert session.events.lost_executors() > before
        cluster.add_workers(1)

    def test_the_disk_of_a_machine_is_full(self, tmp_path: Path, session: ClusterSession, store: Path) -> None:
        """Its tasks fail, and are run by the other machine, to which this one leaves all that is to come."""
        eventually(lambda: session.events.executors_there() == 2, "an executor on each of two machines")
        held = rebuild_with_one_held(session, store, tmp_path)
        executor = executor_of(held)
        for pid in (executor, parent_of(held), held):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (SMALLEST_FILE, SMALLEST_FILE))
        session.held.let_go()
        assert_whole(session, store, tmp_path, held)
        assert any("File too large" in failure for failure in session.events.failures())

    def test_the_driver_is_killed_and_the_same_command_goes_on(self, tmp_path, session, cluster, bare, store) -> None:
        rebuild_with_one_held(session, store, tmp_path, phase="build-")
        session.kill()
        session.held.let_go()
        assert (tmp_path / "out" / ".rocketlens-work").exists()
        options = ("--out", str(tmp_path / "out"), *SHAPE, "--json")
        ended = command(cluster, bare, "rebuild", "all", str(store), *options, **ON_DEMAND)
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["resumed"]
        assert f"rocketlens: executors are starting: {cluster.url} has given none yet" in ended.stderr
        assert "rocketlens: the first executor is there, after" in ended.stderr
        assert_rebuilt(store, tmp_path / "out")
        assert sorted(os.listdir(tmp_path / "out")) == ["checkpoint", "consumequeue", "index"]


def compacted_index(store: Path) -> list[bytes]:
    files = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    entries = [entry for data in files for entry in read_entries(data, 97)]
    return build_compacted(keep_entries(entries, read_log(store / "commitlog")), 97, 150, signed(files[-1], 24, 8))


def rebuild_with_one_held(session: ClusterSession, store: Path, work: Path, phase: str = "scan-") -> int:
    """Begin a rebuild; the worker that holds the first attempt of a phase."""
    session.held.hold(phase)
    session.start("rebuild_all", str(store), "--out", str(work / "out"), *SHAPE, "--json")
    return session.held.wait_for_one()


def executor_of(worker: int) -> int:
    return parent_of(parent_of(worker))


def assert_whole(session: ClusterSession, store: Path, work: Path, held: int) -> None:
    """The rebuild ends, with the right bytes; what is left of the attempt that was held changes nothing."""
    assert session.end().report["messages"] == len(read_log(store / "commitlog"))
    session.held.let_go()
    eventually(lambda: not is_alive(held), "the end of the attempt that was held")
    assert_rebuilt(store, work / "out")
    assert sorted(os.listdir(work / "out")) == ["checkpoint", "consumequeue", "index"]
