"""A standalone Spark cluster of the pyspark package, a master and workers as processes on the loopback address."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark

from benchmarks.server_process import free_port
from interop.stages import wait_until

LOOPBACK = "127.0.0.1"
START_SECONDS = 300


@contextlib.contextmanager
def spark_cluster(work: Path, workers: int) -> Iterator[str]:
    """The master's URL; `workers` workers of one core each have registered."""
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }  # fmt: skip
    port = free_port()
    url = f"spark://{LOOPBACK}:{port}"
    listen = ["--host", LOOPBACK, "--webui-port", "0"]
    commands = [["org.apache.spark.deploy.master.Master", *listen, "--port", str(port)]]
    for number in range(workers):
        own = ["--cores", "1", "--memory", "700m", "--work-dir", str(work / f"worker-{number}")]
        commands.append(["org.apache.spark.deploy.worker.Worker", *listen, *own, url])
    log = work / "cluster.log"
    with contextlib.ExitStack() as running, log.open("wb") as output:
        for command in commands:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *command], env=environment, stdout=output, stderr=output
            )
            running.callback(_end, process)
        wait_until(
            lambda: log.read_text().count("Registering worker") >= workers, f"{workers} workers at {url}", START_SECONDS
        )
        yield url


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
