"""What a command costs: CPU, wall time and memory of the whole process, beside ``python -c pass`` in the same run.

    python -m benchmarks.start                    a store of 1,000,000 messages
    python -m benchmarks.start --count 100000

Commands take turns, so that a slow minute of the machine hits all of them. ``serve`` is measured from its start to the
first answered view, with an empty state directory and with a filled one.
"""

import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.java_broker import find_jars
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import ROOT, our_server, warm_kernel_cache
from benchmarks.server_process import cpu_ns, memory_mb
from benchmarks.store_plan import TOPIC, StoreParameters, StorePlan, order_key

ROCKETLENS = str(Path(sys.executable).with_name("rocketlens"))


@dataclass(frozen=True)
class Cost:
    """CPU and wall time in seconds; memory in MB of 10**6 bytes: the most that was resident, of servers the private."""

    cpu_seconds: float
    seconds: float
    memory: float


MEASURED = """
import os, sys, time

began = time.perf_counter()
quiet = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, used = os.wait4(child, 0)
if status:
    sys.exit(f"{sys.argv[1:]} failed")
print(used.ru_utime + used.ru_stime, time.perf_counter() - began, used.ru_maxrss * 1024 / 1e6)
"""
"""Runs a command. Linux counts the memory of who starts a process as the process's own, so a small one starts it."""


def cost_of(command: Sequence[str]) -> Cost:
    """Run a command to its end. Raises CalledProcessError where it fails."""
    run = [sys.executable, "-I", "-S", "-c", MEASURED, *command]
    return Cost(*map(float, subprocess.run(run, stdout=subprocess.PIPE, cwd=ROOT, check=True).stdout.split()))


def cost_of_a_start(store: Path, state_directory: Path, physical_offset: int) -> Cost:
    """Start a server, ask it for one message, and stop it."""
    with our_server(store, state_directory) as process:
        answered = process.first_answer(physical_offset).answered_seconds
        return Cost(cpu_ns(process.pid) / 1e9, answered, memory_mb(process.pid)["RssAnon"])


def runs_on(store: Path, plan: StorePlan, state_directory: Path) -> dict[str, Callable[[], Cost]]:
    """What is measured, by name."""
    number = plan.parameters.count // 2
    physical_offset = int(plan.physical_offsets[number])

    def start_anew() -> Cost:
        for path in state_directory.rglob("*"):
            if path.is_file():
                path.unlink()
        return cost_of_a_start(store, state_directory, physical_offset)

    view = [ROCKETLENS, "view", str(store), str(physical_offset)]
    query = [ROCKETLENS, "query", str(store), "--topic", TOPIC, "--key", order_key(number)]
    return {
        "python -c pass": lambda: cost_of([sys.executable, "-c", "pass"]),
        "rocketlens --help": lambda: cost_of([ROCKETLENS, "--help"]),
        "rocketlens view": lambda: cost_of(view),
        "rocketlens query": lambda: cost_of(query),
        "serve, no state directory": start_anew,
        "serve, a state directory": lambda: cost_of_a_start(store, state_directory, physical_offset),
    }


@click.command()
@click.option("--count", default=1_000_000, show_default=True, help="Messages of the store.")
@click.option("--rounds", default=7, show_default=True, help="How often each is run; medians are shown.")
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--jars", type=click.Path(path_type=Path, exists=True), help="The official broker's jars.")
def main(count: int, rounds: int, store_dir: Path, jars: Path | None) -> None:
    """Measure the starts, and print a table of medians."""
    store = make_store(store_dir, StoreParameters(count=count), find_jars(jars))
    warm_kernel_cache(store)
    runs = runs_on(store, StorePlan.load(store), store_dir / "state-of-starts")
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            costs[name].append(run())
    click.echo("| | CPU, s | wall, s | memory, MB |\n|---|---|---|---|")
    for name, measured in costs.items():
        row = [
            statistics.median(getattr(cost, field) for cost in measured[1:])
            for field in ("cpu_seconds", "seconds", "memory")
        ]
        click.echo(f"| {name} | {row[0]:.2f} | {row[1]:.2f} | {row[2]:.0f} |")


if __name__ == "__main__":
    main()
