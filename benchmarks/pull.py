"""Pulling beside the official Java broker 5.5.0: 32 messages from random offsets, server CPU a request.

    python -m benchmarks.pull

The same store, requests and run for both; answers are compared byte for byte first. Medians over interleaved rounds.
"""

import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

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
COMPARED = 2_000
CPU_AIM = 1 / 3
_SUBSCRIPTION_IN_REQUEST = 4


def pull_requests(plan: StorePlan, count: int, seed: int) -> Requests:
    """Pulls of 32 messages from random offsets of random queues; message n is number n // 8 of queue n % 8."""
    random = np.random.default_rng(seed)
    last = plan.parameters.count // QUEUES - MESSAGES
    queues, offsets = random.integers(0, QUEUES, count), random.integers(0, last, count)
    numbers = (offsets[:, None] + np.arange(MESSAGES)) * QUEUES + queues[:, None]
    frames = [
        encode_request(PULL_MESSAGE, pull_fields(queue_id, offset), opaque)
        for opaque, (queue_id, offset) in enumerate(zip(queues.tolist(), offsets.tolist(), strict=True))
    ]
    bounds = np.zeros(count + 1, dtype=np.int64)
    np.cumsum([len(frame) for frame in frames], out=bounds[1:])
    return Requests(b"".join(frames), bounds, int(plan.sizes[numbers].sum()))


def pull_fields(queue_id: int, queue_offset: int) -> str:
    """Ext fields of PULL_MESSAGE for all messages, as a Java client sends them; not to be held."""
    return (
        f'{{"consumerGroup":"BenchGroup","topic":"{TOPIC}","queueId":"{queue_id}","queueOffset":"{queue_offset}",'
        f'"maxMsgNums":"{MESSAGES}","sysFlag":"{_SUBSCRIPTION_IN_REQUEST}","commitOffset":"0",'
        '"suspendTimeoutMillis":"0","subscription":"*","subVersion":"0","expressionType":"TAG"}'
    )


def differing(requests: Requests, ports: Sequence[int]) -> int:
    """How many answers are not the same on both servers."""
    frames = [requests.frame(number) for number in range(len(requests))]
    answers = []
    for port in ports:
        with Peer(port) as peer:
            answers.append({opaque: (code, body) for opaque, code, body in peer.call_many(frames)})
    return sum(answers[0][number] != answers[1][number] for number in range(len(frames)))


def measure(plan: StorePlan, targets: Sequence[Target], rounds: int, count: int) -> dict[str, list[LoadReport]]:
    """A report a round and server, after a warm-up of both."""
    for target in targets:
        for seed in range(4):
            run_load(target.process.port, pull_requests(plan, count, 100 + seed), *MODES[MANY], pid=target.process.pid)
    reports: dict[str, list[LoadReport]] = {target.name: [] for target in targets}
    for number in range(rounds):
        requests = pull_requests(plan, count, number)
        for target in targets if number % 2 == 0 else targets[::-1]:
            reports[target.name].append(run_load(target.process.port, requests, *MODES[MANY], pid=target.process.pid))
    return reports


def markdown(reports: dict[str, list[LoadReport]], compared: int) -> str:
    """The table."""
    where = machine()
    lines = [
        f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}, Python {where['python']}. "
        f"{compared:,} answers compared byte for byte.",
        "",
        f"| pull of {MESSAGES}, {MANY} | server CPU, µs a request | requests/s | p50, µs | p99, µs |",
        "|---|---|---|---|---|",
    ]
    for name, runs in reports.items():
        cpu, rate, p50, p99 = (
            statistics.median(getattr(run, field) or 0 for run in runs)
            for field in ("server_cpu_us", "requests_per_second", "p50_us", "p99_us")
        )
        lines.append(f"| {name} | {cpu:.1f} | {rate:,.0f} | {p50:,.0f} | {p99:,.0f} |")
    ours, java = (statistics.median(run.server_cpu_us or 0 for run in reports[name]) for name in (OURS, JAVA))
    verdict = "met" if ours <= CPU_AIM * java else "NOT met"
    return "\n".join([*lines, "", f"CPU ratio {ours / java:.3f} (≤ {CPU_AIM:.3f}: {verdict})"])


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--requests", "count", default=20_000, show_default=True, help="A round and server.")
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
        with our_server(store, scratch / "state") as ours, java_broker.JavaBroker(copy, jars) as java:
            targets = [Target(OURS, ours, store), Target(JAVA, java.process, store)]
            for target in targets:
                target.process.first_answer(0, timeout_seconds=600)
            wrong = differing(pull_requests(plan, COMPARED, 7), [ours.port, java.process.port])
            reports = measure(plan, targets, rounds, count)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(markdown(reports, COMPARED))
    errors = sum(run.errors for runs in reports.values() for run in runs)
    if wrong or errors:
        print(f"{wrong} answers differ, {errors} errors: the figures mean nothing", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
