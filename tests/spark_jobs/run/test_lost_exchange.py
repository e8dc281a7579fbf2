"""What is lost while blocks are on their way through Spark's shuffle: the output is the same, and nothing else is left.

The machines are the executors of Spark's `local-cluster`, which share no directory: what the driver has, or another
executor, they cannot open (:mod:`held_tasks`).
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from compact_oracle import build_compacted, keep_entries, read_entries, take_mark
from held_tasks import APART, VARIABLE, HeldTasks, parent_of, write_listener
from oracles import build_index, read_log, signed
from process import COMMAND
from spark_classes import QUICK, quick_python
from store_writer import StoreWriter

pytestmark = pytest.mark.soak  # in each run: a shuffle on one machine, test_shuffle_exchange.py

ROOT = Path(__file__).parents[3]
MASTER = "local-cluster[2,1,512]"
SECONDS = 300
SLOTS, ENTRIES = 97, 150
SETTINGS = {
    "spark.executor.memory": "512m", "spark.rocketlens.startSeconds": "180", "spark.shuffle.io.retryWait": "100ms",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}  # fmt: skip
SHAPE = ("--slots", str(SLOTS), "--entries", str(ENTRIES))
JOBS = {
    "rebuild": ("rebuild", "all", *SHAPE, "--queue-file-size", "2000", "--from-offset", "0"),
    "compact": ("compact", "index", *SHAPE),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of some segments and queues."""
    root = tmp_path_factory.mktemp("lost") / "store"
    writer = StoreWriter(root, segment_size=8192, index_slots=SLOTS, index_entries=ENTRIES, queue_file_size=2000)
    for number in range(400):
        writer.append("TopicTest", b"x" * 100, keys=f"k{number} hot", tags=f"Tag{number % 3}", queue_id=number % 4)
    writer.close()
    assert len(list((root / "commitlog").iterdir())) >= 8
    return root


def expected(store: Path, job: str) -> dict[str, bytes]:
    """What a job makes of the store, by its paths; index files have numbers for names, and no checkpoint."""
    if job == "compact":
        files = [path.read_bytes() for path in sorted((store / "index").iterdir())]
        entries = [entry for data in files for entry in read_entries(data, SLOTS)]
        kept = keep_entries(entries, read_log(store / "commitlog"))
        index, queues = build_compacted(kept, SLOTS, ENTRIES, signed(files[-1], 24, 8)), {}
    else:
        index = build_index(read_log(store / "commitlog"), SLOTS, ENTRIES)
        paths = [path for path in (store / "consumequeue").rglob("*") if path.is_file()]
        queues = {str(path.relative_to(store)): path.read_bytes() for path in paths}
        assert len(queues) >= 4
    assert len(index) >= 3
    return queues | {f"index/{number}": data for number, data in enumerate(index)}


@dataclass
class Run:
    """One job as a process, which leads a group of its own, below a directory of its own."""

    process: "subprocess.Popen[str]"
    work: Path
    held: HeldTasks

    def end(self) -> None:
        """Wait for the end, which must be a good one."""
        printed, said = self.process.communicate(timeout=SECONDS)
        assert self.process.returncode == 0, printed + said

    def kill(self) -> None:
        """Kill the driver and all that it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=SECONDS)

    def made(self) -> dict[str, bytes]:
        """The files that the manifest names, as :func:`expected` names them."""
        parts = json.loads((self.work / "out" / "_manifest.json").read_text())["parts"]
        files = {part["path"]: (self.work / "out" / part["name"]).read_bytes() for part in parts}
        assert files.pop("checkpoint")
        index = [files.pop(path) for path in sorted(files) if path.startswith("index/")]
        is_compacted = any(take_mark(data, SLOTS)[1] is not None for data in index)
        return files | {
            f"index/{number}": take_mark(data, SLOTS)[0] if is_compacted else data for number, data in enumerate(index)
        }

    def left_over(self) -> list[str]:
        """Objects that the manifest does not name, and directories of tasks on the disks of executors."""
        named = {part["name"] for part in json.loads((self.work / "out" / "_manifest.json").read_text())["parts"]}
        out = self.work / "out"
        objects = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} - {"_manifest.json"}
        directories = [str(path) for path in (self.work / "disks").rglob("rocketlens-*") if path.is_dir()]
        return [*sorted(objects - named), *directories]


@pytest.fixture
def start(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Run]]:
    """Starts a job of JOBS on a store; what still runs of it at the end is killed."""
    for name in ("driver", "disks", "held", "listener"):
        (tmp_path / name).mkdir()
    write_listener(tmp_path / "listener")
    runs: list[Run] = []
    options_of_jvms = " ".join(QUICK)
    python = quick_python(tmp_path / "python")

    def begin(job: str, store: Path) -> Run:
        settings = SETTINGS | {
            "spark.local.dir": str(tmp_path / "disks"),
            "spark.executorEnv.PYTHONPATH": str(tmp_path / "listener"),
            f"spark.executorEnv.{VARIABLE}": str(tmp_path / "held"),
            f"spark.executorEnv.{APART}": str(tmp_path / "driver"),
            "spark.executorEnv.TMPDIR": "/tmp",
            "spark.pyspark.python": str(python),
            "spark.executor.extraJavaOptions": options_of_jvms,
            "spark.driver.extraJavaOptions": options_of_jvms,
        }
        options = [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]
        command, *rest = JOBS[job]
        arguments = [command, rest[0], str(store), *rest[1:], "--out", f"file://{tmp_path}/out"]
        process = subprocess.Popen(
            [*COMMAND, *arguments, "--exchange", "shuffle", "--master", MASTER, *options],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path / "driver")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        runs.append(Run(process, tmp_path, HeldTasks(tmp_path / "held")))
        return runs[-1]

    yield begin
    for run in runs:
        run.held.let_go()
        run.kill()


def executor_of(worker: int) -> int:
    """The JVM above a worker and the daemon that forked it."""
    return parent_of(parent_of(worker))


def test_machines_are_kept_apart_in_these_tests(tmp_path: Path) -> None:
    """What the driver or another executor has cannot be opened, and one's own can."""
    (tmp_path / "listener").mkdir()
    write_listener(tmp_path / "listener")
    for name in ("driver", "blockmgr-own", "blockmgr-other"):
        (tmp_path / name / "rocketlens").mkdir(parents=True)
        (tmp_path / name / "rocketlens" / "blocks").write_bytes(b"blocks")
    environment = {
        **os.environ, "PYTHONPATH": str(tmp_path / "listener"), APART: str(tmp_path / "driver"),
        "SPARK_LOCAL_DIRS": str(tmp_path / "blockmgr-own"),
    }  # fmt: skip

    def opened(name: str) -> bool:
        code = f"open({str(tmp_path / name / 'rocketlens' / 'blocks')!r})"
        ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert ended.returncode == 0 or "is on another machine" in ended.stderr, ended.stderr
        return ended.returncode == 0

    assert [opened(name) for name in ("driver", "blockmgr-own", "blockmgr-other")] == [False, True, False]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("job", JOBS)
def test_whatever_is_lost_the_output_is_the_same(job: str, seed: int, store: Path, start: Callable[..., Run]) -> None:
    """Executors and drivers are killed at any moment, one after the other."""
    generator = random.Random(f"{job} {seed}")
    wanted, losses = expected(store, job), generator.randint(1, 3)
    run, is_first = start(job, store), True
    for _ in range(losses):
        phase = generator.choice(("build-", "build-index-", "scan-" if job == "rebuild" else "split-", "merge-"))
        if phase == "merge-" and job == "rebuild":
            phase = "build-queues-"
        run.held.hold(phase)
        deadline = time.monotonic() + SECONDS
        while not (run.work / "held" / "held").is_symlink() and run.process.poll() is None:
            assert time.monotonic() < deadline, "nothing was held, and the job has not ended"
            time.sleep(0.05)
        if run.process.poll() is not None:  # it had left that phase behind
            run.held.let_go()
            break
        held = run.held.wait_for_one()
        time.sleep(generator.random() / 2)
        if generator.random() < 0.3:
            run.kill()
            run.held.let_go()
            run, is_first = start(job, store), False
        else:
            os.kill(executor_of(held), signal.SIGKILL)
            run.held.let_go()
    run.end()
    assert run.made() == wanted
    assert not is_first or run.left_over() == []
