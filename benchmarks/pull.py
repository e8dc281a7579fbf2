"""Pulling beside the official Java broker 5.5.0: 32 messages from random offsets, server CPU a request.

    python -m benchmarks.pull

All messages, those with one of seven tags, and those that a SQL92 expression of two terms passes, a tenth. The same
store, requests and run for both; answers are compared byte for byte first. Medians over interleaved rounds.
"""

import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

from benchmarks import java_broker
from benchmarks.load import LoadReport, run_load
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import JAVA, MANY, MODES, OURS, Target, copy_for_java, our_server, warm_kernel_cache
from benchmarks.remoting import Peer, encode_request
from benchmarks.report import machine
from benchmarks.store_plan import QUEUES, TOPIC, StoreParameters, StorePlan
from benchmarks.workload import Requests

PULL_MESSAGE = 11
MESSAGES = 32
SCANNED = 800
"""Units that one pull looks through, by ours as by the Java broker: 16,000 bytes of them."""

COMPARED = 2_000
CPU_AIM = 1 / 3
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
            return np.asarray(plan.tag_numbers == int(self.text.removeprefix("Tag")))
        amount, number = self.text.removeprefix("amount < ").split(" AND region = 'r")
        return np.asarray((plan.amounts < int(amount)) & (plan.region_numbers == int(number.rstrip("'"))))


SUBSCRIPTIONS: Mapping[str, Subscription] = {
    "all": Subscription("*", "TAG", 1),
    "tag": Subscription("Tag3", "TAG", 1 / 7),
    "SQL92": Subscription("amount < 40 AND region = 'r1'", "SQL92", 1 / 10),
}


def pull_requests(plan: StorePlan, count: int, seed: int, wanted: Subscription = SUBSCRIPTIONS["all"]) -> Requests:
    """Pulls of 32 messages from random offsets of random queues; message n is number n // 8 of queue n % 8."""
    random = np.random.default_rng(seed)
    last = max(plan.parameters.count // QUEUES - (MESSAGES if wanted.share == 1 else SCANNED), 1)
    queues, offsets = random.integers(0, QUEUES, count), random.integers(0, last, count)
    mask = wanted.mask(plan)
    body_bytes = sum(
        _foretold(mask[number::QUEUES], plan.sizes[number::QUEUES], offsets[queues == number])
        for number in range(QUEUES)
    )
    frames = [
        encode_request(PULL_MESSAGE, pull_fields(queue_id, offset, wanted), opaque)
        for opaque, (queue_id, offset) in enumerate(zip(queues.tolist(), offsets.tolist(), strict=True))
    ]
    bounds = np.zeros(count + 1, dtype=np.int64)
    np.cumsum([len(frame) for frame in frames], out=bounds[1:])
    return Requests(b"".join(frames), bounds, body_bytes)


def _foretold(mask: Mask, sizes: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> int:
    """Bytes of what pulls of one queue find from these offsets on."""
    found = np.flatnonzero(mask)
    ends = np.concatenate([[0], np.cumsum(sizes[found])])
    first = np.searchsorted(found, offsets)
    behind = np.minimum(first + MESSAGES, np.searchsorted(found, offsets + SCANNED))
    return int((ends[behind] - ends[first]).sum())


def pull_fields(queue_id: int, queue_offset: int, wanted: Subscription) -> str:
    """Ext fields of PULL_MESSAGE, as a Java client sends them; not to be held."""
    return (
        f'{{"consumerGroup":"BenchGroup","topic":"{TOPIC}","queueId":"{queue_id}","queueOffset":"{queue_offset}",'
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
    plan: StorePlan, targets: Sequence[Target], rounds: int, count: int
) -> dict[str, dict[str, list[LoadReport]]]:
    """A report a round for each subscription and server, after a warm-up of both."""
    for target in targets:
        for seed in range(4):
            for wanted in SUBSCRIPTIONS.values():
                _load(target, pull_requests(plan, count, 100 + seed, wanted))
    reports = {name: {target.name: list[LoadReport]() for target in targets} for name in SUBSCRIPTIONS}
    for number in range(rounds):
        for name, wanted in SUBSCRIPTIONS.items():
            requests = pull_requests(plan, count, number, wanted)
            for target in targets if number % 2 == 0 else targets[::-1]:
                reports[name][target.name].append(_load(target, requests))
    return reports


def _load(target: Target, requests: Requests) -> LoadReport:
    return run_load(target.process.port, requests, *MODES[MANY], pid=target.process.pid)


def markdown(reports: Mapping[str, Mapping[str, Sequence[LoadReport]]], compared: int) -> str:
    """The table."""
    where = machine()
    lines = [
        f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}, Python {where['python']}. "
        f"{compared:,} answers a subscription compared byte for byte.",
        "",
        f"| pull of {MESSAGES}, {MANY} | server | CPU, µs a request | requests/s | p50, µs | p99, µs |",
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
        ours, java = (statistics.median(run.server_cpu_us or 0 for run in servers[server]) for server in (OURS, JAVA))
        verdict = "met" if ours <= CPU_AIM * java else "NOT met"
        verdicts.append(f"{name}: CPU ratio {ours / java:.3f} (≤ {CPU_AIM:.3f}: {verdict})")
    return "\n".join([*lines, "", *verdicts])


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--requests", "count", default=60_000, show_default=True, help="A round, subscription and server.")
@click.option("--jars", type=click.Path(path_type=Path, exists=True), help="The official jars [default: by Maven].")
def main(store_dir: Path, rounds: int, count: int, jars: Path | None) -> None:
    """Measure pulls of both servers, and print the table."""
    jars = java_broker.find_jars(jars)
    store = make_store(store_dir, StoreParameters(), jars)
    plan = StorePlan.load(store)
    scratch = Path(tempfile.mkdtemp(prefix="pull-", dir=store_dir))
    try:
        copy = copy_for_java(store, scratch / "java")
        warm_kernel_cache(store)
        with (
            our_server(store, scratch / "state") as ours,
            java_broker.JavaBroker(copy, jars, JAVA_SETTINGS) as java,
        ):
            targets = [Target(OURS, ours, store), Target(JAVA, java.process, store)]
            for target in targets:
                target.process.first_answer(0, timeout_seconds=600)
            ports = [ours.port, java.process.port]
            wrong = sum(differing(pull_requests(plan, COMPARED, 7, wanted), ports) for wanted in SUBSCRIPTIONS.values())
            reports = measure(plan, targets, rounds, count)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(markdown(reports, COMPARED))
    errors = sum(run.errors for servers in reports.values() for runs in servers.values() for run in runs)
    if wrong or errors:
        print(f"{wrong} answers differ, {errors} errors: the figures mean nothing", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
