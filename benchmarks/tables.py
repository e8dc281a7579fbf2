"""What a run costs that appends to a table, beside an export of the same log: seconds of a processor, and of the clock.

    python -m benchmarks.tables                   2,000,000 messages, 1.1 GB of log
    python -m benchmarks.tables --count 500000

Each round takes the same log in the order A B C D D C B A, where A are the tasks of `rocketlens export --out` and the
others those of runs that append to a new table without partitions, of Parquet, Iceberg and Delta, in a process of their
own without Spark. A table in partitions, and runs that find nothing new, are measured besides.

The modules that a way needs are loaded before: that costs the same for a small log and for a large one, and has a
column of its own.
"""

import importlib
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import click

from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.report import machine
from benchmarks.store_plan import StoreParameters, StorePlan

EXPORT: Final = "export"
TABLE: Final = "table"
PARTITIONS: Final = "table by topic and date"
ICEBERG: Final = "table of Iceberg"
DELTA: Final = "table of Delta"
FORMATS: Final = {TABLE: "parquet", ICEBERG: "iceberg", DELTA: "delta"}
MODULES: Final = {
    EXPORT: ("spark_jobs.export.export", "spark_jobs.export.export_part"),
    TABLE: ("spark_jobs.tables._append_task",),
    PARTITIONS: ("spark_jobs.tables._append_task",),
    ICEBERG: ("spark_jobs.tables._append_task", "spark_jobs.tables._iceberg_table", "pyiceberg.catalog.sql"),
    DELTA: ("spark_jobs.tables._append_task", "spark_jobs.tables._delta_table"),
}
"""What each way loads, by the end of it."""


class ThisProcess:
    """An engine whose tasks run one after the other, here, where their CPU time is seen."""

    tasks_at_once = 1

    def run_tasks(self, _name: str, tasks: list[Any], function: Callable[[Any], Any]) -> list[Any]:
        """Run them."""
        return [function(each) for each in tasks]


def export_once(store: Path, out: Path) -> int:
    """Export by this process; the number of messages."""
    from spark_jobs.export.export import run_export
    from spark_jobs.export.export_request import ExportRequest
    from spark_jobs.run.progress import Silence

    request = ExportRequest(store=str(store), out=str(out), format="parquet")
    return run_export(request, Silence(), cast("Any", ThisProcess())).messages


def append_once(store: Path, out: Path, format_: str = "parquet", partition_by: tuple[str, ...] = ()) -> int:
    """Append to a new table by this process; the number of messages."""
    from spark_jobs.run.progress import Silence
    from spark_jobs.tables.append import run_append
    from spark_jobs.tables.table_request import TableRequest

    request = TableRequest(
        store=str(store), table=str(out), format=format_, engine="local", since_last=True, partition_by=partition_by
    )
    return run_append(request, Silence(), cast("Any", ThisProcess())).messages


WAYS: Final[dict[str, Callable[[Path, Path], int]]] = {
    EXPORT: export_once,
    TABLE: append_once,
    ICEBERG: lambda store, out: append_once(store, out, "iceberg"),
    DELTA: lambda store, out: append_once(store, out, "delta"),
    PARTITIONS: lambda store, out: append_once(store, out, partition_by=("topic", "date")),
}


def measure(way: str, store: Path, out: Path) -> dict[str, float]:
    """One run in a process of its own: what it says of itself."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.tables", "--way", way, "--store-dir", str(store), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise click.ClickException(done.stderr.decode()[-2000:])
    figures: dict[str, float] = json.loads(done.stdout)
    print(f"{way}: {figures['cpu']:.2f} CPU s, {figures['clock']:.1f} s by the clock", file=sys.stderr, flush=True)
    return figures


def run_way(way: str, store: Path, out: Path) -> None:
    """Do it, and print seconds and messages."""
    start = time.process_time()
    for module in MODULES[way]:
        importlib.import_module(module)
    before, began = time.process_time(), time.perf_counter()
    messages = WAYS[way](store, out)
    found = {"cpu": time.process_time() - before, "clock": time.perf_counter() - began, "messages": messages}
    print(json.dumps({**found, "loading": before - start}))


def measure_empty(store: Path, out: Path, format_: str) -> dict[str, float]:
    """The whole command on a table that has everything, by its user and system time."""
    command = [
        *(sys.executable, "-m", "rocketlens", "export", str(store), "--to", str(out), "--format", format_),
        "--since-last",
    ]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode or "nothing was committed" not in done.stdout:
        raise click.ClickException(done.stdout + done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, "clock": time.perf_counter() - began}


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--count", default=2_000_000, show_default=True, help="Messages.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--way", type=click.Choice(list(WAYS)), hidden=True)
@click.option("--out", type=click.Path(path_type=Path), hidden=True)
def main(store_dir: Path, count: int, rounds: int, way: str | None, out: Path | None) -> None:
    """Measure, and print the table."""
    if way is not None and out is not None:
        run_way(way, store_dir, out)
        return
    store = make_store(store_dir, StoreParameters(count=count), None)
    size = StorePlan.load(store).end_of_log
    scratch = Path(tempfile.mkdtemp(prefix="tables-", dir=store_dir))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    empty: dict[str, list[dict[str, float]]] = {}
    try:
        for _ in range(rounds):
            for name in (EXPORT, *FORMATS, *reversed(FORMATS), EXPORT, PARTITIONS):
                found[name].append(measure(name, store, scratch / "out"))
        for name, format_ in FORMATS.items():
            measure(name, store, scratch / "out")
            empty[name] = [measure_empty(store, scratch / "out", format_) for _ in range(rounds)]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if {each["messages"] for runs in found.values() for each in runs} != {count}:
        raise click.ClickException("not every run had all messages")
    where = machine()
    print(f"Log: {count:,} messages, {size / 1e9:.2f} GB, in memory; {where['cpu']}, Python {where['python']}.\n")
    print("| | CPU s | of the export's | s by the clock | loading, CPU s |\n|---|---|---|---|---|")
    export = _median(found[EXPORT], "cpu")
    for name, runs in found.items():
        cpu, clock, loading = (_median(runs, each) for each in ("cpu", "clock", "loading"))
        print(f"| {name} | {cpu:.2f} | {100 * cpu / export:.1f} % | {clock:.1f} | {loading:.2f} |")
    for name, runs in empty.items():
        cpu, clock = (_median(runs, each) for each in ("cpu", "clock"))
        print(f"| the whole command where nothing is new, {name} | {cpu:.2f} |  | {clock:.1f} | |")


def _median(runs: list[dict[str, float]], name: str) -> float:
    return statistics.median(each[name] for each in runs)


if __name__ == "__main__":
    main()
