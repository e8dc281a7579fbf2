"""Search by content beside ``grep -c`` over the same files, in turns; and a batch of keys looked up.

    python -m benchmarks.search                    8,000,000 messages, 4.2 GB of log; 100,000 keys of 1,000,000 messages
    python -m benchmarks.search --count 1000000    smaller

Everything is in memory before it is measured. A rate a core is bytes by CPU seconds, so that it means the same with one
thread and with several. The keys are looked up in a store whose index the official broker built, if its jars are there,
and without them in one that has none: then its log is scanned.
"""

import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import java_broker
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import warm_kernel_cache
from benchmarks.report import machine
from benchmarks.store_plan import StoreParameters, StorePlan, order_key

AIM_BYTES_A_CORE = 1e9
AIM_LOOKUP_SECONDS = 10.0
"""For so many keys as :data:`KEYS`, and for more in proportion."""

KEYS = 100_000
GREP = "grep -c"


@dataclass(frozen=True)
class Run:
    """One search; wall and CPU seconds, and what it found."""

    name: str
    threads: int
    seconds: float
    cpu_seconds: float
    found: int


def timed(name: str, threads: int, work: Callable[[], int], who: int = resource.RUSAGE_SELF) -> Run:
    """Do it, and measure what this process, or its children, took for it."""
    before, began = resource.getrusage(who), time.perf_counter()
    found = work()
    seconds, after = time.perf_counter() - began, resource.getrusage(who)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(name, threads, seconds, cpu, found)


def bring_into_memory(store: Path) -> None:
    """Read every file of the log and the index."""
    for tree in ("commitlog", "index"):
        for path in sorted((store / tree).glob("*")):
            with path.open("rb") as file:
                while file.read(1 << 24):
                    pass


def grep(files: Sequence[Path], text: str) -> int:
    """Lines that hold the text, by ``grep -c``."""
    command = ["grep", "-c", "-a", "-h", "-F", text, *map(str, files)]
    output = subprocess.run(command, env={**os.environ, "LC_ALL": "C"}, capture_output=True, check=False).stdout
    return sum(map(int, output.split()))


def searches(plan: StorePlan) -> dict[str, Any]:
    """Criteria by name: few messages meet them, and each is of another kind."""
    from storage.search.criteria import Criteria, SearchPlace

    rare = order_key(plan.parameters.count * 2 // 3)
    return {
        "rare text": Criteria(contains=rare.encode()),
        "rare text, anywhere": Criteria(contains=rare.encode(), place=SearchPlace.ANY),
        "regular expression": Criteria(regex=rf"{rare}\D"),
        "JSONPath": Criteria(json_path=f"$.order={rare}"),
        "start of a key": Criteria(key_prefix=rare[:-1]),
        "SQL92": Criteria(where="amount > 98 AND region = 'none'"),
        "sender": Criteria(born_host="10.0.0.0/8"),
    }


def measure_searches(store: Path, plan: StorePlan, rounds: int) -> list[Run]:
    """Every search on one core and the first on all, beside grep, in turns; the first round warms up."""
    from storage.search.engine import search
    from storage.store.message_store import MessageStore, StoreOptions

    opened = MessageStore.open(store, StoreOptions(scan_budget=0, check_budget=0))
    files = sorted((store / "commitlog").iterdir())
    kinds = searches(plan)
    rare = kinds["rare text"].contains.decode()

    def run(name: str, threads: int) -> Run:
        steps = search(opened, kinds[name], threads=threads, exhaustive=True)
        return timed(name, threads, lambda: sum(len(step.messages) for step in steps))

    runs: list[Run] = []
    for number in range(rounds + 1):
        turn = [timed(GREP, 1, lambda: grep(files, rare), resource.RUSAGE_CHILDREN)]
        turn += [run(name, 1) for name in kinds]
        turn.append(run("rare text", os.cpu_count() or 1))
        runs += turn if number else []
    return runs


def measure_lookup(store: Path, plan: StorePlan, count: int) -> Run:
    """Random keys, each of one message, looked up in one batch; opening the store counts."""
    from storage.search.lookup import LookupHere, look_up
    from storage.store.message_store import MessageStore

    numbers = random.Random(1).sample(range(plan.parameters.count), min(count, plan.parameters.count))
    keys = [order_key(number) for number in numbers]
    return timed(
        f"{len(keys):,} keys",
        1,
        lambda: sum(len(step.matches) for step in look_up(LookupHere(MessageStore.open(store)), keys)),
    )


def measure_command(store: Path, plan: StorePlan, count: int) -> Run:
    """Look the keys up by ``rocketlens find -f``, timed from its start to its last line."""
    numbers = random.Random(2).sample(range(plan.parameters.count), min(count, plan.parameters.count))
    with tempfile.TemporaryDirectory(dir=store.parent) as directory:
        asked, out = Path(directory) / "keys", Path(directory) / "out"
        asked.write_text("\n".join(map(order_key, numbers)))
        command = [sys.executable, "-c", "from rocketlens.cli.main import main; main()"]
        command += ["find", str(store), "-f", str(asked), "--out", str(out)]

        def work() -> int:
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            return out.read_bytes().count(b"\n")

        return timed("rocketlens find -f", 1, work, resource.RUSAGE_CHILDREN)


def markdown(results: Mapping[str, Any]) -> str:
    """The table."""
    where, size = results["machine"], results["log_bytes"]
    lines = [
        f"Log: {results['messages']:,} messages, {size / 1e9:.1f} GB; in memory. Medians, rounds: {results['rounds']}.",
        f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}, Python {where['python']}.",
        f"Command: `{results['command']}`",
        "",
        "| search | threads | seconds | GB/s | GB/s a core | found |",
        "|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for run in results["runs"]:
        groups.setdefault((run["name"], run["threads"]), []).append(run)
    for (name, threads), runs in groups.items():
        seconds, cpu = (statistics.median(run[part] for run in runs) for part in ("seconds", "cpu_seconds"))
        cells = (f"{seconds:.2f}", f"{size / seconds / 1e9:.2f}", f"{size / cpu / 1e9:.2f}", runs[0]["found"])
        lines.append(f"| {name} | {threads} | {' | '.join(map(str, cells))} |")
    rare = statistics.median(run["cpu_seconds"] for run in groups["rare text", 1])
    is_met = size / rare >= AIM_BYTES_A_CORE
    lines += ["", f"Aim: {AIM_BYTES_A_CORE / 1e9:.0f} GB/s a core for rare text: {'met' if is_met else 'NOT met'}.", ""]
    for run in results["lookups"]:
        aim = AIM_LOOKUP_SECONDS * max(run["found"] / KEYS, 1)
        verdict = "met" if run["seconds"] <= aim else "NOT met"
        lines.append(
            f"{run['name']} in a store of {results['lookup_messages']:,} messages: {run['seconds']:.2f} s, "
            f"{run['cpu_seconds']:.2f} s of CPU, {run['found']:,} found; aim {aim:.0f} s: {verdict}."
        )
    return "\n".join(lines)


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--count", default=8_000_000, show_default=True, help="Messages to search.")
@click.option("--lookup-count", default=StoreParameters.count, show_default=True, help="Messages to look keys up in.")
@click.option("--segment-size", default=StoreParameters.segment_size, show_default=True, help="Bytes of a log's file.")
@click.option("--keys", default=KEYS, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--jars", type=click.Path(path_type=Path, exists=True), help="The official jars [default: by Maven].")
@click.option("--no-jars", is_flag=True, help="Look keys up where there is no index.")
@click.option("--remove", is_flag=True, help="Remove the log that was searched in the end, if it was made here.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every figure here.")
def main(
    store_dir: Path,
    count: int,
    lookup_count: int,
    segment_size: int,
    keys: int,
    rounds: int,
    jars: Path | None,
    no_jars: bool,
    remove: bool,
    json_path: Path | None,
) -> None:
    """Measure searches beside grep, and a batch of keys; print the table."""
    found_jars = None if no_jars else java_broker.find_jars(jars)
    indexed = make_store(store_dir, StoreParameters(count=lookup_count, segment_size=segment_size), found_jars)
    warm_kernel_cache(indexed)
    indexed_plan = StorePlan.load(indexed)
    bring_into_memory(indexed)
    lookups = [measure(indexed, indexed_plan, keys) for measure in (measure_lookup, measure_command)]
    store = make_store(store_dir, StoreParameters(count=count, segment_size=segment_size), None)
    plan = StorePlan.load(store)
    results = {
        "messages": count,
        "lookup_messages": lookup_count,
        "log_bytes": sum(file.stat().st_size for file in (store / "commitlog").iterdir()),
        "rounds": rounds,
        "machine": machine(),
        "command": "python -m " + " ".join(["benchmarks.search", *sys.argv[1:]]),
        "runs": [asdict(run) for run in measure_searches(store, plan, rounds)],
        "lookups": [asdict(run) for run in lookups],
    }
    if remove:
        shutil.rmtree(store)
    if json_path:
        json_path.write_text(json.dumps(results, indent=1))
    print(markdown(results))


if __name__ == "__main__":
    main()
