"""A standalone Spark cluster of the pyspark package, a master and workers as processes on addresses of the loopback."""

import contextlib
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pyspark

from benchmarks.server_process import free_port
from blocking_client import eventually
from needed_tools import tool
from spark_classes import QUICK

LOOPBACK = "127.0.0.1"
START_SECONDS = 300


def python_without_rocketlens(directory: Path, *lacking: str) -> Path:
    """Make a virtual environment's Python with the packages of this one; `lacking` are names of more it is to lack."""
    venv.create(directory, symlinks=True)
    site = next(directory.glob("lib/python*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.suffix != ".pth" and "rocketlens" not in entry.name and entry.name not in lacking:
            (site / entry.name).symlink_to(entry)
    return directory / "bin" / "python"


class SparkCluster:
    """A master at `url`, and workers of one core each; `settings` are those of an application on it."""

    def __init__(self, work: Path, running: contextlib.ExitStack, jvm_options: list[str]) -> None:
        """Start the master; processes end with `running`, and write into `work`. All JVMs get the options."""
        self._work, self._running, self._workers = work, running, 0
        self._jvm_options = " ".join(jvm_options)
        self._log = work / "cluster.log"
        self.settings = {
            "spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.executor.memory": "512m",
            "spark.rocketlens.startSeconds": "180", "spark.executor.extraJavaOptions": self._jvm_options,
            "spark.driver.extraJavaOptions": self._jvm_options,
        }  # fmt: skip
        port = free_port()
        self.url = f"spark://{LOOPBACK}:{port}"
        self._start("master.Master", LOOPBACK, "--port", str(port))

    def add_workers(self, count: int) -> None:
        """Start workers, and wait until they have registered."""
        for number in range(self._workers, self._workers + count):
            directory = self._work / f"worker-{number}"
            own = ("--cores", "1", "--memory", "700m", "--work-dir", str(directory))
            self._start("worker.Worker", f"127.0.0.{number + 1}", *own, self.url)
        self._workers += count
        eventually(self._have_registered, f"{self._workers} workers at {self.url}", START_SECONDS)

    def _have_registered(self) -> bool:
        return self._log.read_text().count("Registering worker") >= self._workers

    def _start(self, name: str, host: str, *options: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host, "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": self._jvm_options, "SPARK_LAUNCHER_OPTS": " ".join(QUICK),
        }  # fmt: skip
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", host]
        with self._log.open("ab") as output:
            served = [*command, "--webui-port", "0", *options]
            process = subprocess.Popen(served, env=environment, stdout=output, stderr=output)
        self._running.callback(_end, process)


@contextlib.contextmanager
def spark_cluster(work, workers, jvm_options):
    tool("java")
    with contextlib.ExitStack() as running:
        cluster = SparkCluster(work, running, jvm_options)
        cluster.add_workers(workers)
        yield cluster


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
