"""The measurements of one run: starts, warm-up, interleaved rounds, the unlucky key, memory.

Every load runs in a process of its own (``benchmarks.load``), against one server at a time; the other one is idle.
Rounds are interleaved, and which server comes first alternates, so that a slow minute of the machine hits both.
"""

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.java_broker import JavaBroker
from benchmarks.server_process import FirstAnswer, ServerProcess, free_port, rocketlens_command

ROOT = Path(__file__).resolve().parent.parent
OURS, JAVA = "RocketLens", "Java"
MANY, ONE = "4 x 16", "1 x 1"
MODES = {MANY: (4, 16), ONE: (1, 1)}
TIMED_WORKLOADS = ("view", "key", "unique", "hot")

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How much of everything; requests a round and server."""

    rounds: int = 5
    requests: Mapping[str, int] = field(
        default_factory=lambda: {"view": 100_000, "key": 100_000, "unique": 100_000, "hot": 20_000}
    )
    requests_one_by_one: int = 5_000
    compared: int = 10_000
    unlucky_requests: int = 400
    warm_up_seconds: float = 40
    starts: int = 3


@dataclass(frozen=True)
class Target:
    """A server under load."""

    name: str
    process: ServerProcess
    store: Path


def run_load_process(target: Target, workload: str, count: int, mode: str, seed: int, *options: str) -> Any:
    """One run of the load generator; its report."""
    connections, in_flight = MODES[mode]
    command = [
        sys.executable,
        "-m",
        "benchmarks.load",
        "--port",
        str(target.process.port),
        "--store",
        str(target.store),
    ]
    command += ["--workload", workload, "--requests", str(count), "--seed", str(seed), "--pid", str(target.process.pid)]
    command += ["--connections", str(connections), "--in-flight", str(in_flight), *options]
    outcome = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if outcome.returncode:
        raise RuntimeError(f"{target.name}, {workload}: {outcome.stderr[-2000:]}")
    return json.loads(outcome.stdout)


def warm_up(target: Target, sizes: Sizes) -> float:
    """Cycles through everything until ``warm_up_seconds`` have gone by; the seconds it took."""
    started, seed = time.perf_counter(), 1_000_000
    while time.perf_counter() - started < sizes.warm_up_seconds:
        for workload in TIMED_WORKLOADS:
            for mode in MODES:
                run_load_process(target, workload, _count(sizes, workload, mode), mode, seed)
                seed += 1
    return time.perf_counter() - started


def run_rounds(
    targets: list[Target], sizes: Sizes, say: Callable[[str], None]
) -> dict[str, dict[str, dict[str, list[Report]]]]:
    """``[workload][mode][server]`` → a report a round."""
    reports: dict[str, dict[str, dict[str, list[Report]]]] = {
        workload: {mode: {target.name: [] for target in targets} for mode in MODES} for workload in TIMED_WORKLOADS
    }
    for number in range(sizes.rounds):
        for workload in TIMED_WORKLOADS:
            for mode in MODES:
                for target in targets if number % 2 == 0 else targets[::-1]:
                    report = run_load_process(target, workload, _count(sizes, workload, mode), mode, number)
                    reports[workload][mode][target.name].append(report)
        say(f"round {number + 1} of {sizes.rounds} done")
    return reports


def measure_unlucky(target: Target, sizes: Sizes) -> dict[str, Report]:
    """The unlucky key alone, ordinary views alone, and both at once on two connections."""
    alone = run_load_process(target, "unlucky", sizes.unlucky_requests, ONE, 1)
    quiet = run_load_process(target, "view", sizes.requests_one_by_one, ONE, 2)
    disturbed, beside = run_load_process(target, "view", sizes.requests_one_by_one, ONE, 2, "--beside", "unlucky")
    return {"alone": alone, "views_quiet": quiet, "views_beside": disturbed, "beside_views": beside}


def measure_our_starts(
    store: Path, state_directory: Path, count: int, physical_offset: int
) -> dict[str, list[FirstAnswer]]:
    """Starts with an empty and with a filled state directory. Files are in memory before."""
    cold = []
    for _ in range(count):
        shutil.rmtree(state_directory, ignore_errors=True)
        cold.append(_start_once(store, state_directory, physical_offset))
    return {"cold": cold, "warm": [_start_once(store, state_directory, physical_offset) for _ in range(count)]}


def measure_java_starts(store: Path, jars: Path, count: int, physical_offset: int) -> list[FirstAnswer]:
    """Starts of the official broker after clean stops."""
    starts = []
    for _ in range(count):
        with JavaBroker(store, jars) as broker:
            starts.append(broker.process.first_answer(physical_offset))
    return starts


@contextmanager
def our_server(store: Path, state_directory: Path, workers: int = 0) -> Iterator[ServerProcess]:
    """RocketLens on a store, stopped at the end of the block."""
    port = free_port()
    state_directory.mkdir(parents=True, exist_ok=True)
    command = rocketlens_command(store, port, state_directory, workers)
    with ServerProcess(command, port, log=state_directory / "server.log", directory=ROOT) as process:
        yield process


def copy_for_java(store: Path, directory: Path) -> Path:
    """A copy that the official broker may write in. The commit log, which it only appends to, is linked, not copied."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for entry in sorted(store.iterdir()):
        how = ("--link",) if entry.name == "commitlog" else ("--sparse=always",)
        subprocess.run(["cp", "-a", *how, str(entry), str(directory / entry.name)], check=True)
    return directory


def warm_kernel_cache(store: Path) -> None:
    """Reads every file once."""
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass


def median_of(reports: list[Report], figure: str) -> float:
    """The median of one figure over the rounds."""
    return float(statistics.median(report[figure] for report in reports))


def _start_once(store: Path, state_directory: Path, physical_offset: int) -> FirstAnswer:
    with our_server(store, state_directory) as process:
        return process.first_answer(physical_offset)


def _count(sizes: Sizes, workload: str, mode: str) -> int:
    return sizes.requests[workload] if mode == MANY else sizes.requests_one_by_one
