"""What calls by gRPC cost: CPU of the port's process a call and a message, page by page, and of a view beside it.

    python -m benchmarks.grpc_calls

Each figure is the median of several runs of one client that asks one call after the other. Of pages the first one and
the last of many are measured. Views by the broker's port, through the fast lane, are measured in turns with `--grpc`
and without it, since that port may cost them nothing.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import grpc

from benchmarks.java_broker import find_jars
from benchmarks.load import run_load
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import ROOT, warm_kernel_cache
from benchmarks.report import machine
from benchmarks.server_process import ServerProcess, cpu_ns, free_port, rocketlens_command
from benchmarks.store_plan import StoreParameters, StorePlan, hot_key, order_key, unique_key
from benchmarks.workload import build_requests
from broker.grpc.messages.admin_pb2 import (
    GetProxyRuntimeStatsRequest,
    GetProxyRuntimeStatsResponse,
    ListMessageRequest,
    ListMessageResponse,
)
from broker.grpc.messages.definition_pb2 import Code, Resource

ROUNDS = 5
CALLS = 200
VIEWS = 30_000
PAGE = 100

Ask = Callable[[int], Any]


class Tool:
    """A client of the port, and the processes behind it."""

    def __init__(self, port: int, process: int) -> None:
        self.process = process
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        grpc.channel_ready_future(channel).result(30)
        self._query = channel.unary_unary(
            "/apache.rocketmq.v2.Admin/QueryMessage",
            request_serializer=ListMessageRequest.SerializeToString,
            response_deserializer=ListMessageResponse.FromString,
        )
        self._stats = channel.unary_unary(
            "/apache.rocketmq.v2.Admin/DeleteSubscription",
            request_serializer=GetProxyRuntimeStatsRequest.SerializeToString,
            response_deserializer=GetProxyRuntimeStatsResponse.FromString,
        )

    def query(self, topic: str, **fields: Any) -> Any:
        """A page."""
        answer = self._query(ListMessageRequest(topic=Resource(name=topic), **fields), timeout=60)
        assert answer.status.code == Code.OK, answer.status
        return answer

    def refused(self, _number: int) -> None:
        """A call that is refused at once: what is left is the call itself."""
        assert self._stats(GetProxyRuntimeStatsRequest(), timeout=60).status.code == Code.FORBIDDEN

    def cost(self, ask: Ask, count: int = CALLS) -> float:
        """CPU in µs a call."""
        costs = []
        for run in range(ROUNDS):
            before = cpu_ns(self.process)
            for number in range(count):
                ask(run * count + number)
            costs.append((cpu_ns(self.process) - before) / count / 1000)
        return statistics.median(costs)


def pages(tool: Tool, topic: str, count: int, **fields: Any) -> list[str]:
    """The scroll ids that lead to the first pages."""
    found = [""]
    while len(found) < count and (following := tool.query(topic, scroll_id=found[-1], **fields).scroll_id):
        found.append(following)
    return found


def _page(tool: Tool, topic: str, fields: dict[str, Any], _number: int) -> None:
    tool.query(topic, **fields)


@contextmanager
def serving(store: Path, folder: Path, *options: str) -> Iterator[ServerProcess]:
    """A server with one worker."""
    folder.mkdir()
    port = free_port()
    command = [*rocketlens_command(store, port, folder, 1), *options]
    with ServerProcess(command, port, log=folder / "log", directory=ROOT) as server:
        server.first_answer(0)
        yield server


def children(process: int) -> list[int]:
    """The processes that another one has started."""
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@click.command(help=__doc__)
def main() -> None:
    """Measure, and print a table."""
    parameters = StoreParameters()
    store = make_store(DEFAULT_STORE_DIRECTORY, parameters, find_jars(None))
    plan = StorePlan.load(store)
    warm_kernel_cache(store)
    topic = parameters.queues[0][0]
    print(machine())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        started = time.perf_counter()
        beside = stack.enter_context(serving(store, folder / "with", "--grpc", str(port)))
        plain = stack.enter_context(serving(store, folder / "without"))
        process = children(beside.pid)[-1]
        tool = Tool(port, process)
        print(f"both servers ready after {time.perf_counter() - started:.2f} s")
        spread = [number * 7919 % parameters.count for number in range(ROUNDS * CALLS)]
        rows: list[tuple[str, float, int]] = [
            ("a call that is refused", tool.cost(tool.refused), 0),
            ("by id", tool.cost(lambda at: tool.query(topic, message_id=unique_key(spread[at]))), 1),
            ("by key", tool.cost(lambda at: tool.query(topic, message_key=order_key(spread[at]))), 1),
            ("by a hot key, 32 messages", tool.cost(lambda at: tool.query(topic, message_key=hot_key(at % 64))), 32),
        ]
        hot = {"message_key": hot_key(1), "max_message_nums": 4}
        times = {"max_message_nums": PAGE}
        tags = {"subscription": "Tag3", "max_message_nums": PAGE}
        for name, fields, count, size in (
            ("hot key, pages of 4", hot, 8, 4),
            ("time, pages of 100", times, 300, PAGE),
            ("tag of 7, pages of 100", tags, 100, PAGE),
        ):
            places = pages(tool, topic, count, **fields)
            for place, scroll_id in (("page 1", places[0]), (f"page {len(places)}", places[-1])):
                ask = partial(_page, tool, topic, {**fields, "scroll_id": scroll_id})
                rows.append((f"{name}: {place}", tool.cost(ask, 60), size))
        for name, microseconds, messages in rows:
            each = f"{microseconds / messages:8.1f}" if messages else " " * 8
            print(f"{name:36} {microseconds:9.1f} µs a call {each} a message")
        memory = Path(f"/proc/{process}/status").read_text()
        private = next(line for line in memory.splitlines() if line.startswith("RssAnon"))
        print(f"private memory of the process: {private.split()[1]} kB")
        views = build_requests(plan, "view", VIEWS, 1)
        ratios = []
        for _ in range(ROUNDS):
            spent = []
            for server in (beside, plain):
                worker = children(server.pid)[0]
                before = cpu_ns(worker)
                run_load(server.port, views, connections=4, in_flight=16)
                spent.append((cpu_ns(worker) - before) / VIEWS / 1000)
            ratios.append(spent[0] / spent[1])
        print(
            f"a view through the lane: {spent[0]:.2f} µs with --grpc, {statistics.median(ratios):.3f} of that without"
        )


if __name__ == "__main__":
    main()
