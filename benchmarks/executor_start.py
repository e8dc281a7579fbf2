"""What a fresh executor of a cluster spends before its first task of ours: CPU of its Python processes, JVM excluded.

    python -m benchmarks.executor_start

Beside it, in the same run, an executor whose first task is `map(lambda x: x)`. Each is the first of a cluster of its
own on this machine, whose Python does not have RocketLens: it gets our packages as executors do.
"""

import statistics
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spark_jobs.run.session import run_tasks, spark_context

if TYPE_CHECKING:
    from pyspark import SparkContext

MASTER = "local-cluster[1,1,700]"
SETTINGS = {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "600m",
    "spark.rocketlens.startSeconds": "180",
}  # fmt: skip


def python_without_rocketlens(directory: Path, *lacking: str) -> Path:
    """A virtual environment's Python, with the packages of this one; `lacking` are names of more that it is to lack."""
    venv.create(directory, symlinks=True)
    site = next(directory.glob("lib/python*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.suffix != ".pth" and "rocketlens" not in entry.name and entry.name not in lacking:
            (site / entry.name).symlink_to(entry)
    return directory / "bin" / "python"


def first_task(context: "SparkContext") -> None:
    """The first task of an executor: one of Spark's own, nothing of ours is sent to it."""
    assert context.parallelize([7], 1).map(lambda x: x).collect() == [7]


def first_task_of_ours(context: "SparkContext") -> None:
    """Run a task that imports what the tasks of a rebuild import."""

    def import_all(number: int) -> dict[str, Any]:
        import spark_jobs.commands.run

        return {"number": number, "from": spark_jobs.commands.run.__file__}

    (answer,) = run_tasks(context, "first", [7], import_all)
    assert "rocketlens-packages" in answer["from"], answer


def cpu_seconds_of(python: Path) -> float:
    """CPU of all processes that run this Python, and of the children that they have waited for."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().split(b"\0")[0] == bytes(python):
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
        except OSError:
            continue
    return ticks / 100


def cost_of(python: Path, work: Path, task: Callable[["SparkContext"], None]) -> float:
    """CPU seconds of the workers of a fresh executor when its first task is done."""
    with spark_context("start", MASTER, work, {**SETTINGS, "spark.pyspark.python": str(python)}) as context:
        task(context)
        return cpu_seconds_of(python)


@click.command()
@click.option("--rounds", default=5, show_default=True, help="How often each is run, in turns; medians are shown.")
def main(rounds: int) -> None:
    """Measure both, and print them."""
    with tempfile.TemporaryDirectory(prefix="executor-start-") as directory:
        python = python_without_rocketlens(Path(directory) / "venv")
        tasks = {"map(lambda x: x)": first_task, "a task of ours": first_task_of_ours}
        costs: dict[str, list[float]] = {name: [] for name in tasks}
        for _ in range(rounds):
            for name, task in tasks.items():
                costs[name].append(cost_of(python, Path(directory), task))
                print(f"{name}: {costs[name][-1]:.2f} s", file=sys.stderr)
    for name, seconds in costs.items():
        print(f"{name}: {statistics.median(seconds):.2f} s of CPU")


if __name__ == "__main__":
    main()
