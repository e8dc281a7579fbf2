"""The cost of counting: CPU of a view with metrics and without, in the same run, slice by slice.

    python -m benchmarks.metrics_cost

Two servers run on one store: one counts nothing (`--slow-query 0`, no `--http`), one counts. The load generator, here
in this process, turns from one to the other after each slice of some tenths of a second, and which comes first
alternates; the ratio is the median of the ratios of neighbouring slices, which a machine that does other things beside
shifts least. What a scrape costs is measured by itself afterwards. The same is then measured without sockets: reads of
1 and 16 views handed to a connection of each kind, in the fast lane and on the ordinary way; without the kernel's share
the ratio is higher there.
"""

import asyncio
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import click

from benchmarks.java_broker import find_jars
from benchmarks.load import run_load
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import MANY, MODES, ONE, ROOT, warm_kernel_cache
from benchmarks.remoting import encode_request, view_fields
from benchmarks.report import machine
from benchmarks.server_process import ServerProcess, cpu_ns, free_port, rocketlens_command
from benchmarks.store_plan import StoreParameters, StorePlan
from benchmarks.workload import build_requests
from broker.config import ServeOptions
from broker.lane.fast_lane import FastLane
from broker.limits import DEFAULT_LIMITS
from broker.metrics.metrics_meter import Meter
from broker.metrics.slow_queries import SlowQueries
from broker.net.budget import ConnectionBudget
from broker.net.scheduler import Scheduler
from broker.net.session_settings import SessionSettings
from broker.net.transport import OpenConnections, SessionTransport
from broker.service.broker_service import BrokerService
from broker.service.dispatcher import Dispatcher
from broker.service.request_families import build_processors
from storage.store.message_store import MessageStore

VIEW_MESSAGE_BY_ID = 33
WITHOUT, WITH = "without", "with"
COUNTS = {MANY: 30_000, ONE: 4_000}
"""Views a slice."""
SCRAPES = 30
READS = {1: 20_000, 16: 4_000}
"""Reads a slice, without sockets; at its end what was counted is added up, as four times a second in a server."""


class _Nowhere(asyncio.Transport):
    """A transport that sends nothing."""

    def write(self, data: Any) -> None:
        """Forget it."""

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Forget it."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """An address for every question but the one for TLS."""
        return None if name == "sslcontext" else ("127.0.0.1", 10911)

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing will."""


@contextmanager
def _server(store: Path, state: Path, *options: str) -> Iterator[ServerProcess]:
    port = free_port()
    state.mkdir()
    command = [*rocketlens_command(store, port, state), *options]
    with ServerProcess(command, port, log=state / "server.log", directory=ROOT) as process:
        process.wait_until_open()
        yield process


def _scrape_cost_ms(process: ServerProcess, port: int) -> float:
    """CPU of one scrape, with the connection that it needs."""
    before = cpu_ns(process.pid)
    for _ in range(SCRAPES):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            answer.read()
    return (cpu_ns(process.pid) - before) / SCRAPES / 1e6


def measure_servers(store: Path, scratch: Path, rounds: int) -> tuple[dict[str, dict[str, list[float]]], float]:
    """``[mode][with or without]`` → µs of CPU a view, one figure a slice; then ms of CPU a scrape."""
    http, plan = free_port(), StorePlan.load(store)
    figures: dict[str, dict[str, list[float]]] = {mode: {WITHOUT: [], WITH: []} for mode in COUNTS}
    with ExitStack() as stack:
        without = stack.enter_context(_server(store, scratch / WITHOUT, "--slow-query", "0"))
        counted = stack.enter_context(_server(store, scratch / WITH, "--http", f"127.0.0.1:{http}"))
        servers = {WITHOUT: without, WITH: counted}
        for number in range(-1, rounds):
            for mode, count in COUNTS.items():
                requests = build_requests(plan, "view", count, number + 2)
                for kind in list(servers)[:: 1 if number % 2 else -1]:
                    report = run_load(servers[kind].port, requests, *MODES[mode], servers[kind].pid)
                    if number >= 0:  # the first round warms up
                        figures[mode][kind].append(cast(float, report.server_cpu_us))
        return figures, _scrape_cost_ms(counted, http)


def _connection(service: BrokerService, meter: Meter | None, *, has_lane: bool) -> SessionTransport:
    lane = FastLane(service) if has_lane else None
    settings = SessionSettings(
        Dispatcher(build_processors(service)),
        ConnectionBudget(DEFAULT_LIMITS, time.monotonic),
        Scheduler(lambda work: asyncio.get_running_loop().call_soon(work)),
        lane=lane,
        meter=meter,
    )
    connection = SessionTransport(settings, OpenConnections())
    connection.connection_made(_Nowhere())
    return connection


async def measure_connections(store: Path, offsets: list[int], rounds: int) -> dict[str, dict[str, list[float]]]:
    """``[case][with or without]`` → µs a view, one figure a slice."""
    service = BrokerService.of(MessageStore.open(store), ServeOptions(store))
    figures: dict[str, dict[str, list[float]]] = {}
    for has_lane in (True, False):
        meters = {WITHOUT: None, WITH: Meter(slow=SlowQueries())}
        connections = {kind: _connection(service, meter, has_lane=has_lane) for kind, meter in meters.items()}
        for views, reads in READS.items():
            data = b"".join(encode_request(VIEW_MESSAGE_BY_ID, view_fields(offset), 1) for offset in offsets[:views])
            case = f"{'fast lane' if has_lane else 'ordinary way'}, {views} a read"
            figures[case] = {WITHOUT: [], WITH: []}
            for number in range(rounds):
                for kind in list(connections)[:: 1 if number % 2 else -1]:
                    taken = _slice_ns(connections[kind], meters[kind], data, reads)
                    figures[case][kind].append(taken / 1000 / reads / views)
    return figures


def _slice_ns(connection: SessionTransport, meter: Meter | None, data: bytes, reads: int) -> int:
    started = time.process_time_ns()
    for _ in range(reads):
        connection.data_received(data)
    if meter is not None:
        meter.add_up()
    return time.process_time_ns() - started


def _print(title: str, figures: dict[str, dict[str, list[float]]]) -> None:
    print(f"\n{title}\n")
    print("| case | without, µs a view | with | ratio of neighbouring slices: quartile … median … quartile |")
    print("|---|---|---|---|")
    for case, kinds in figures.items():
        without, counted = (statistics.median(kinds[kind]) for kind in (WITHOUT, WITH))
        ratios = [b / a for a, b in zip(kinds[WITHOUT], kinds[WITH], strict=True)]
        quartiles = " … ".join(f"{each:.3f}" for each in statistics.quantiles(ratios, n=4))
        print(f"| {case} | {without:.2f} | {counted:.2f} | {quartiles} |")


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--count", default=StoreParameters.count, show_default=True, help="Messages in the store.")
@click.option("--rounds", default=60, show_default=True)
@click.option("--sockets/--no-sockets", default=True, show_default=True, help="Whether to measure servers too.")
def main(store_dir: Path, count: int, rounds: int, sockets: bool) -> None:
    """Measure, and print a table."""
    parameters = StoreParameters(count=count)
    store = make_store(store_dir, parameters, find_jars(None))
    warm_kernel_cache(store)
    print(machine())
    if sockets:
        with tempfile.TemporaryDirectory() as scratch:
            figures, scrape = measure_servers(store, Path(scratch), rounds)
            _print("servers, CPU of the process", figures)
            print(f"\na scrape: {scrape:.1f} ms of CPU")
    offsets = cast(list[int], StorePlan(parameters).physical_offsets[:1000].tolist())
    _print("connections alone, CPU of the thread", asyncio.run(measure_connections(store, offsets, rounds)))


if __name__ == "__main__":
    main()
