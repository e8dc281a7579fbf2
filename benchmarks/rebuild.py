"""Rebuilding beside the official Java broker 5.5.0: the same log, the same run, entries a second of both.

    python -m benchmarks.rebuild                   8,000,000 messages, 4.4 GB of log
    python -m benchmarks.rebuild --count 32000000  16 GB and more

The Java broker rebuilds by replaying its log after a crash without queues, index and checkpoint; its rate is taken from
the first entry it writes to the moment it answers, so that neither side's start is in it. Ours is `rocketlens rebuild
all`; its rate is from the first byte read to the last file published, and that of the whole command is listed beside
it; so is the CPU time of all its processes for each GB of log, beside that of the broker from its start on: by the
local engine, by an embedded Spark, and by Spark with blocks that go through its shuffle. What was built, each way, is
compared byte for byte before any figure is printed. `compact index` and `doctor --deep` of the store that comes of it
stand beside the same restart of the broker, which is what a user would do instead.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import java_broker
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import copy_for_java, warm_kernel_cache
from benchmarks.report import machine
from benchmarks.server_process import cpu_ns
from benchmarks.store_plan import StoreParameters, StorePlan
from storage.files.direct_writer import GrowingFile, aligned_memory

ENTRIES_A_MESSAGE = 4
SAMPLE_SECONDS = 0.05
SHUFFLED = "all --exchange shuffle"
COMPARED = ("index", "consumequeue")
WRITTEN_BYTES = 1 << 30
FINDINGS = 4
"""How `doctor` ends that has something to say, as that the store has no checkpoint."""

LOCAL_ENGINE = "local"
"""Where a run is that has no master."""

WORKERS = (b"pyspark", b"local_worker")
"""What is in the command lines of processes that do tasks."""

START = (sys.executable, "-c", "from rocketlens.cli.main import main; main()")


@dataclass(frozen=True)
class Run:
    """One command of ours; seconds, bytes, and entries a second. `cpu_seconds` are those of all processes.

    `master` is that of Spark, or LOCAL_ENGINE. What is 0 the command does not say.
    """

    master: str
    command: str
    whole_seconds: float
    cpu_seconds: float
    peak_task_bytes: int
    steady_seconds: float = 0
    steady_rate: float = 0
    scan_bytes_a_core: float = 0


def run_ours(store: Path, out: Path, command_line: str, master: str, entries: int) -> Run:
    """Rebuild into a fresh directory, as `command_line` says: "all", or "all --exchange shuffle"."""
    what, *options = command_line.split()
    shutil.rmtree(out, ignore_errors=True)
    words = ["rebuild", what, str(store), "--out", str(out), "--json", *options]
    run, text = run_command(words, master, f"rebuild {command_line}")
    report = json.loads(text)
    scan = report["details"]["scan"]
    return replace(
        run,
        steady_seconds=report["steadySeconds"],
        steady_rate=entries / report["steadySeconds"],
        scan_bytes_a_core=scan["bytes"] / scan["taskSeconds"],
    )


def run_command(words: Sequence[str], master: str, title: str, codes: Sequence[int] = (0,)) -> tuple[Run, bytes]:
    """A command on an engine: what it took, and what it printed; raises ClickException for another exit code."""
    engine = ["--engine", "local"] if master == LOCAL_ENGINE else ["--master", master]
    command = [*START, *words, *engine]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE)
        usage = Usage(process.pid)
        usage.start()
        _, errors = process.communicate()
        whole = time.perf_counter() - began
        usage.stop()
        output.seek(0)
        text = output.read()
    if process.returncode not in codes:
        raise click.ClickException(f"{' '.join(command)} exits with {process.returncode}: {errors.decode()[-2000:]}")
    peak = max(usage.workers.values(), default=0)
    return Run(master, title, whole, sum(usage.cpu_seconds.values()), peak), text


class Usage(threading.Thread):
    """A process and those below it, sampled: the CPU time of each, and of Python workers the largest private memory."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.cpu_seconds: dict[int, float] = {}
        self.workers: dict[int, int] = {}
        self._root, self._over = root, threading.Event()

    def run(self) -> None:
        """Sample until stopped."""
        while not self._over.wait(SAMPLE_SECONDS):
            for pid in (self._root, *descendants(self._root)):
                self.cpu_seconds[pid] = max(self.cpu_seconds.get(pid, 0.0), _cpu_seconds(pid))
                fields = _status(pid)
                if any(name in command_line(pid) for name in WORKERS):
                    held = int(fields.get("RssAnon", "0 kB").split()[0]) * 1024
                    self.workers[pid] = max(self.workers.get(pid, 0), held)

    def stop(self) -> None:
        """Sample no more."""
        self._over.set()
        self.join()


def descendants(root: int) -> Iterator[int]:
    """Processes below a process, without those that end meanwhile."""
    try:
        tasks = os.listdir(f"/proc/{root}/task")
    except OSError:
        return
    for task in tasks:
        try:
            children = [int(pid) for pid in Path(f"/proc/{root}/task/{task}/children").read_text().split()]
        except OSError:
            continue
        for child in children:
            yield child
            yield from descendants(child)


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process, in the kernel too; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def command_line(pid: int) -> bytes:
    """The arguments of a process, a NUL behind each; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def run_java(
    store: Path, work: Path, jars: Path, end_of_log: int, entries: int, segment_size: int = 1 << 30
) -> dict[str, float]:
    """Let the official broker replay the log; from its first entry to its first answer. Seconds, and those of CPU."""
    copy = copy_for_java(store, work)
    for name in ("index", "consumequeue", "checkpoint"):
        target = copy / name
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    (copy / "abort").write_text("0")
    began = time.perf_counter()
    settings = {"commitLogRecoverMaxNum": 1_000_000, "mappedFileSizeCommitLog": segment_size}
    with java_broker.JavaBroker(copy, jars, settings) as broker:
        first = _wait_for_first_entry(copy / "index", broker)
        broker.wait_until_dispatched(end_of_log, timeout_seconds=3000)
        ended, cpu_seconds = time.perf_counter(), cpu_ns(broker.process.pid) / 1e9
    return {
        "whole_seconds": ended - began,
        "steady_seconds": ended - first,
        "steady_rate": entries / (ended - first),
        "cpu_seconds": cpu_seconds,
    }


def _wait_for_first_entry(index: Path, broker: java_broker.JavaBroker) -> float:
    broker.process.wait_for(lambda: index.is_dir() and any(index.iterdir()), 120, "the first index file")
    return time.perf_counter()


def differing_files(ours: Path, java: Path) -> list[str]:
    """Files that are not the same in both, by content; index files, whose names differ, by their order."""
    found = []
    for tree in COMPARED:
        left, right = (sorted(path for path in (root / tree).rglob("*") if path.is_file()) for root in (ours, java))
        if tree == "index":
            pairs = list(zip(left, right, strict=False))
        else:
            names = {path.relative_to(java): path for path in right}
            pairs = [(path, names.pop(path.relative_to(ours), path.parent / "missing")) for path in left]
            right = right if not names else []
        if len(left) != len(right):
            found.append(f"{tree}: {len(left)} files, {len(right)} of Java's")
        found += [str(path.relative_to(ours)) for path, other in pairs if not same_bytes(path, other)]
    return found


def same_bytes(left: Path, right: Path) -> bool:
    """Whether two files are equal."""
    if not right.exists() or left.stat().st_size != right.stat().st_size:
        return False
    with left.open("rb") as first, right.open("rb") as second:
        while piece := first.read(1 << 24):
            if piece != second.read(1 << 24):
                return False
    return True


def disk_write_rates(directory: Path) -> dict[str, float]:
    """Bytes a second of a gigabyte written and fsynced: through the page cache, and by O_DIRECT."""
    memory = aligned_memory(WRITTEN_BYTES)
    np.frombuffer(memory, dtype=np.uint8)[:] = 7
    path = directory / "written"
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        file.write(memory)
        os.fsync(file.fileno())
    buffered = time.perf_counter() - began
    path.unlink()
    began = time.perf_counter()
    with GrowingFile(path, memory) as growing:
        growing.finish(WRITTEN_BYTES, WRITTEN_BYTES)
    direct = time.perf_counter() - began
    path.unlink()
    return {"buffered": WRITTEN_BYTES / buffered, "direct": WRITTEN_BYTES / direct}


def measure(store: Path, scratch: Path, jars: Path, rounds: int, masters: tuple[str, ...]) -> dict[str, Any]:
    """Everything, as one JSON-able object; raises ClickException where the two built different bytes."""
    plan = StorePlan.load(store)
    entries = plan.parameters.count * ENTRIES_A_MESSAGE
    warm_kernel_cache(store)
    java = run_java(store, scratch / "java", jars, plan.end_of_log, entries)
    for command, master in (("all", LOCAL_ENGINE), ("all", masters[-1]), (SHUFFLED, masters[-1])):
        run_ours(store, scratch / "ours", command, master, entries)
        differing = differing_files(scratch / "ours", scratch / "java")
        if differing:
            raise click.ClickException(f"rebuild {command}, {master}: not the broker's: {', '.join(differing[:10])}")
    shutil.rmtree(scratch / "java")
    whole = whole_store(store, scratch / "whole", entries)
    runs: list[Run] = []
    for _ in range(rounds):
        runs += [run_ours(store, scratch / "ours", what, LOCAL_ENGINE, entries) for what in ("all", "index")]
        runs += [run_ours(store, scratch / "ours", "all", master, entries) for master in masters]
        runs.append(run_ours(store, scratch / "ours", SHUFFLED, masters[-1], entries))
        for title, words in (
            ("compact index", ("compact", "index", str(whole), "--out", str(scratch / "compacted"))),
            ("doctor --deep", ("doctor", str(whole), "--deep")),
        ):
            shutil.rmtree(scratch / "compacted", ignore_errors=True)
            runs.append(run_command(words, LOCAL_ENGINE, title, (0, FINDINGS))[0])
    return {
        "messages": plan.parameters.count,
        "entries": entries,
        "log_bytes": plan.end_of_log,
        "machine": machine(),
        "command": "python -m " + " ".join(["benchmarks.rebuild", *sys.argv[1:]]),
        "java": java,
        "runs": [asdict(run) for run in runs],
        "disk": disk_write_rates(scratch),
    }


def whole_store(store: Path, out: Path, entries: int) -> Path:
    """A store of the log, with the index and the queues that a rebuild makes of it."""
    run_ours(store, out, "all", LOCAL_ENGINE, entries)
    for name in ("commitlog", "config"):
        if (store / name).exists():
            (out / name).symlink_to(store / name)
    return out


def markdown(results: Mapping[str, Any]) -> str:
    """The table."""
    java = results["java"]
    where = results["machine"]
    lines = [
        f"Log: {results['messages']:,} messages, {results['log_bytes'] / 1e9:.1f} GB, {results['entries']:,} entries; "
        "in memory. Index and queues equal the official broker's byte for byte.",
        f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}, Python {where['python']}; "
        f"checksums by {where['checksums']}.",
        f"Command: `{results['command']}`",
        "",
        "| | entries/s, steady | × Java | whole command, s | × Java | CPU-s a GB of log | × Java | "
        "scan, GB/s a core | memory a task, MB |",
        "|---|---|---|---|---|---|---|---|---|",
        f"| Java broker 5.5.0 | {java['steady_rate'] / 1e6:.2f} M | 1 | {java['whole_seconds']:.1f} | 1 | "
        f"{java['cpu_seconds'] / (results['log_bytes'] / 1e9):.2f} | 1 | | |",
    ]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for run in results["runs"]:
        groups.setdefault((run["command"], run["master"]), []).append(run)
    for (command, master), runs in groups.items():
        rate = statistics.median(run["steady_rate"] for run in runs)
        whole = statistics.median(run["whole_seconds"] for run in runs)
        cpu = statistics.median(run["cpu_seconds"] for run in runs)
        scan = statistics.median(run["scan_bytes_a_core"] for run in runs)
        memory = max(run["peak_task_bytes"] for run in runs)
        where_run = "processes" if master == LOCAL_ENGINE else f"Spark {master}"
        steady = f"{rate / 1e6:.2f} M | {rate / java['steady_rate']:.1f}" if rate else "|"
        lines.append(
            f"| {command}, {where_run} | {steady} | {whole:.1f} | "
            f"{java['whole_seconds'] / whole:.1f} | {cpu / (results['log_bytes'] / 1e9):.2f} | "
            f"{java['cpu_seconds'] / cpu:.1f} | {scan / 1e9 if scan else 0:.2f} | {memory / 1e6:.0f} |"
        )
    disk = results["disk"]
    lines += ["", f"The disk itself: {disk['buffered'] / 1e9:.2f} GB/s written through the page cache and fsynced, "
              f"{disk['direct'] / 1e9:.2f} GB/s by O_DIRECT."]  # fmt: skip
    return "\n".join(lines)


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--count", default=8_000_000, show_default=True, help="Messages.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--master", "masters", multiple=True, default=("local[2]",), show_default=True)
@click.option("--jars", type=click.Path(path_type=Path, exists=True), help="The official jars [default: by Maven].")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every figure here.")
def main(
    store_dir: Path, count: int, rounds: int, masters: tuple[str, ...], jars: Path | None, json_path: Path | None
) -> None:
    """Measure a rebuild beside the official Java broker's own, and print the table."""
    jars = java_broker.find_jars(jars)
    store = make_store(store_dir, StoreParameters(count=count), None)
    scratch = Path(tempfile.mkdtemp(prefix="rebuild-", dir=store_dir))
    try:
        results = measure(store, scratch, jars, rounds, masters)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if json_path:
        json_path.write_text(json.dumps(results, indent=1))
    print(markdown(results))


if __name__ == "__main__":
    main()
