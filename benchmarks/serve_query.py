"""RocketLens beside the official Java broker 5.5.0: the same store, the same requests, the same run.

What is measured, and how, is in docs/benchmarks.md. Prints Markdown; ``--json`` also writes every report of every
round.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks import java_broker, report
from benchmarks.compare import compare_servers
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import (
    JAVA,
    OURS,
    Sizes,
    Target,
    copy_for_java,
    measure_java_starts,
    measure_our_starts,
    measure_unlucky,
    our_server,
    run_rounds,
    warm_kernel_cache,
    warm_up,
)
from benchmarks.server_process import memory_mb
from benchmarks.store_plan import StoreParameters, StorePlan
from benchmarks.workload import WORKLOADS, build_requests

_COMPARE_SEED = 99


def run(store: Path, jars: Path, sizes: Sizes, scratch: Path) -> dict[str, Any]:
    """Every measurement, as one JSON-able object."""
    plan = StorePlan.load(store)
    last_offset = int(plan.physical_offsets[-1])
    java_store = copy_for_java(store, scratch / "java-store")
    for directory in (store, java_store):
        warm_kernel_cache(directory)
    _say("kernels: compiling or loading")
    with our_server(store, scratch / "state") as process:
        process.first_answer(last_offset, timeout_seconds=600)
    _say("starts")
    our_starts = measure_our_starts(store, scratch / "state", sizes.starts, last_offset)
    java_starts = measure_java_starts(java_store, jars, sizes.starts, last_offset)
    with our_server(store, scratch / "state") as ours, java_broker.JavaBroker(java_store, jars) as java:
        targets = [Target(OURS, ours, store), Target(JAVA, java.process, store)]
        for target in targets:
            target.process.first_answer(last_offset)
        measured = _measure_under_load(plan, targets, sizes)
    starts = {OURS: {kind: [asdict(s) for s in some] for kind, some in our_starts.items()}}
    return {
        "parameters": asdict(plan.parameters),
        "sizes": asdict(sizes),
        "machine": report.machine(),
        "java": java_broker.java_version(),
        "java_heap": java_broker.HEAP,
        "command": "python -m " + " ".join(["benchmarks.serve_query", *sys.argv[1:]]),
        "starts": {**starts, JAVA: [asdict(start) for start in java_starts]},
        **measured,
    }


def _measure_under_load(plan: StorePlan, targets: list[Target], sizes: Sizes) -> dict[str, Any]:
    ports = [target.process.port for target in targets]
    comparisons = []
    for workload in WORKLOADS:
        count = sizes.compared if workload in ("view", "key", "unique") else min(sizes.compared, 200)
        comparison = compare_servers(workload, build_requests(plan, workload, count, _COMPARE_SEED), ports[0], ports[1])
        _say(f"compared {workload}: {comparison.differing} of {comparison.requests} differ")
        comparisons.append(asdict(comparison))
    warm_up_seconds = {}
    for target in targets:
        _say(f"warming up {target.name}")
        warm_up_seconds[target.name] = warm_up(target, sizes)
    rounds = run_rounds(targets, sizes, _say)
    unlucky = {target.name: measure_unlucky(target, sizes) for target in targets}
    memory = {target.name: memory_mb(target.process.pid) for target in targets}
    runs = [r for modes in rounds.values() for servers in modes.values() for rs in servers.values() for r in rs]
    runs += [r for reports in unlucky.values() for r in reports.values()]
    return {
        "comparisons": comparisons,
        "warm_up_seconds": warm_up_seconds,
        "rounds": rounds,
        "unlucky": unlucky,
        "memory": memory,
        "errors": sum(r["errors"] for r in runs),
        "first_errors": [r["first_error"] for r in runs if r["first_error"]],
    }


def is_sound(results: Mapping[str, Any]) -> bool:
    """Whether the figures mean anything: no error under load, no answer unlike Java's."""
    return not results["errors"] and not any(entry["differing"] for entry in results["comparisons"])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--count", default=StoreParameters.count, show_default=True, help="Messages in the store.")
@click.option("--rounds", default=Sizes.rounds, show_default=True)
@click.option("--scale", default=1.0, show_default=True, help="Factor on requests a round and on the warm-up.")
@click.option("--jars", type=click.Path(path_type=Path, exists=True), help="The official jars [default: by Maven].")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every figure here.")
@click.option("--markdown", "markdown_path", type=click.Path(path_type=Path), help="Write the tables here too.")
def main(
    store_dir: Path,
    count: int,
    rounds: int,
    scale: float,
    jars: Path | None,
    json_path: Path | None,
    markdown_path: Path | None,
) -> None:
    """Measure RocketLens beside the official Java broker, and print the tables."""
    jars = java_broker.find_jars(jars)
    _say("store: making it, or finding it made")
    store = make_store(store_dir, StoreParameters(count=count), jars)
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=store_dir))
    try:
        results = run(store, jars, scaled(Sizes(rounds=rounds), scale), scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if json_path:
        json_path.write_text(json.dumps(results, indent=1))
    text = report.markdown(results)
    if markdown_path:
        markdown_path.write_text(text)
    print(text)
    if not is_sound(results):
        sys.exit(1)


def scaled(sizes: Sizes, factor: float) -> Sizes:
    """Fewer or more requests, and as much warm-up; at least 100 requests each."""

    def times(count: int) -> int:
        return max(100, int(count * factor))

    return Sizes(
        rounds=sizes.rounds,
        requests={workload: times(count) for workload, count in sizes.requests.items()},
        requests_one_by_one=times(sizes.requests_one_by_one),
        compared=times(sizes.compared),
        unlucky_requests=times(sizes.unlucky_requests),
        warm_up_seconds=sizes.warm_up_seconds * factor,
        starts=sizes.starts,
    )


if __name__ == "__main__":
    main()
