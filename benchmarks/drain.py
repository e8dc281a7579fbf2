"""One official push consumer drains a million messages through a SQL92 filter that passes 1 %, beside the Java broker.

    python -m benchmarks.drain

The same store and run for both servers, and the same consumer: one JVM with the official client 5.5.0 and its default
settings, which joins a new group for each drain. Drains of both servers take turns; medians. A drain is timed from the
consumer's first message to its last.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from benchmarks import java_broker
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import JAVA, OURS, copy_for_java, our_server, warm_kernel_cache
from benchmarks.pull import JAVA_SETTINGS, RATES
from benchmarks.remoting import Peer
from benchmarks.report import machine
from benchmarks.server_process import ServerProcess, cpu_ns
from benchmarks.store_plan import TOPIC, StoreParameters, StorePlan
from tests.interop.jars import compiled, tool

ONE_PERCENT = RATES["SQL92, 1 %"]
SOURCE = Path(__file__).with_name("Drain.java")
CLIENT_OPTIONS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_GET_ROUTEINFO_BY_TOPIC = 105


@dataclass(frozen=True)
class Side:
    """A server that is drained, and the port of the name server that leads to it."""

    name: str
    pid: int
    name_server: int


@dataclass(frozen=True)
class Drained:
    """One drain. `repeated` of what came had come before; `seconds` from the first message to the last."""

    received: int
    repeated: int
    first_seconds: float
    seconds: float
    server_cpu_seconds: float


class Consumer:
    """The JVM that drains."""

    def __init__(self, input_: IO[str], output: IO[str]) -> None:
        self._input, self._output, self._groups = input_, output, 0

    def drain(self, side: Side, expected: int) -> Drained:
        """Drain a server's topic in a new group, until as many messages came as are expected."""
        self._groups += 1
        before = cpu_ns(side.pid)
        words = f"127.0.0.1:{side.name_server} Drain{self._groups} {TOPIC} {expected} {ONE_PERCENT.text}"
        print(words, file=self._input, flush=True)
        # Its logging prints lines, too.
        line = next((line for line in self._output if line.startswith("{")), None)
        if line is None:
            raise RuntimeError("the consumer ended")
        results: dict[str, Any] = json.loads(line)
        seconds = results["last_seconds"] - results["first_seconds"]
        cpu_seconds = (cpu_ns(side.pid) - before) / 1e9
        return Drained(results["received"], results["repeated"], results["first_seconds"], seconds, cpu_seconds)


@contextmanager
def consumer(jars: Path, work: Path) -> Iterator[Consumer]:
    """The consumer's JVM, which gets ``work`` for its log."""
    work.mkdir(parents=True)
    class_path = f"{jars}/*:{compiled(jars, SOURCE)}"
    command = [tool("java"), *CLIENT_OPTIONS, f"-Duser.home={work}", "-cp", class_path, "Drain"]
    with (
        (work / "consumer.log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        yield Consumer(process.stdin, process.stdout)
        process.stdin.close()


def wait_for_route(side: Side, process: ServerProcess) -> None:
    """Return once the name server of a side knows the topic; a broker registers it some time after its start."""

    def is_known() -> bool:
        with Peer(side.name_server) as peer:
            return bool(peer.call(_GET_ROUTEINFO_BY_TOPIC, f'{{"topic":"{TOPIC}"}}')[0]["code"] == 0)

    process.wait_for(is_known, 120, f"route of {TOPIC}")


def measure(sides: Sequence[Side], client: Consumer, expected: int, rounds: int) -> dict[str, list[Drained]]:
    """A drain a round and side, after one to warm each up."""
    for side in sides:
        client.drain(side, expected)
    drained: dict[str, list[Drained]] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else sides[::-1]:
            drained[side.name].append(client.drain(side, expected))
    return drained


def markdown(drained: Mapping[str, Sequence[Drained]], count: int, expected: int) -> str:
    """The table."""
    where = machine()
    lines = [
        f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}, Python {where['python']}. "
        f"{expected:,} of {count:,} messages pass `{ONE_PERCENT.text}`.",
        "",
        "| drain by one push consumer | seconds | messages/s | server CPU, s | to the first message, s |",
        "|---|---|---|---|---|",
    ]
    for name, drains in drained.items():
        seconds, cpu, first = (
            statistics.median(getattr(drain, figure) for drain in drains)
            for figure in ("seconds", "server_cpu_seconds", "first_seconds")
        )
        lines.append(f"| {name} | {seconds:.2f} | {count / seconds:,.0f} | {cpu:.2f} | {first:.2f} |")
    ours, java = (statistics.median(drain.seconds for drain in drained[name]) for name in (OURS, JAVA))
    verdict = "met" if ours <= java else "NOT met"
    return "\n".join([*lines, "", f"Rate {java / ours:.2f} times the Java broker's (≥ 1: {verdict})"])


def is_exact(drained: Mapping[str, Sequence[Drained]], expected: int) -> bool:
    """Whether each drain brought each message that passes, and no other."""
    return all(drain.received == expected for drains in drained.values() for drain in drains)


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--count", default=StoreParameters.count, show_default=True, help="Messages in the store.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--jars", type=click.Path(path_type=Path, exists=True), help="The official jars [default: by Maven].")
def main(store_dir: Path, count: int, rounds: int, jars: Path | None) -> None:
    """Have both servers drained, and print the table."""
    jars = java_broker.find_jars(jars)
    store = make_store(store_dir, StoreParameters(count=count), jars)
    plan = StorePlan.load(store)
    expected = int(ONE_PERCENT.mask(plan).sum())
    scratch = Path(tempfile.mkdtemp(prefix="drain-", dir=store_dir))
    try:
        copy = copy_for_java(store, scratch / "java")
        warm_kernel_cache(store)
        with our_server(store, scratch / "state") as ours, java_broker.JavaNameServer(jars) as name_server:
            settings = {**JAVA_SETTINGS, "namesrvAddr": f"127.0.0.1:{name_server.process.port}"}
            with (
                java_broker.JavaBroker(copy, jars, settings) as java,
                consumer(jars, scratch / "consumer") as client,
            ):
                sides = [
                    Side(OURS, ours.pid, ours.port),
                    Side(JAVA, java.process.pid, name_server.process.port),
                ]
                for side, process in zip(sides, (ours, java.process), strict=True):
                    process.first_answer(0, timeout_seconds=600)
                    wait_for_route(side, process)
                drained = measure(sides, client, expected, rounds)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(markdown(drained, count, expected))
    if not is_exact(drained, expected):
        print("a drain did not bring exactly what passes: the figures mean nothing", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
