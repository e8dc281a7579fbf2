"""Holes of queues through the server: busy while the log is searched, never a later message, then all of them."""

import asyncio
import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import rocketlens
from broker.metrics.metrics_meter import Meter
from broker.metrics.metrics_rows import HOLE_MESSAGES, HOLES, SEARCH_LEFT
from broker.service import background_work
from broker.service.broker_service import BrokerService
from broker_harness import DEADLINE_SECONDS, connected, service_of, serving, until
from doctoring import put
from draining import SUBSCRIPTION, pull_of, records_of
from oracles import java_hash
from protocol.codes import RequestCode
from protocol.command import ext_fields_of
from queue_stores import unit_bytes
from storage.queue import _shared_pass as shared_pass
from storage.queue import queue_holes as module
from storage.queue._queue_end import find_end
from storage.queue.queue_holes import QueueHoles
from storage.store import _upkeep
from storage.store.message_store import MessageStore
from store_writer import StoreWriter, Written

MESSAGES, FIRST, COUNT = 600, 150, 205
SUSPEND = 2
FOUND, BUSY, NOT_FOUND, RETRY, MOVED = 0, 2, 19, 20, 21
QUEUE_FILE = Path("consumequeue/T/0") / f"{0:020d}"
SQL = "number > 100 AND TAGS = 'A'"


@dataclass
class Drained:
    places: list[int] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    busy: int = 0
    offset: int = 0


def take(drained, answer) -> bool:
    assert answer.code in (FOUND, NOT_FOUND, RETRY, MOVED), answer.remark
    following = int(ext_fields_of(answer)["nextBeginOffset"])
    drained.remarks.append(answer.remark or "")
    drained.places += [record.physical_offset for record in records_of(bytes(answer.body))]
    is_end = answer.code == NOT_FOUND and following == drained.offset
    assert is_end or following != drained.offset, f"nobody gets past queue offset {following}"
    drained.offset = following
    return is_end


@dataclass
class Served:
    service: BrokerService
    writer: StoreWriter
    written: list[Written]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """The hole is of 205 units, from 150 on; four of its messages are nowhere."""
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 14, queue_file_size=20_000)
    named = ({"tags": "AB"[number % 2], "properties": {"number": str(number)}} for number in range(MESSAGES))
    written = [writer.append("T", b"", queue_id=0, **each) for each in named]
    writer.flush()
    put(writer.root / QUEUE_FILE, 20 * FIRST, bytes(20 * COUNT))
    for number in (160, 161, 200, 201):
        writer.overwrite(written[number].physical_offset, bytes(written[number].size))
    service = service_of(MessageStore.open(tmp_path / "store"), meter=Meter())
    return Served(service, writer, [each for number, each in enumerate(written) if number not in (160, 161, 200, 201)])


class Gate:
    """Holds up every piece of a search that was handed on until it is opened; counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.met = threading.Event(), threading.Event()
        self.pieces = 0
        step = QueueHoles.step

        def wait(holes: QueueHoles) -> None:
            self.met.set()
            assert self.opened.wait(60)
            self.pieces += 1
            step(holes)

        monkeypatch.setattr(QueueHoles, "step", wait)
        # So that a hole is never done before it is handed on, and takes several pieces.
        monkeypatch.setattr(module, "SEARCHED_AT_ONCE", 1)
        monkeypatch.setattr(shared_pass, "PIECE", 5000)


@pytest.fixture
def gate(monkeypatch):
    gate = Gate(monkeypatch)
    yield gate
    gate.opened.set()


async def drained(client, gate=None, subscription="*", kind="TAG") -> Drained:
    """Drain the queue as a Java client does, which waits a moment when the server answers that it is busy."""
    found = Drained()
    for _ in range(MESSAGES * 20):
        pull = pull_of("T", 0, found.offset, subscription=subscription, expressionType=kind)
        answer = await client.ask(RequestCode.PULL_MESSAGE, pull)
        if answer.code == BUSY:
            found.busy += 1
            assert found.offset == FIRST
            if gate is not None and found.busy == 3:
                gate.opened.set()
            await asyncio.sleep(0)
        elif take(found, answer):
            return found
    raise AssertionError("no end")


async def test_until_the_pass_ends_pulls_bring_what_lies_before_and_then_only_busy(served: Served, gate: Gate) -> None:
    async with serving(served.service) as server, connected(server.addresses[0]) as client:
        found = Drained()
        while found.offset < FIRST:
            answer = await client.ask(RequestCode.PULL_MESSAGE, pull_of("T", 0, found.offset))
            assert answer.code == FOUND
            take(found, answer)
        assert found.offset == FIRST
        pulls = [(RequestCode.PULL_MESSAGE, *each) for each in (("*", "TAG"), (SQL, "SQL92"), ("none", "TAG"))]
        for code, subscription, kind in (*pulls, (RequestCode.LITE_PULL_MESSAGE, "B", "TAG")):
            for offset in (FIRST, FIRST + 1, FIRST + 100, FIRST + COUNT - 1):
                answer = await client.ask(code, pull_of("T", 0, offset, subscription=subscription, expressionType=kind))
                assert (answer.code, answer.body) == (BUSY, b"")
                assert "queue offsets 150 to 354 of T, queue 0" in answer.remark
        assert (await client.ask(RequestCode.PULL_MESSAGE, pull_of("T", 0, FIRST + COUNT))).code == FOUND
        assert served.service.store.queue_holes.searching == 1
        server.publish()
        assert served.service.meter.row[HOLES] == 1
        (sentence,), left = served.service.store.queue_searches()
        assert "queue offsets 150 to 354 of T, queue 0" in sentence
        assert served.service.meter.row[SEARCH_LEFT] == left > 0
        gate.opened.set()
        await until(lambda: not served.service.store.queue_holes.searching)
        assert gate.pieces > 3
        assert served.service.store.queue_searches() == ([], 0)
        rest = await drained(client)
        assert rest.places == [written.physical_offset for written in served.written]


async def test_two_clients_share_one_pass_and_hear_what_is_lost(served, gate, caplog) -> None:
    caplog.set_level(logging.WARNING, "broker.service.background_work")
    async with (
        serving(served.service) as server,
        connected(server.addresses[0]) as one,
        connected(server.addresses[0]) as other,
    ):
        first, second = await asyncio.gather(drained(one, gate), drained(other, None, SQL, "SQL92"))
    everything = [written.physical_offset for written in served.written]
    assert first.places == everything
    chosen = [each.physical_offset for each in served.written if each.queue_offset > 100 and not each.queue_offset % 2]
    assert second.places == chosen
    assert (first.busy >= 3, second.busy >= 1) == (True, True)
    for found in (first, second):
        remarks = [remark.partition(": ")[2] for remark in found.remarks if "lost" in remark]
        assert sum(int(remark.split()[0]) for remark in remarks) == 4
    told = [record.getMessage() for record in caplog.records if record.name == "broker.service.background_work"]
    assert len(told) == 1
    assert "queue offsets 150 to 354 of T, queue 0" in told[0]
    assert "201 of these messages were found and 4 are lost" in told[0]
    assert list(served.service.meter.row[HOLE_MESSAGES : HOLE_MESSAGES + 2]) == [201, 4]


async def test_a_search_that_fails_once_is_made_again(served, gate, monkeypatch, caplog) -> None:
    monkeypatch.setattr(background_work, "FAILED_SECONDS", 0.01)
    monkeypatch.setattr(_upkeep, "FAILED_SECONDS", 0.01)
    step, failures = QueueHoles.step, [MemoryError("no room for a piece of the log")]

    def fail_once(holes: QueueHoles) -> None:
        if failures:
            raise failures.pop()
        step(holes)

    monkeypatch.setattr(QueueHoles, "step", fail_once)
    async with serving(served.service) as server, connected(server.addresses[0]) as client:
        found = await drained(client, gate)
    assert found.places == [written.physical_offset for written in served.written]
    assert len([record for record in caplog.records if "next try in" in record.getMessage()]) == 1


async def test_a_server_stops_in_the_middle_of_a_search(served: Served, gate: Gate) -> None:
    async with serving(served.service) as server, connected(server.addresses[0]) as client:
        assert (await client.ask(RequestCode.PULL_MESSAGE, pull_of("T", 0, FIRST))).code == BUSY
        await until(gate.met.is_set)
        await server.stop()
        gate.opened.set()
    await until(lambda: not any(each.name == "scan" for each in threading.enumerate()))
    assert gate.pieces == 1
    assert served.service.store.queue_holes.searching == 1


async def test_a_held_pull_that_meets_a_hole_is_answered_busy(served: Served, gate: Gate) -> None:
    async with serving(served.service) as server, connected(server.addresses[0]) as client:
        pull = pull_of("T", 0, MESSAGES, sysFlag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=15000)
        client.send(RequestCode.PULL_MESSAGE, pull)
        await until(lambda: len(served.service.polls) == 1)
        more = [served.writer.append("T", b"more", tags="A", queue=False) for _ in range(4)]
        units = [unit_bytes(written.physical_offset, written.size, java_hash("A")) for written in more]
        put(served.writer.root / QUEUE_FILE, 20 * MESSAGES, b"\x7f" * 40 + units[2] + units[3])
        assert (await client.answer()).code == BUSY
        gate.opened.set()
        await until(lambda: not served.service.store.queue_holes.searching)
        found = Drained(offset=MESSAGES)
        # A look at the queue while units were being written may end between them; the next one adds the rest.
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(found.places) < len(more):
                take(found, await client.ask(RequestCode.PULL_MESSAGE, pull_of("T", 0, found.offset)))
        assert found.places == [written.physical_offset for written in more]


DAMAGED = {"topic": "T", "queueId": "0"}
TIME_SEARCH = (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**DAMAGED, "timestamp": "1"})
OTHERS = (
    (RequestCode.GET_MAX_OFFSET, {"topic": "Other", "queueId": "0"}),
    (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}),
)


async def test_while_its_end_is_searched_a_maximum_is_busy_and_others_are_answered(tmp_path, monkeypatch, gate) -> None:
    writer = StoreWriter(tmp_path / "store", queue_file_size=20_000)
    for number in range(60):
        writer.append(("T", "Other")[number % 2], b"body")
    writer.flush()
    # The last unit is one that no broker writes, and the one before it leads elsewhere.
    put(writer.root / QUEUE_FILE, 20 * 28, bytes(7) + b"\x01" + b"\x7f" * 4 + b"\xff" * 28)
    measured: list[int] = []

    def find(units, floor, written):
        measured.append(written)
        return find_end(units, floor, written)

    monkeypatch.setattr("storage.queue.consume_queue.find_end", find)
    service = service_of(MessageStore.open(writer.root), meter=Meter())
    async with serving(service) as server, connected(server.addresses[0]) as client:
        for _ in range(3):
            answer = await client.ask(RequestCode.GET_MAX_OFFSET, DAMAGED)
            assert answer.code == BUSY
            assert "is full or lost, or its last units are damaged: the log is being searched" in answer.remark
            assert "% of which is done; ask again in a moment" in answer.remark
            for code, fields in OTHERS:
                assert (await client.ask(code, fields)).code == 0
        at, known = 0, len(measured)
        while at < 28:  # what lies before the end that is searched is read meanwhile
            answer = await client.ask(RequestCode.PULL_MESSAGE, pull_of("T", 0, at, maxMsgNums=2))
            assert [each.queue_offset for each in records_of(bytes(answer.body))][:1] == [at]
            at = int(ext_fields_of(answer)["nextBeginOffset"])
            assert int(ext_fields_of(answer)["maxOffset"]) > at  # there may be more
        assert len(measured) <= known + 2  # of 14 pulls: for a new snapshot, not for each pull
        async with rocketlens.connect_async(str(server.addresses[0])) as remote:
            with pytest.raises(rocketlens.ResponseError, match="the log is being searched"):
                [each async for each in remote.search(topic="T", contains="body")]  # not fewer messages
        for code, fields in ((RequestCode.PULL_MESSAGE, pull_of("T", 0, at)), TIME_SEARCH):
            assert (await client.ask(code, fields)).code == BUSY
        gate.opened.set()
        await until(lambda: not service.store.queue_holes.searching)
        assert ext_fields_of(await client.ask(RequestCode.GET_MAX_OFFSET, DAMAGED))["offset"] == "30"
