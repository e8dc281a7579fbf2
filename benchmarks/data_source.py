"""The Spark data source and `rocketlens export` on a log in memory: bytes of log a second.

    python -m benchmarks.data_source                   8,000,000 messages, 4.2 GB of log
    python -m benchmarks.data_source --count 1000000

A topic is counted on two cores, with one column and with all, because a Python data source does not learn from Spark
which columns are needed. The export is of all messages to Parquet, on one core: by the clock from where
Spark is ready, which includes the start of Python's workers, and by what the parts took, a worker's steady rate.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.rebuild import command_line, descendants
from benchmarks.report import machine
from benchmarks.store_plan import StoreParameters, StorePlan
from storage.columns.names import KINDS

COUNTED = {
    "one column": "queue_id",
    "all columns but properties": ",".join(name for name in KINDS if name != "properties"),
    "all columns": "",
}


class Timed(NamedTuple):
    """What a function returns; medians of its seconds, and of the CPU seconds of the JVM and of Python's workers."""

    result: int
    seconds: float
    jvm: float
    workers: float


def timed(function: Callable[[], int], rounds: int) -> Timed:
    """Call a function several times."""
    measured, result = [], 0
    for _ in range(rounds):
        began, (jvm, workers) = time.perf_counter(), cpu_seconds()
        result = function()
        seconds, (jvm_then, workers_then) = time.perf_counter() - began, cpu_seconds()
        measured.append((seconds, jvm_then - jvm, workers_then - workers))
    return Timed(result, *map(statistics.median, zip(*measured, strict=True)))


def cpu_seconds() -> tuple[float, float]:
    """CPU time so far of the JVM below this process, and of all other processes there, those that have ended too."""
    jvm = others = 0.0
    for pid in descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        own, ended = (sum(map(int, fields[at : at + 2])) / os.sysconf("SC_CLK_TCK") for at in (11, 13))
        if command_line(pid).split(b"\0")[0].endswith(b"java"):
            jvm += own
        else:
            others += own + ended
    return jvm, others


def count_messages(store: Path, scratch: Path, rounds: int) -> dict[str, Any]:
    """Count the largest topic through the data source, in a session as users have it."""
    from pyspark.sql import SparkSession

    from spark_jobs.read.data_source import register

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
    settings = {"ui.enabled": "false", "ui.showConsoleProgress": "false", "local.dir": str(scratch)}
    for name, value in settings.items():
        builder = builder.config(f"spark.{name}", value)
    session = builder.getOrCreate()
    try:
        register(session)
        messages = session.read.format("rocketlens").option("columns", "topic").load(str(store))
        rows = messages.groupBy("topic").count().collect()
        topic, expected = max(((row["topic"], row["count"]) for row in rows), key=lambda row: row[1])
        results: dict[str, Any] = {"topic": topic, "messages": expected}

        def count(columns: str) -> int:
            options = {"columns": columns, "topic": topic}
            return int(session.read.format("rocketlens").options(**options).load(str(store)).count())

        for name, columns in COUNTED.items():
            found = timed(lambda columns=columns: count(columns), rounds)  # type: ignore[misc]
            if found.result != expected:
                raise click.ClickException(f"{found.result} messages of {topic} with {name}, expected {expected}")
            results[name] = found
    finally:
        session.stop()
    return results


def export_messages(store: Path, out: Path, rounds: int) -> dict[str, Any]:
    """Export everything to Parquet on one core; the median's report."""
    reports = []
    for _ in range(rounds):
        shutil.rmtree(out, ignore_errors=True)
        command = [
            *(sys.executable, "-c", "from rocketlens.cli.main import main; main()"),
            *("export", str(store), "--format", "parquet", "--out", str(out), "--master", "local[1]", "--json"),
        ]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise click.ClickException(done.stderr.decode()[-2000:])
        reports.append(json.loads(done.stdout))
    shutil.rmtree(out, ignore_errors=True)
    return sorted(reports, key=lambda report: float(report["details"]["partSeconds"]))[len(reports) // 2]


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--count", default=8_000_000, show_default=True, help="Messages.")
@click.option("--rounds", default=3, show_default=True)
def main(store_dir: Path, count: int, rounds: int) -> None:
    """Measure both, and print the table."""
    store = make_store(store_dir, StoreParameters(count=count), None)
    size = StorePlan.load(store).end_of_log
    scratch = Path(tempfile.mkdtemp(prefix="data-source-", dir=store_dir))
    try:
        counted = count_messages(store, scratch, rounds)
        exported = export_messages(store, scratch / "export", rounds)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    where = machine()
    print(f"Log: {count:,} messages, {size / 1e9:.1f} GB, in memory; {where['cpu']}, Python {where['python']}.\n")
    print("| | seconds | MB/s of log | aim | CPU-s: workers | JVM |\n|---|---|---|---|---|---|")
    for name in COUNTED:
        _, seconds, jvm, workers = counted[name]
        print(f"| count a topic of {counted['messages']:,}, {name}, 2 cores | {seconds:.1f} "
              f"| {size / 1e6 / seconds:.0f} | 500 | {workers:.1f} | {jvm:.1f} |")  # fmt: skip
    for name, seconds in (
        ("by the clock", exported["steadySeconds"]),
        ("its parts", exported["details"]["partSeconds"]),
    ):
        print(f"| export to Parquet, 1 core, {name} | {seconds:.1f} | {size / 1e6 / seconds:.0f} | 200 | | |")


if __name__ == "__main__":
    main()
