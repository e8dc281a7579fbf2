"""What calls by gRPC cost: CPU of the port's process a call and a message, beside the broker's port, and page by page.

    python -m benchmarks.grpc_calls                 all of it
    python -m benchmarks.grpc_calls calls           calls and pulls, beside the same questions at the broker's port
    python -m benchmarks.grpc_calls pages           pages of a list from its first to its last, also for each MB
    python -m benchmarks.grpc_calls lane            views by the broker's port of a server with --grpc and without it

Each figure is the median of rounds in which everything takes its turn; one client asks one call after the other. The
MB of a page are those of the log from its first message to the next page's.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import grpc

from benchmarks.java_broker import find_jars
from benchmarks.load import LoadReport, run_load
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import ROOT, warm_kernel_cache
from benchmarks.pull import MESSAGES, pull_requests
from benchmarks.remoting import Peer
from benchmarks.report import machine
from benchmarks.server_process import ServerProcess, cpu_ns, free_port, rocketlens_command
from benchmarks.store_plan import StoreParameters, StorePlan, hot_key, order_key, unique_key
from benchmarks.workload import Requests, build_requests
from broker.grpc.messages.admin_pb2 import (
    DeleteSubscriptionRequest,
    DeleteSubscriptionResponse,
    ListMessageRequest,
    ListMessageResponse,
)
from broker.grpc.messages.definition_pb2 import Code, MessageQueue, Resource
from broker.grpc.messages.service_pb2 import PullMessageRequest, PullMessageResponse
from broker.grpc.query_message import ScrollPlace
from protocol.cursors import decode_cursor

ROUNDS = 7
CALLS = 100
PAGE_CALLS = 8
VIEWS = 60_000
LANE_ROUNDS = 100
PAGE = 100
PARTS = ("calls", "pages", "lane")

Ask = Callable[[int], Any]


class Tool:
    """A client of the port, and of the broker's port beside it; `process` and `worker` serve them."""

    def __init__(self, port: int, process: int, broker: int, worker: int) -> None:
        self.process, self.worker = process, worker
        self.peer = Peer(broker)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        grpc.channel_ready_future(self._channel).result(30)
        self._query = self._method("Admin/QueryMessage", ListMessageRequest, ListMessageResponse)
        self._write = self._method("Admin/DeleteSubscription", DeleteSubscriptionRequest, DeleteSubscriptionResponse)
        self._pull = self._method("MessagingService/PullMessage", PullMessageRequest, PullMessageResponse)

    def _method(self, name: str, request: Any, response: Any) -> Callable[..., Any]:
        make = self._channel.unary_stream if request is PullMessageRequest else self._channel.unary_unary
        path = f"/apache.rocketmq.v2.{name}"
        return make(path, request_serializer=request.SerializeToString, response_deserializer=response.FromString)

    def query(self, topic: str, **fields: Any) -> Any:
        """A page."""
        answer = self._query(ListMessageRequest(topic=Resource(name=topic), **fields), timeout=60)
        assert answer.status.code == Code.OK, answer.status
        return answer

    def refused(self, _number: int) -> None:
        """A call that is refused at once: what is left is the call itself."""
        assert self._write(DeleteSubscriptionRequest(), timeout=60).status.code == Code.FORBIDDEN

    def pull(self, topic: str, number: int, count: int) -> None:
        """A pull from one of many offsets."""
        queue = MessageQueue(topic=Resource(name=topic), id=number % 4)
        asked = PullMessageRequest(
            group=Resource(name="BenchGroup"), message_queue=queue, offset=number, batch_size=count
        )
        answers = list(self._pull(asked, timeout=60, metadata=(("x-mq-client-id", "bench"),)))
        assert len(answers) == count + 2, answers[0]

    def ask_broker(self, requests: Requests, number: int) -> None:
        """A request at the broker's port."""
        ((_, code, body),) = self.peer.call_many([requests.frame(number % len(requests))])
        assert not code, body


def costs(asks: Mapping[str, tuple[int, Ask]], count: int) -> dict[str, float]:
    """CPU in µs a call of each question: of a process, in rounds in which all take turns."""
    spent: dict[str, list[float]] = {name: [] for name in asks}
    for run in range(-1, ROUNDS):
        for name, (process, ask) in asks.items():
            before = cpu_ns(process)
            for number in range(count):
                ask((run + 1) * count + number)
            if run >= 0:
                spent[name].append((cpu_ns(process) - before) / count / 1000)
    return {name: statistics.median(each) for name, each in spent.items()}


def print_calls(tool: Tool, topic: str, plan: StorePlan) -> None:
    """Print what calls cost, and the same questions at the broker's port."""
    spread = [number * 7919 % (plan.parameters.count // 8) for number in range((ROUNDS + 1) * CALLS)]
    of_broker = {
        "id": build_requests(plan, "unique", 500, 1),
        "key": build_requests(plan, "key", 500, 1),
        f"hot key, {MESSAGES} messages": build_requests(plan, "hot", 500, 1),
        f"pull of {MESSAGES}": pull_requests(plan, 500, 1),
    }
    asks: dict[str, tuple[int, Ask]] = {
        "a call that is refused": (tool.process, tool.refused),
        "id": (tool.process, lambda at: tool.query(topic, message_id=unique_key(spread[at]))),
        "key": (tool.process, lambda at: tool.query(topic, message_key=order_key(spread[at]))),
        f"hot key, {MESSAGES} messages": (tool.process, lambda at: tool.query(topic, message_key=hot_key(at % 64))),
        "pull of 1": (tool.process, lambda at: tool.pull(topic, spread[at], 1)),
        f"pull of {MESSAGES}": (tool.process, lambda at: tool.pull(topic, spread[at], MESSAGES)),
    }
    asks |= {
        f"{name}, broker's port": (tool.worker, partial(tool.ask_broker, each)) for name, each in of_broker.items()
    }
    found = costs(asks, CALLS)
    for name in asks:
        if "port" not in name:
            beside = found.get(f"{name}, broker's port")
            text = "" if beside is None else f"{beside:9.1f} µs by the broker's port, {found[name] / beside:5.1f} times"
            print(f"{name:28} {found[name]:9.1f} µs {text}")
    each = (found[f"pull of {MESSAGES}"] - found["pull of 1"]) / (MESSAGES - 1)
    print(f"{'a message of a pull':28} {each:9.1f} µs")


def print_pages(tool: Tool, topic: str, plan: StorePlan) -> None:
    """Print what pages of some lists cost."""
    hot = {"message_key": hot_key(1), "max_message_nums": 4}
    times = {"max_message_nums": PAGE}
    tags = {"subscription": "Tag3", "max_message_nums": PAGE}
    sql = {"subscription": "amount < 40 AND region = 'r1'", "max_message_nums": PAGE}
    asks: dict[str, tuple[int, Ask]] = {}
    shown: dict[str, tuple[int, float]] = {}
    for name, fields, numbers in (
        ("hot key, pages of 4", hot, (1, 8)),
        ("time, pages of 100", times, (1, 150, 300)),
        ("tag of 7, pages of 100", tags, (1, 30, 61, 100)),
        ("SQL92, pages of 100", sql, (1, 30, 60)),
    ):
        places = _places(tool, topic, max(numbers) + 1, fields)
        for number in numbers:
            page = {**fields, "scroll_id": places[number - 1]}
            key = f"{name}: page {number}"
            asks[key] = tool.process, partial(_page, tool, topic, page)
            megabytes = 0.0 if fields is hot else (_place(places[number]) - _place(places[number - 1])) / 1e6
            shown[key] = len(tool.query(topic, **page).messages), megabytes
    for key, microseconds in costs(asks, PAGE_CALLS).items():
        messages, megabytes = shown[key]
        by_message = f"{microseconds / messages:7.1f} µs a message"
        by_megabyte = f", {megabytes:6.3f} MB: {microseconds / 1000 / megabytes:6.1f} ms a MB" if megabytes else ""
        print(f"{key:34} {microseconds / 1000:7.2f} ms {by_message}{by_megabyte}")


def _places(tool: Tool, topic: str, count: int, fields: dict[str, Any]) -> list[str]:
    """The scroll ids that lead to the first pages."""
    found = [""]
    while len(found) < count and (following := tool.query(topic, scroll_id=found[-1], **fields).scroll_id):
        found.append(following)
    return found if len(found) == count else [*found, ""]


def _place(scroll_id: str) -> int:
    """The physical offset where a page begins; 0 for the first."""
    cursor = decode_cursor(scroll_id, ScrollPlace).cursor if scroll_id else None
    return decode_cursor(cursor, int) if cursor else 0


def _page(tool: Tool, topic: str, fields: dict[str, Any], _number: int) -> None:
    tool.query(topic, **fields)


def print_lane(plan: StorePlan, beside: ServerProcess, plain: ServerProcess) -> None:
    """Print how views through the fast lane compare, of a server with `--grpc` and of one without."""
    views = build_requests(plan, "view", VIEWS, 1)
    reports: dict[int, list[LoadReport]] = {beside.pid: [], plain.pid: []}
    for number in range(-2, LANE_ROUNDS):
        for server in (beside, plain) if number % 2 else (plain, beside):
            report = run_load(server.port, views, connections=4, in_flight=16, pid=children(server.pid)[0])
            assert not report.errors, report
            if number >= 0:
                reports[server.pid].append(report)
    with_port, without = reports.values()
    pairs = list(zip(with_port, without, strict=True))
    rates = [one.requests_per_second / other.requests_per_second for one, other in pairs]
    spent = [(one.server_cpu_us or 0) / (other.server_cpu_us or 1) for one, other in pairs]
    for name, ratios in (("views a second", rates), ("CPU of the worker a view", spent)):
        first, middle, last = statistics.quantiles(ratios, n=4)
        error = (last - first) / len(ratios) ** 0.5 * 0.93  # of the median, where what is measured varies normally
        print(f"{name} with --grpc: {middle:.3f} ± {error:.3f} of without (quartiles {first:.3f} and {last:.3f})")
    rate = statistics.median(each.requests_per_second for each in without)
    cpu = statistics.median(each.server_cpu_us or 0 for each in without)
    print(f"without: {rate:,.0f} views a second, {cpu:.2f} µs each")


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
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
def main(parts: Sequence[str]) -> None:
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
        beside = stack.enter_context(serving(store, folder / "with", "--grpc", str(port)))
        worker, *_, process = children(beside.pid)
        tool = Tool(port, process, beside.port, worker)
        if "calls" in parts or not parts:
            print_calls(tool, topic, plan)
        if "pages" in parts or not parts:
            print_pages(tool, topic, plan)
        if "lane" in parts or not parts:
            print_lane(plan, beside, stack.enter_context(serving(store, folder / "without")))
        memory = Path(f"/proc/{process}/status").read_text()
        private = next(line for line in memory.splitlines() if line.startswith("RssAnon"))
        print(f"private memory of the process: {private.split()[1]} kB")


if __name__ == "__main__":
    main()
