"""What jobs on a large log take, on paper: tasks, bytes between them, disk, memory, hours and money.

    python -m benchmarks.scale                              the tables of docs/clusters.md, from scale_runs.json
    python -m benchmarks.scale --core-hour 0.03 --cores 256 with other assumptions
    python -m benchmarks.scale --measure --count 2000000    do the jobs on a log of that size, and keep the runs
    python -m benchmarks.scale --plan                       plan rebuilds of 1, 10 and 100 TB, and keep the memory

How it is computed is in :mod:`benchmarks.scale_plan`. Runs on 2,000,000, 8,000,000 and 32,000,000 messages (1, 4 and 17
GB) are kept. A run's CPU seconds are those of all its processes, the JVM included, so that other work on the machine
changes little; of several rounds the medians are kept.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
import msgspec

from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.rebuild import Usage
from benchmarks.scale_plan import (
    EXPORT,
    JOBS,
    REBUILD,
    SEARCH,
    SHUFFLE,
    TB,
    VERIFY,
    DriverRun,
    Kept,
    Log,
    Prices,
    Run,
    check_table,
    constant_table,
    driver_table,
    merged,
    phases,
    size_table,
)
from benchmarks.store_plan import QUEUES, TOPIC, StoreParameters, StorePlan

SIZES: Final = (1, 10, 100)
"""TB of log in the tables."""

KEPT: Final = Path(__file__).with_name("scale_runs.json")
MASTER_CORES: Final = 2
"""Cores that the measured jobs run on."""

STORE_QUEUES: Final = tuple((TOPIC.encode(), number) for number in range(QUEUES))
START: Final = (sys.executable, "-c", "from rocketlens.cli.main import main; main()")
LOOK_SECONDS: Final = 0.1

COMMANDS: Final = {
    REBUILD: ("rebuild", "all", "{store}", "--out", "{out}", "--work", "{work}", "--json"),
    SHUFFLE: ("rebuild", "all", "{store}", "--out", "file://{out}", "--exchange", "shuffle", "--json"),
    EXPORT: ("export", "{store}", "--format", "parquet", "--out", "{out}", "--json"),
    SEARCH: ("search", "{store}", "--contains", "a text that no message has", "--exhaustive"),
    VERIFY: ("doctor", "{store}", "--deep", "--work", "{work}", "--json"),
}
"""Each job's command; what is verified has an index and queues, which are then taken away again."""

NOTHING_FOUND: Final = 1
"""How a search ends that finds nothing."""


def measure(job: str, store: Path, scratch: Path) -> Run:
    """Do a job on a log of the benchmarks', on the cores of this machine; raises ClickException where it fails."""
    plan = StorePlan.load(store)
    out, work, events, spark = (scratch / name for name in ("out", "work", "events", "spark"))
    for directory in (events, spark):
        directory.mkdir(parents=True)
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
        "spark.local.dir": str(spark),
        "spark.rocketlens.startSeconds": "600",
    }
    words = [word.format(store=store, out=out, work=work) for word in COMMANDS[job]]
    words += ["--master", f"local[{MASTER_CORES}]"]
    words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([*START, *words], stdout=output, stderr=subprocess.PIPE)
        usage, disk = Usage(process.pid), DiskUse([out, work, spark])
        usage.start()
        disk.start()
        _, errors = process.communicate()
        usage.stop()
        disk.stop()
    if process.returncode != (NOTHING_FOUND if job == SEARCH else 0):
        raise click.ClickException(f"{' '.join(words)} exits with {process.returncode}: {errors.decode()[-2000:]}")
    tasks, shuffled = seen_by_spark(events)
    return Run(
        job=job,
        messages=plan.parameters.count,
        log_bytes=plan.end_of_log,
        cpu_seconds=round(sum(usage.cpu_seconds.values()), 2),
        sent=shuffled or disk.blocks,
        disk=disk.most,
        out=sum(size for _, size in allocated(out)),
        task_memory=max(usage.workers.values(), default=0),
        tasks=phases(tasks),
    )


class DiskUse(threading.Thread):
    """What lies in some directories, looked at again and again: the most bytes at once, and those of blocks in all."""

    def __init__(self, directories: Sequence[Path]) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self._directories, self._blocks, self._over = directories, dict[str, int](), threading.Event()

    @property
    def blocks(self) -> int:
        """Bytes of the files that tasks have left for others in a work directory, also of those that are gone."""
        return sum(self._blocks.values())

    def run(self) -> None:
        """Look until stopped."""
        while not self._over.wait(LOOK_SECONDS):
            found = [each for directory in self._directories for each in allocated(directory)]
            self.most = max(self.most, sum(size for _, size in found))
            for path, size in found:
                if path.parent.name == "blocks":
                    self._blocks[path.name] = max(size, self._blocks.get(path.name, 0))

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()


def allocated(directory: Path) -> Iterator[tuple[Path, int]]:
    """The files below a directory, of which there may be none, with the bytes that the disk has for each."""
    for parent, _, names in os.walk(directory):
        for name in names:
            path = Path(parent, name)
            with suppress(OSError):  # it is gone again
                yield path, path.lstat().st_blocks * 512


def seen_by_spark(events: Path) -> tuple[Counter[str], int]:
    """Tasks that have ended well, by phase, and the bytes written for the shuffle, by the event log of one command."""
    tasks: Counter[str] = Counter()
    stages: dict[int, str] = {}
    shuffled = 0
    for log in sorted(events.rglob("events_*")):
        for line in log.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                title = event["Properties"]["spark.job.description"].partition(": ")[2]
                stages.update(dict.fromkeys(event["Stage IDs"], title.split()[0]))
            elif event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
                tasks[stages[event["Stage ID"]]] += 1
                shuffled += event["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return tasks, shuffled


def median_run(runs: Sequence[Run]) -> Run:
    """One run for several of a job: medians of what varies, and the most memory and disk that was seen."""
    return msgspec.structs.replace(
        runs[0],
        cpu_seconds=round(statistics.median(run.cpu_seconds for run in runs), 2),
        disk=max(run.disk for run in runs),
        task_memory=max(run.task_memory for run in runs),
    )


def measure_all(store: Path, scratch: Path, rounds: int) -> list[Run]:
    """Every job on a log that has neither index nor queues, and `verify` of what a rebuild makes of it."""
    found: dict[str, list[Run]] = {}
    for number in range(rounds):
        for job in (job for job in JOBS if job != VERIFY):
            found.setdefault(job, []).append(_measured(job, store, scratch, number))
    with tempfile.TemporaryDirectory(prefix="scale-", dir=scratch) as directory:
        whole = Path(directory) / "store"
        subprocess.run([*START, "rebuild", "all", str(store), "--out", str(whole)], check=True, capture_output=True)
        for name in ("commitlog", "config"):
            (whole / name).symlink_to(store / name)
        (whole / "manifest.json").symlink_to(store / "manifest.json")
        found[VERIFY] = [_measured(VERIFY, whole, scratch, number) for number in range(rounds)]
    return [median_run(runs) for runs in found.values()]


def _measured(job: str, store: Path, scratch: Path, number: int) -> Run:
    with tempfile.TemporaryDirectory(prefix="scale-", dir=scratch) as directory:
        run = measure(job, store, Path(directory))
    print(f"round {number}: {run}", file=sys.stderr, flush=True)
    return run


def load_kept() -> Kept:
    """What was measured."""
    return msgspec.json.decode(KEPT.read_bytes(), type=Kept)


def tables(kept: Kept, prices: Prices, queues: int) -> dict[str, str]:
    """All tables of the page, by what they are."""
    return {
        "constants": constant_table(kept.runs),
        "checks": check_table(kept.runs, STORE_QUEUES, MASTER_CORES),
        "sizes": size_table(kept.runs, SIZES, queues, prices),
        "drivers": driver_table(kept.drivers, SIZES, queues),
    }


def plan_drivers(queues: int) -> list[DriverRun]:
    """The memory of drivers that plan a rebuild of each size; the largest takes minutes."""
    drivers = []
    for size in SIZES:
        segments = Log.of_bytes(size * TB, queues).segments
        command = [sys.executable, "-m", "benchmarks.driver_plan", "--segments", str(segments)]
        planned = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        drivers.append(DriverRun(planned["segments"], planned["peak_bytes"]))
    return drivers


ASSUMED: Final = Prices(cores=64, busy=0.5, core_hour=0.05, gb_month=0.025)
QUEUES_ASSUMED: Final = 10_000


@click.command()
@click.option("--cores", default=ASSUMED.cores, show_default=True, help="Cores of the executors together.")
@click.option("--busy", default=ASSUMED.busy, show_default=True, help="What part of their time they work.")
@click.option("--core-hour", default=ASSUMED.core_hour, show_default=True, help="Money for an hour of a core.")
@click.option("--gb-month", default=ASSUMED.gb_month, show_default=True, help="Money for a month of 10^9 bytes.")
@click.option("--queues", default=QUEUES_ASSUMED, show_default=True, help="Queues of the log, of equal size.")
@click.option("--measure", "measures", is_flag=True, help="Do the jobs, and keep the runs in place of earlier ones.")
@click.option("--plan", "plans", is_flag=True, help="Plan rebuilds, and keep the memory of their drivers.")
@click.option("--count", default=2_000_000, show_default=True, help="Messages of the measured log.")
@click.option("--rounds", default=3, show_default=True, help="How often each job is measured.")
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
def main(measures: bool, plans: bool, queues: int, count: int, rounds: int, store_dir: Path, **prices: float) -> None:
    """Print the tables; with --measure or --plan, measure first."""
    kept = load_kept() if KEPT.exists() else Kept([], [])
    if plans:
        kept = msgspec.structs.replace(kept, drivers=plan_drivers(queues))
    if measures:
        store = make_store(store_dir, StoreParameters(count=count), None)
        for run in measure_all(store, store_dir, rounds):
            kept = msgspec.structs.replace(kept, runs=merged(kept.runs, run))
    if measures or plans:
        KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
    if len({run.messages for run in kept.runs}) < 2 or len(kept.drivers) < 2:
        raise click.ClickException(f"{KEPT} needs runs on two logs (--measure), and two plans of drivers (--plan)")
    for name, table in tables(kept, Prices(**prices), queues).items():
        print(f"{name}\n\n{table}\n")


if __name__ == "__main__":
    main()
