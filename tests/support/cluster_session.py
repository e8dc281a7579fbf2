"""An application on a cluster, started by spark-submit, in which a test runs one job after another."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyspark

from held_tasks import APART, VARIABLE, HeldTasks
from spark_classes import QUICK
from spark_events import SparkEvents

SCRIPT = Path(__file__).with_name("submitted_jobs.py")
LOOPBACK = "127.0.0.1"
END_SECONDS = 60


@dataclass(frozen=True)
class Ended:
    """What a job left: exit code, stdout and stderr."""

    code: int
    printed: str
    said: str

    @property
    def report(self) -> dict[str, Any]:
        assert self.code == 0, self
        report: dict[str, Any] = json.loads(self.printed)
        return report


class ClusterSession:
    """A driver in `work` that runs the jobs it is given; `held` holds tasks of them, `events` is what happened."""

    def __init__(self, master: str, python: Path, packages: Path, work: Path, settings: dict[str, str]) -> None:
        """Start it: the driver from the packages, the executors with a Python that lacks them."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.let_go()
        os.close(self._pipe)
        self.kill()

    def start(self, script: str, *arguments: str) -> None:
        job = [str(self._packages / "spark_jobs" / f"{script}.py"), *arguments]
        os.write(self._pipe, f"{json.dumps(job)}\n".encode())

    def end(self) -> Ended:
        assert self.process.stdout is not None
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
        """Kill the driver, its Python and its JVM, as the power goes off."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
        self.process.wait(END_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
