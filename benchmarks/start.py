"""What a command costs: CPU, wall time and memory of the whole process, beside ``python -c pass`` in the same run.

    python -m benchmarks.start                    a store of 1,000,000 messages
    python -m benchmarks.start --count 100000

Commands take turns, so that a slow minute of the machine hits all of them. ``serve`` is measured from its start to the
first answered view, with an empty state directory and with a filled one; the larger worker of ``serve --workers 2``
when it has answered, and again after `REQUESTS` views and as many key queries. Bytecode is compiled before, as an
installation does it, and lies beside the store.

Resident is the most that was in memory; pages of the store's files that were looked at count, though they are the
page cache's. Private is Private_Dirty of smaps_rollup: what was written to and no other process shares; of a command
when it ends.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.java_broker import find_jars
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import ROOT, our_server, warm_kernel_cache
from benchmarks.remoting import Peer, UnexpectedAnswer, encode_request, query_fields, view_fields
from benchmarks.server_process import ServerProcess, children_of, cpu_ns, memory_mb, private_mb
from benchmarks.store_plan import TOPIC, StoreParameters, StorePlan, order_key

ROCKETLENS = str(Path(sys.executable).with_name("rocketlens"))
REQUESTS = 8000
PEERS = 8
VIEW, QUERY = 33, 12


@dataclass(frozen=True)
class Cost:
    """CPU and wall time in seconds, memory in MB of 10**6 bytes."""

    cpu_seconds: float
    seconds: float
    resident: float
    private: float


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
"""Runs a command. Linux counts the memory of the parent as the process's own, so a small process starts it."""

WITH_MEMORY = """
import atexit, runpy, sys

def report():
    sys.stderr.write(next(line for line in open("/proc/self/smaps_rollup") if line.startswith("Private_Dirty")))

atexit.register(report)
del sys.argv[0]
if sys.argv[:1] == ["-c"]:
    exec(sys.argv.pop(1))
elif sys.argv:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a Python script, or code behind -c, and says what private memory it has in the end."""


VIEWED = "import sys, rocketlens; rocketlens.open(sys.argv[1]).view(sys.argv[2])[0]"
"""A message from Python."""


def mcp_lines(*calls: tuple[str, dict[str, object]]) -> bytes:
    """What an assistant says: its greeting, a wish for the list of tools, and calls."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    asked: list[tuple[str, dict[str, object]]] = [("initialize", hello), ("tools/list", {})]
    asked += [("tools/call", {"name": name, "arguments": arguments}) for name, arguments in calls]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(asked)
    ]
    return "\n".join([*lines, ""]).encode()


def cost_of(*script: str, before: Callable[[], None] = lambda: None, given: bytes = b"") -> Cost:
    """Run a script of Python, or code behind -c, to its end, twice, after ``before`` and with ``given`` as stdin.

    Raises CalledProcessError where it fails.
    """
    before()
    command = [sys.executable, *(script or ("-c", "pass"))]
    run = [sys.executable, "-I", "-S", "-c", MEASURED, *command]
    used = map(float, subprocess.run(run, input=given, stdout=subprocess.PIPE, cwd=ROOT, check=True).stdout.split())
    before()
    run = [sys.executable, "-c", WITH_MEMORY, *script]
    quiet = subprocess.run(run, input=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT, check=True)
    printed = quiet.stderr
    return Cost(*used, int(printed.split()[-2]) * 1024 / 1e6)


def cost_of_a_start(store: Path, state_directory: Path, physical_offset: int) -> Cost:
    """Start a server, ask it for one message, and stop it."""
    with our_server(store, state_directory) as process:
        answered = process.first_answer(physical_offset).answered_seconds
        memory = memory_mb(process.pid)["VmRSS"], private_mb(process.pid)
        return Cost(cpu_ns(process.pid) / 1e9, answered, *memory)


def costs_of_workers(store: Path, state_directory: Path, plan: StorePlan) -> Iterator[Cost]:
    """Start a server of two workers: the larger one when it has answered, and after many requests."""
    offsets = plan.physical_offsets[:: len(plan.physical_offsets) // REQUESTS].tolist()
    with our_server(store, state_directory, workers=2) as process:
        answered = process.first_answer(offsets[0]).answered_seconds
        yield _larger_worker(process, answered)
        with ExitStack() as stack:
            peers = [stack.enter_context(Peer(process.port)) for _ in range(PEERS)]
            for place, peer in enumerate(peers):
                views = enumerate(offsets[place::PEERS])
                frames = [encode_request(VIEW, view_fields(offset), at) for at, offset in views]
                keys = range(place, plan.parameters.count, PEERS * plan.parameters.count // REQUESTS)
                frames += [
                    encode_request(QUERY, query_fields(order_key(key), "K", 32, 0, 2**62), len(frames) + at)
                    for at, key in enumerate(keys)
                ]
                if any(code for _, code, _ in peer.call_many(frames)):
                    raise UnexpectedAnswer("not every message was found")
            yield _larger_worker(process, answered)


def _larger_worker(process: ServerProcess, seconds: float) -> Cost:
    workers = [
        Cost(cpu_ns(pid) / 1e9, seconds, memory_mb(pid)["VmRSS"], private_mb(pid)) for pid in children_of(process.pid)
    ]
    return max(workers, key=lambda cost: cost.private)


def _empty(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            path.unlink()


def runs_on(store: Path, plan: StorePlan, state_directory: Path) -> dict[str, Callable[[], Cost]]:
    """The commands that are measured, by name."""
    number = plan.parameters.count // 2
    physical_offset = int(plan.physical_offsets[number])
    home = state_directory.with_name("state-of-commands")
    os.environ["XDG_STATE_HOME"] = str(home)

    def start_anew() -> Cost:
        _empty(state_directory)
        return cost_of_a_start(store, state_directory, physical_offset)

    def find_anew() -> Cost:
        return cost_of(*by_key, before=lambda: _empty(home))

    asked_for = mcp_lines(("find", {"text": order_key(number), "topic": TOPIC}))
    by_offset = [ROCKETLENS, "find", str(store), str(physical_offset), "--as", "physical-offset"]
    by_key = [ROCKETLENS, "find", str(store), order_key(number), "--as", "key", "--topic", TOPIC]
    return {
        "python -c pass": cost_of,
        "python -c 'import rocketlens'": lambda: cost_of("-c", "import rocketlens"),
        "rocketlens.open(…).view(…)": lambda: cost_of("-c", VIEWED, str(store), str(physical_offset)),
        "rocketlens --help": lambda: cost_of(ROCKETLENS, "--help"),
        "rocketlens find --as physical-offset": lambda: cost_of(*by_offset),
        "rocketlens find --as key --topic, the first of a store": find_anew,
        "rocketlens find --as key --topic": lambda: cost_of(*by_key),
        "rocketlens mcp, to its tools": lambda: cost_of(ROCKETLENS, "mcp", str(store), given=mcp_lines()),
        "rocketlens mcp, to a message": lambda: cost_of(ROCKETLENS, "mcp", str(store), given=asked_for),
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
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(store_dir / "bytecode")
    plan, state_directory = StorePlan.load(store), store_dir / "state-of-starts"
    runs = runs_on(store, plan, state_directory)
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    asked = f"a worker of two, asked {2 * REQUESTS:,} times"
    workers: dict[str, list[Cost]] = {"a worker of two": [], asked: []}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            costs[name].append(run())
        for found, cost in zip(workers.values(), costs_of_workers(store, state_directory, plan), strict=True):
            found.append(cost)
    click.echo("| | CPU, s | wall, s | resident, MB | private, MB |\n|---|---|---|---|---|")
    for name, measured in (costs | workers).items():
        row = [
            statistics.median(getattr(cost, field) for cost in measured[1:])
            for field in ("cpu_seconds", "seconds", "resident", "private")
        ]
        click.echo(f"| {name} | {row[0]:.2f} | {row[1]:.2f} | {row[2]:.0f} | {row[3]:.0f} |")


if __name__ == "__main__":
    main()
