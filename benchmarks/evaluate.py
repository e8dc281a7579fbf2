"""How many messages a second one core evaluates a SQL92 expression of two terms for.

    python -m benchmarks.evaluate

Through pulls, as a consumer causes it: queue units and log are read, and each message's properties are found and
compared by the kernel of a pull. Over blocks of properties side by side, as exports do it. And with a call for each
block, as where something else about the message is looked at in Python.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np

from benchmarks import java_broker
from benchmarks.drain import ONE_PERCENT
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import warm_kernel_cache
from benchmarks.report import machine
from benchmarks.store_plan import QUEUES, TOPIC, StoreParameters, StorePlan
from storage.filter.expression import ExpressionFilter
from storage.filter.sql92 import parse
from storage.kernels.region import Region
from storage.kernels.sql92 import LONGEST_PROPERTIES, TRUE, decide_records
from storage.query.get_message import get_message
from storage.store.message_store import MessageStore

BLOCKS = 100_000
AIMS = {"pulls": 3_000_000, "blocks": 3_000_000, "one call each": 1_000_000}
"""Messages a second."""
MESSAGES_A_PULL, BYTES_A_PULL = 32, 256 * 1024


def pulled(store: MessageStore, wanted: ExpressionFilter) -> Iterator[int]:
    """How many messages each pull of each queue finds, until all queues are at their end."""
    snapshot = store.snapshot
    for queue_id in range(QUEUES):
        offset, end = 0, 1
        while offset < end:
            result = get_message(
                *(snapshot.queues, TOPIC, queue_id, offset),
                *(MESSAGES_A_PULL, BYTES_A_PULL, wanted),
            )
            offset, end = result.next_begin_offset, result.max_offset
            yield len(result.records)


def decided(blocks: list[bytes], wanted: ExpressionFilter) -> Callable[[], Iterator[int]]:
    """What decides blocks of properties that lie side by side, and says how many pass."""
    region = Region(bytes(LONGEST_PROPERTIES) + b"".join(blocks))
    lengths = np.array([len(block) for block in blocks], np.int64)
    positions, outcomes = LONGEST_PROPERTIES + np.cumsum(lengths) - lengths, np.empty(len(blocks), np.uint8)

    def work() -> Iterator[int]:
        decide_records(wanted.expression.program, region, positions, lengths, outcomes)
        yield int((outcomes == TRUE).sum())

    return work


def rate(count: int, work: Callable[[], Iterator[int]], expected: int, rounds: int) -> float:
    """Messages a second of CPU time: the median of some rounds, each of which must find what is expected."""
    rates = []
    for _ in range(rounds + 1):
        started = time.thread_time()
        found = sum(work())
        rates.append(count / (time.thread_time() - started))
        if found != expected:
            raise RuntimeError(f"{found} messages pass, expected {expected}")
    return statistics.median(rates[1:])


def measure(store: Path, rounds: int, blocks: int = BLOCKS) -> dict[str, float]:
    """Messages a second by what evaluates."""
    plan, wanted = StorePlan.load(store), ExpressionFilter(parse(ONE_PERCENT.text))
    mask, opened = ONE_PERCENT.mask(plan), MessageStore.open(store)
    some = [plan.properties(number) for number in range(min(blocks, plan.parameters.count))]
    passed = int(mask[: len(some)].sum())
    return {
        "pulls": rate(plan.parameters.count, lambda: pulled(opened, wanted), int(mask.sum()), rounds),
        "blocks": rate(len(some), decided(some, wanted), passed, rounds),
        "one call each": rate(len(some), lambda: map(wanted.matches_commit_log, some), passed, rounds),
    }


def markdown(rates: dict[str, float]) -> str:
    """The table."""
    where = machine()
    rows = [
        f"| {name} | {figure:,.0f} | {AIMS[name]:,}: {'met' if figure >= AIMS[name] else 'NOT met'} |"
        for name, figure in rates.items()
    ]
    return "\n".join(
        [
            f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}, Python {where['python']}. "
            f"`{ONE_PERCENT.text}`.",
            "",
            "| evaluated through | messages/s a core | aim |",
            "|---|---|---|",
            *rows,
        ]
    )


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--jars", type=click.Path(path_type=Path, exists=True), help="The official jars [default: by Maven].")
def main(store_dir: Path, rounds: int, jars: Path | None) -> None:
    """Measure the evaluation of an expression, and print the table."""
    store = make_store(store_dir, StoreParameters(), java_broker.find_jars(jars))
    warm_kernel_cache(store)
    print(markdown(measure(store, rounds)))


if __name__ == "__main__":
    main()
