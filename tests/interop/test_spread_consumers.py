"""Members of a group whose connections different workers hold: each message once, and one truth about offsets."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pytest

from blocking_client import BlockingClient, eventually
from broker.endpoint import Endpoint
from interop.conftest import Java
from interop.jars import SERVER_VERSION
from interop.java_client import JavaClient, Subscription
from process import Serving, owner_of, serving_process
from protocol.command import ext_fields_of
from store_writer import StoreWriter

pytestmark = [pytest.mark.interop, pytest.mark.soak]
"""In each run: members at several workers without a JVM, tests/broker/workers/test_several_workers.py."""

TOPIC, GROUP = "SpreadTopic", "CG_spread"
WORKERS = 2
QUEUES = 12
MEMBERS = 4
"""To begin with; more are started until both workers have some, which a few more attain."""
MOST_MEMBERS = QUEUES
GET_MEMBERS, QUERY_OFFSET = 203, 14


class Asking(BlockingClient):
    """A connection of our own."""

    def members(self) -> list[int]:
        """The ports of the members of the group."""
        answer = self.ask(GET_MEMBERS, {"consumerGroup": GROUP})
        connections = json.loads(bytes(answer.body))["connectionSet"] if answer.code == 0 else []
        return [int(each["clientAddr"].rpartition(":")[2]) for each in connections]

    def offsets(self) -> dict[int, int]:
        """The committed offset of each queue, as the worker of this connection tells."""
        found = {}
        for queue_id in range(QUEUES):
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id), "setZeroIfNotFound": "false"}
            answer = self.ask(QUERY_OFFSET, fields)
            if answer.code == 0:
                found[queue_id] = int(ext_fields_of(answer)["offset"])
        return found


@dataclass
class Spread:
    """A server of several workers over a store that grows, and the members of a group."""

    server: Serving
    writer: StoreWriter
    client: JavaClient
    names: list[str] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    """What members that have left had received."""

    @property
    def port(self) -> int:
        return self.server.endpoints[0].port

    def join(self) -> None:
        """One member more."""
        self.names.append(f"spread-{len(self.names)}")
        subscription = Subscription("push", GROUP, TOPIC)
        self.client.consume(f"127.0.0.1:{self.port}", {self.names[-1]: subscription})

    def leave(self) -> None:
        """One member less."""
        name = self.names.pop()
        self.ended += numbers(self.client.end(name)[name].messages)

    def workers_of_members(self) -> Counter[int]:
        """How many members each worker process has."""
        with Asking(Endpoint("127.0.0.1", self.port)) as asking:
            return Counter(owner_of(self.port, port) for port in asking.members())

    def is_shared(self) -> bool:
        """Whether the members hold all queues, each queue one of them, and each member as many as the others."""
        held = [[each for each in self.client.look(name).queues if each[0] == TOPIC] for name in self.names]
        counts = [len(queues) for queues in held]
        every = sorted(each for queues in held for each in queues)
        return every == [(TOPIC, queue_id) for queue_id in range(QUEUES)] and max(counts) - min(counts) <= 1

    def are_back(self) -> bool:
        """Whether all members are known again by connections to processes that live."""
        with suppress(OSError):
            workers = self.workers_of_members()
            return workers.keys() <= {*self.server.workers} and sum(workers.values()) == len(self.names)
        return False

    def offsets_by_worker(self) -> list[dict[int, int]]:
        """The committed offsets as each of the workers tells them."""
        told: dict[int, dict[int, int]] = {}
        with ExitStack() as stack:
            while len(told) < WORKERS:
                asking = stack.enter_context(Asking(Endpoint("127.0.0.1", self.port)))
                offsets = asking.offsets()
                told[owner_of(self.port, asking.socket.getsockname()[1])] = offsets
        return list(told.values())

    def received(self) -> Counter[int]:
        """How often each message was received, by all consumers together."""
        running = (number for name in self.names for number in numbers(self.client.look(name).messages))
        return Counter([*self.ended, *running])

    def add(self, count: int = 120) -> None:
        """Have messages arrive, and all of them received once and committed to all workers.

        The first ones may come again to members that join: nobody has committed them yet.
        """
        for _ in range(count):
            number = len(self.writer.written)
            self.writer.append(TOPIC, b"%d" % number, queue_id=number % QUEUES)
        self.writer.flush()
        total = len(self.writer.written)
        eventually(lambda: len(self.received()) == total, "all messages received")
        ends = {queue_id: len(range(queue_id, total, QUEUES)) for queue_id in range(QUEUES)}
        eventually(lambda: self.offsets_by_worker() == [ends] * WORKERS, "all offsets committed to all workers")
        received = self.received()
        assert {number: times for number, times in received.items() if times > 1 and number >= QUEUES} == {}


def numbers(messages: list[dict[str, object]]) -> list[int]:
    """The numbers of messages in the order of the log: they went to the queues in turn."""
    return [int(str(each["queueOffset"])) * QUEUES + int(str(each["queueId"])) for each in messages]


@pytest.fixture(scope="module")
def spread(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spread]:
    work = tmp_path_factory.mktemp("spread")
    writer = StoreWriter(work / "store")
    for queue_id in range(QUEUES):
        writer.append(TOPIC, b"first", queue_id=queue_id)
    writer.flush()
    options = ("--workers", str(WORKERS), "--state-dir", str(work / "state"))
    with serving_process(writer.root, work, *options) as server:
        running = Spread(server, writer, java(SERVER_VERSION, "JSON"))
        yield running
        while running.names:
            running.leave()
        assert server.stop() == 0
        assert "Traceback" not in server.errors.read_text()


def settle(spread: Spread) -> None:
    """Wait until all members share the queues, as they see it themselves and as worker 0 does."""
    eventually(lambda: spread.are_back() and spread.is_shared(), "all queues shared among all members")


def test_each_message_goes_to_one_member_whichever_workers_they_are_at(spread: Spread) -> None:
    while len(spread.names) < MEMBERS or len(spread.workers_of_members()) < WORKERS:
        assert len(spread.names) < MOST_MEMBERS
        spread.join()
        settle(spread)
    assert spread.workers_of_members().keys() == {*spread.server.workers}
    spread.ended.clear()
    spread.add()


@pytest.mark.parametrize("number", [1, 0])
def test_a_worker_that_dies_costs_no_message_and_no_offset(spread: Spread, number: int) -> None:
    before = spread.offsets_by_worker()
    assert before[0] == before[1]
    os.kill(spread.server.workers[number], signal.SIGKILL)
    settle(spread)
    assert spread.offsets_by_worker() == before
    spread.add()


def test_a_member_that_leaves_leaves_its_queues_to_the_others(spread: Spread) -> None:
    spread.leave()
    settle(spread)
    spread.add()
