"""One worker and two on one store: what a second process gains or costs, in turns in the same run.

    python -m benchmarks.workers [--workers 2] [--slices 20]

Two servers run beside each other, one of them idle; the load generator, here in this process, turns from one to the
other after each slice, and which comes first alternates, so that a slow moment of the machine hits both. Printed is for
each workload the throughput with one worker and with several, the median of the ratios of neighbouring slices with its
quartiles, and the CPU of all workers a request. With the generator on the same two cores several workers can at best
have what one leaves idle; that they must not fall below one is the aim.
"""

import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click

from benchmarks.java_broker import find_jars
from benchmarks.load import run_load
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import ROOT, warm_kernel_cache
from benchmarks.report import machine
from benchmarks.server_process import ServerProcess, children_of, cpu_ns, free_port, rocketlens_command
from benchmarks.store_plan import StoreParameters, StorePlan
from benchmarks.workload import build_requests

COUNTS = {"view": 150_000, "key": 60_000, "unique": 60_000}
"""Requests a slice: about a second."""

CONNECTIONS = 16
IN_FLIGHT = 4
"""As many requests at once as with the other benchmarks' 4 × 16, over enough connections for each worker."""


@dataclass
class Figures:
    """One server's slices of one workload: requests a second, and µs of CPU a request."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)


def measure(store: Path, scratch: Path, workers: int, slices: int) -> dict[str, tuple[Figures, Figures]]:
    """``[workload]`` → figures with one worker, and with several."""
    plan = StorePlan.load(store)
    figures = {workload: (Figures(), Figures()) for workload in COUNTS}
    with ExitStack() as stack:
        servers = [stack.enter_context(_server(store, scratch / str(count), count)) for count in (1, workers)]
        for workload, both in figures.items():
            for number in range(-1, slices):
                requests = build_requests(plan, workload, COUNTS[workload], number + 2)
                for server, own in [*zip(servers, both, strict=True)][:: 1 if number % 2 else -1]:
                    before = _cpu_of_workers(server)
                    report = run_load(server.port, requests, CONNECTIONS, IN_FLIGHT)
                    if report.errors:
                        raise RuntimeError(f"{workload}: {report.first_error}")
                    if number >= 0:  # the first one warms up
                        own.rates.append(report.requests_per_second)
                        own.cpu_us.append((_cpu_of_workers(server) - before) / 1000 / report.requests)
    return figures


def _server(store: Path, state: Path, workers: int) -> ServerProcess:
    port = free_port()
    state.mkdir()
    command = rocketlens_command(store, port, state, workers)
    process = ServerProcess(command, port, log=state / "server.log", directory=ROOT)
    process.wait_until_open()
    process.wait_for(lambda: len(children_of(process.pid)) == workers, 60, "all workers")
    return process


def _cpu_of_workers(server: ServerProcess) -> int:
    return sum(map(cpu_ns, children_of(server.pid)))


def ratios(figures: tuple[Figures, Figures]) -> list[float]:
    """Throughput with several workers over that with one, of neighbouring slices, sorted."""
    one, several = figures
    return sorted(b / a for a, b in zip(one.rates, several.rates, strict=True))


def show(figures: dict[str, tuple[Figures, Figures]], workers: int) -> str:
    """The table of a run."""
    lines = [
        f"| workload | requests/s, 1 worker | {workers} workers | ratio: quartile … median … quartile (aim 1) "
        f"| CPU a request, µs, 1 worker | {workers} workers |",
        "|---|---|---|---|---|---|",
    ]
    for workload, both in figures.items():
        found = ratios(both)
        quartiles = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
        rates, cpu = ([statistics.median(values) for values in each] for each in _columns(both))
        lines.append(
            f"| {workload} | {rates[0]:,.0f} | {rates[1]:,.0f} | {' … '.join(f'{each:.3f}' for each in quartiles)} "
            f"| {cpu[0]:.2f} | {cpu[1]:.2f} |"
        )
    return "\n".join(lines)


def _columns(both: tuple[Figures, Figures]) -> tuple[list[list[float]], list[list[float]]]:
    return [each.rates for each in both], [each.cpu_us for each in both]


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--count", default=StoreParameters.count, show_default=True, help="Messages in the store.")
@click.option("--workers", default=2, show_default=True)
@click.option("--slices", default=20, show_default=True, help="Of each server and workload.")
def main(store_dir: Path, count: int, workers: int, slices: int) -> None:
    """Measure, and print a table."""
    store = make_store(store_dir, StoreParameters(count=count), find_jars(None))
    warm_kernel_cache(store)
    print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        print(show(measure(store, Path(scratch), workers, slices), workers))


if __name__ == "__main__":
    main()
