"""Pulling beside the official Java broker 5.5.0: 32 messages from random offsets, server CPU a request.

    python -m benchmarks.pull
    python -m benchmarks.pull --rates                    filters that pass 1 and 50 %, of 100 tags
    python -m benchmarks.pull --topics 10000             a topic and queue each, of 100 messages
    python -m benchmarks.pull --connections 10000 --in-flight 1

All messages, those with one of seven tags, and those that a SQL92 expression of two terms passes, a tenth. The same
store, requests and run for both; answers are compared byte for byte first. Medians over interleaved rounds. Beside them
stands what a C server takes that gathers the same records, with and without checks (floor.py).
"""

import re
import resource
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

from benchmarks import java_broker
from benchmarks.floor import CHECKED_FLOOR, FLOOR, compile_floor, floor_server
from benchmarks.load import LoadReport, run_load
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import JAVA, OURS, Target, copy_for_java, our_server, warm_kernel_cache
from benchmarks.remoting import Peer, encode_request
from benchmarks.report import machine
from benchmarks.store_plan import StoreParameters, StorePlan
from benchmarks.workload import Requests

PULL_MESSAGE = 11
MESSAGES = 32
SCANNED = 800
"""Units that one pull looks through, by ours as by the Java broker: 16,000 bytes of them."""

COMPARED = 2_000
CPU_AIM = 1 / 5
FLOOR_AIM = 1.2
JAVA_SETTINGS = {"enablePropertyFilter": "true"}
_SUBSCRIPTION_IN_REQUEST = 4

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Subscription:
    """What a consumer wants of the benchmark's topic."""

    text: str
    expression_type: str
    share: float

    def mask(self, plan: StorePlan) -> Mask:
        """Which messages those are, by the plan."""
        if self.text == "*":
            return np.ones(plan.parameters.count, dtype=np.bool_)
        if self.expression_type == "TAG":
            return np.isin(plan.tag_numbers, [int(number) for number in re.findall("Tag([0-9]+)", self.text)])
        amount, comparison, number = re.findall("[0-9]+|<>|=", self.text)
        is_region = plan.region_numbers == int(number)
        return np.asarray((plan.amounts < int(amount)) & (is_region if comparison == "=" else ~is_region))


SUBSCRIPTIONS: Mapping[str, Subscription] = {
    "all": Subscription("*", "TAG", 1),
    "tag": Subscription("Tag3", "TAG", 1 / 7),
    "SQL92": Subscription("amount < 40 AND region = 'r1'", "SQL92", 1 / 10),
}

TAGS = 100
RATES: Mapping[str, Subscription] = {
    "tag, 1 %": Subscription("Tag03", "TAG", 1 / 100),
    "tags, 50 %": Subscription(" || ".join(f"Tag{number:02}" for number in range(TAGS // 2)), "TAG", 1 / 2),
    "SQL92, 1 %": Subscription("amount < 4 AND region = 'r1'", "SQL92", 1 / 100),
    "SQL92, 50 %": Subscription("amount < 67 AND region <> 'r1'", "SQL92", 1 / 2),
}
"""In a store of 100 tags."""


def pull_requests(plan: StorePlan, count: int, seed: int, wanted: Subscription = SUBSCRIPTIONS["all"]) -> Requests:
    """Pulls of 32 messages from random offsets of random queues; each finds one at least."""
    random = np.random.default_rng(seed)
    of_store = plan.parameters.queues
    last = max(plan.parameters.count // len(of_store) - (MESSAGES if wanted.share == 1 else SCANNED), 1)
    queues, offsets = random.integers(0, len(of_store), count), random.integers(0, last, count)
    mask = wanted.mask(plan)
    body_bytes = 0
    for number in range(len(of_store)):
        of_queue, sizes = mask[number :: len(of_store)], plan.sizes[number :: len(of_store)]
        asked = np.flatnonzero(queues == number)
        offsets[asked] = _finding(of_queue, offsets[asked])
        body_bytes += _foretold(of_queue, sizes, offsets[asked])
    frames = [
        encode_request(PULL_MESSAGE, pull_fields(*of_store[queue], offset, wanted), opaque)
        for opaque, (queue, offset) in enumerate(zip(queues.tolist(), offsets.tolist(), strict=True))
    ]
    bounds = np.zeros(count + 1, dtype=np.int64)
    np.cumsum([len(frame) for frame in frames], out=bounds[1:])
    return Requests(b"".join(frames), bounds, body_bytes)


def _finding(mask: Mask, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The offsets, but where a pull would find nothing that of the next message it wants, or of the first of all."""
    found = np.flatnonzero(mask)
    following = found[np.searchsorted(found, offsets) % len(found)]
    return np.where((following >= offsets) & (following < offsets + SCANNED), offsets, following)


def _foretold(mask: Mask, sizes: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> int:
    """Bytes of what pulls of one queue find from these offsets on."""
    found = np.flatnonzero(mask)
    ends = np.concatenate([[0], np.cumsum(sizes[found])])
    first = np.searchsorted(found, offsets)
    behind = np.minimum(first + MESSAGES, np.searchsorted(found, offsets + SCANNED))
    return int((ends[behind] - ends[first]).sum())


def pull_fields(topic: str, queue_id: int, queue_offset: int, wanted: Subscription) -> str:
    """Ext fields of PULL_MESSAGE, as a Java client sends them; not to be held."""
    return (
        f'{{"consumerGroup":"BenchGroup","topic":"{topic}","queueId":"{queue_id}","queueOffset":"{queue_offset}",'
        f'"maxMsgNums":"{MESSAGES}","sysFlag":"{_SUBSCRIPTION_IN_REQUEST}","commitOffset":"0",'
        f'"suspendTimeoutMillis":"0","subscription":"{wanted.text}","subVersion":"0",'
        f'"expressionType":"{wanted.expression_type}"}}'
    )


def differing(requests: Requests, ports: Sequence[int]) -> int:
    """How many answers are not the same on both servers."""
    frames = [requests.frame(number) for number in range(len(requests))]
    answers = []
    for port in ports:
        with Peer(port) as peer:
            answers.append({opaque: (code, body) for opaque, code, body in peer.call_many(frames)})
    return sum(answers[0][number] != answers[1][number] for number in range(len(frames)))


def measure(
    plan: StorePlan,
    targets: Sequence[Target],
    subscriptions: Mapping[str, Subscription],
    rounds: int,
    count: int,
    connections: int,
    in_flight: int,
) -> dict[str, dict[str, list[LoadReport]]]:
    """A report a round for each subscription and server, after a warm-up of both. The C servers have no filter."""

    def load(target: Target, requests: Requests) -> LoadReport:
        return run_load(target.process.port, requests, connections, in_flight, pid=target.process.pid)

    answering = {
        name: [target for target in targets if wanted.share == 1 or target.name in (OURS, JAVA)]
        for name, wanted in subscriptions.items()
    }
    for name, wanted in subscriptions.items():
        for target in answering[name]:
            for seed in range(4):
                load(target, pull_requests(plan, count, 100 + seed, wanted))
    reports = {name: {target.name: list[LoadReport]() for target in some} for name, some in answering.items()}
    for number in range(rounds):
        for name, wanted in subscriptions.items():
            requests = pull_requests(plan, count, number, wanted)
            for target in answering[name] if number % 2 == 0 else answering[name][::-1]:
                reports[name][target.name].append(load(target, requests))
    return reports


def markdown(reports: Mapping[str, Mapping[str, Sequence[LoadReport]]], compared: int, mode: str) -> str:
    """The table."""
    where = machine()
    lines = [
        f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}, Python {where['python']}. "
        f"{compared:,} answers a subscription compared byte for byte.",
        "",
        f"| pull of {MESSAGES}, {mode} | server | CPU, µs a request | requests/s | p50, µs | p99, µs |",
        "|---|---|---|---|---|---|",
    ]
    verdicts = []
    for name, servers in reports.items():
        for server, runs in servers.items():
            cpu, rate, p50, p99 = (
                statistics.median(getattr(run, figure) or 0 for run in runs)
                for figure in ("server_cpu_us", "requests_per_second", "p50_us", "p99_us")
            )
            lines.append(f"| {name} | {server} | {cpu:.1f} | {rate:,.0f} | {p50:,.0f} | {p99:,.0f} |")
        for other, aim in ((JAVA, CPU_AIM), (CHECKED_FLOOR, FLOOR_AIM)):
            if other in servers:
                pairs = zip(servers[OURS], servers[other], strict=True)
                ratio = statistics.median((ours.server_cpu_us or 0) / (run.server_cpu_us or 1) for ours, run in pairs)
                verdict = "met" if ratio <= aim else "NOT met"
                verdicts.append(f"{name}: CPU of {OURS} / {other} {ratio:.3f} (≤ {aim:.3f}: {verdict})")
    return "\n".join([*lines, "", *verdicts])


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--requests", "count", default=60_000, show_default=True, help="A round, subscription and server.")
@click.option("--connections", default=4, show_default=True)
@click.option("--in-flight", default=16, show_default=True, help="Requests a connection.")
@click.option("--rates", is_flag=True, help="Filters that pass 1 and 50 %, in a store of 100 tags.")
@click.option("--topics", default=1, show_default=True, help="Topics of the store; of more each has one queue.")
@click.option("--without-java", is_flag=True, help="Beside the C servers alone.")
@click.option("--jars", type=click.Path(path_type=Path, exists=True), help="The official jars [default: by Maven].")
def main(
    store_dir: Path,
    rounds: int,
    count: int,
    connections: int,
    in_flight: int,
    rates: bool,
    topics: int,
    without_java: bool,
    jars: Path | None,
) -> None:
    """Measure pulls of all servers, and print the table."""
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    jars = java_broker.find_jars(jars)
    parameters = StoreParameters(tags=TAGS, topics=topics) if rates else StoreParameters(topics=topics)
    store = make_store(store_dir, parameters, jars)
    subscriptions = RATES if rates else SUBSCRIPTIONS
    if topics > 1:  # fewer messages in a queue than a filter looks through
        subscriptions = {"all": SUBSCRIPTIONS["all"]}
    plan = StorePlan.load(store)
    scratch = Path(tempfile.mkdtemp(prefix="pull-", dir=store_dir))
    try:
        warm_kernel_cache(store)
        with ExitStack() as stack:
            targets = [Target(OURS, stack.enter_context(our_server(store, scratch / "state")), store)]
            if not without_java:
                copy = copy_for_java(store, scratch / "java")
                java = stack.enter_context(java_broker.JavaBroker(copy, jars, JAVA_SETTINGS))
                targets.append(Target(JAVA, java.process, store))
            for target in targets:
                target.process.first_answer(0, timeout_seconds=600, topic=parameters.queues[0][0])
            if topics == 1:
                program = compile_floor(scratch)
                for name in (FLOOR, CHECKED_FLOOR):
                    floor = floor_server(program, store, is_checked=name == CHECKED_FLOOR)
                    targets.append(Target(name, stack.enter_context(floor), store))
            ports = [target.process.port for target in targets[:2]]
            wrong = sum(
                differing(pull_requests(plan, COMPARED, 7, wanted), ports)
                for wanted in subscriptions.values()
                if len(ports) == 2 and (wanted.share == 1 or not without_java)
            )
            reports = measure(plan, targets, subscriptions, rounds, count, connections, in_flight)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(markdown(reports, COMPARED, f"{connections} x {in_flight}"))
    errors = sum(run.errors for servers in reports.values() for runs in servers.values() for run in runs)
    if wrong or errors:
        print(f"{wrong} answers differ, {errors} errors: the figures mean nothing", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
