"""From a command to its answer: the table, refusals, errors, what is left to threads, and holes of queues."""

import asyncio
import json
import logging
import re
import shutil
import threading
import time
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest

import rocketlens
from asking import Asker, FakeConnection
from broker.endpoint import Endpoint
from broker.metrics.metrics_meter import Meter
from broker.metrics.metrics_rows import HOLE_MESSAGES, HOLES, SEARCH_LEFT
from broker.security.needs import BODIES
from broker.service import background_work, long_work
from broker.service._refusals import POP_CODES, REASONS, WRITING_CODES
from broker.service.broker_service import BrokerService
from broker.service.dispatcher import Dispatcher, Request, check_families, handled_methods, handles
from broker.service.long_work import PARSED_BODIES, begin_on_loop, parse_body
from broker.service.lookup_pool import LookupPool
from broker.service.request_families import PROCESSORS, build_processors
from broker_harness import DEADLINE_SECONDS, connected, service_of, serving, until
from doctoring import put
from draining import SUBSCRIPTION, pull_of, records_of
from heartbeats import consumer, heartbeat
from oracles import java_hash
from protocol.bodies import HeartbeatData
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response, decode_command, encode_request, ext_fields_of
from protocol.errors import BadCommand
from protocol.frame import FrameDecoder
from protocol.header_fields import I32
from protocol.headers import RequestHeader, ViewMessageRequestHeader
from queue_stores import unit_bytes
from storage.files.waiting import Lookup, Unfinished, Wait, finish
from storage.queue import _shared_pass as shared_pass
from storage.queue import queue_holes as module
from storage.queue._queue_end import find_end
from storage.queue.queue_holes import QueueHoles
from storage.store import _upkeep
from storage.store.message_store import MessageStore
from store_writer import StoreWriter, Written

PEER = FakeConnection(peer_address=Endpoint("127.0.0.1", 40000))


def command_of(code, **fields):
    (frame,) = FrameDecoder().feed(encode_request(code, fields, opaque=7))
    return decode_command(frame)


class Viewer:
    @handles(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader)
    def view(self, header):
        if header.offset == 2:
            raise ZeroDivisionError("a secret of /etc/passwd")
        yield Wait("page")
        return Response(body=b"%d" % header.offset)


def answer(code: int, processors: list[object] | None = None, **fields: str) -> Response:
    response = Dispatcher(processors or [Viewer()]).dispatch(command_of(code, **fields), PEER)
    assert isinstance(response, Response)
    return response


def test_any_other_error_is_logged_with_its_trace_and_answered_without(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        response = answer(RequestCode.VIEW_MESSAGE_BY_ID, offset="2")
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "secret" not in response.remark
    assert "ZeroDivisionError: a secret" in caplog.text


def test_two_handlers_of_one_code_are_refused() -> None:
    class Second:
        @handles(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader)
        def see(self, header: ViewMessageRequestHeader) -> Response:
            return Response()

    with pytest.raises(TypeError, match=r"33 has two handlers: Viewer.view and Second.see"):
        check_families([Viewer, Second])
    with pytest.raises(TypeError, match="two handlers"):
        Dispatcher([Viewer(), Second()])


def unfinished(dispatcher, command):
    step = dispatcher.dispatch(command, PEER)
    assert isinstance(step, Unfinished)
    return step


async def test_more_requests_than_may_wait_are_answered_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.service.dispatcher.WAITING_LIMIT", 1)
    held = threading.Event()
    dispatcher = Dispatcher([Viewer()])
    command = command_of(RequestCode.VIEW_MESSAGE_BY_ID, offset="4")
    first = dispatcher.finish_in_pool(command, PEER, unfinished(dispatcher, command), lambda: held.wait(60) and None)
    refused = await dispatcher.finish_in_pool(command, PEER, unfinished(dispatcher, command))
    held.set()
    assert isinstance(refused, Response)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert await first == Response(body=b"4")
    await asyncio.sleep(0)
    assert await dispatcher.finish_in_pool(command, PEER, unfinished(dispatcher, command)) == Response(body=b"4")
    dispatcher.close()


def test_a_processor_that_follows_the_contributing_guide_answers() -> None:
    guide = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text()
    (block,) = re.findall(r"^```python$(.*?)^```$", guide, re.M | re.S)
    names = {**globals(), "Lookup": Lookup, "I32": I32, "Request": Request, "RequestHeader": RequestHeader}
    exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    command = command_of(RequestCode.QUERY_BROKER_OFFSET, topic="Orders", queueId="3")
    dispatcher = Dispatcher([names["QueryBrokerOffsetProcessor"]()])
    assert unfinished(dispatcher, command).resume() == Response(remark="Orders 3: nothing for 127.0.0.1:40000")
    assert answer(RequestCode.QUERY_BROKER_OFFSET, [names["QueryBrokerOffsetProcessor"]()], topic="Orders").code == 1


def test_a_code_is_refused_in_one_way_or_answered() -> None:
    answered = {code for family in PROCESSORS for code, _, _ in handled_methods(family)}
    assert not WRITING_CODES & REASONS.keys()
    assert not answered & (WRITING_CODES | REASONS.keys())
    assert REASONS.keys() >= POP_CODES
    assert all(code in set(RequestCode) for code in REASONS)


ASSIGNMENT = b'{"topic":"TopicTest","consumerGroup":"G","messageModel":"CLUSTERING","clientId":"c1"}'


LONG: list[tuple[int, dict[str, str], bytes]] = [
    (RequestCode.GET_ALL_TOPIC_CONFIG, {}, b""),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, {}, b""),
    (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}, b""),
    (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, b""),
    (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}, b""),
    (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "TopicTest"}, b""),
    (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG_TAG"}, b""),
    (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "TopicTest", "group": "CG_TAG"}, b""),
    (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}, b""),
    (RequestCode.QUERY_CONSUME_QUEUE, {"topic": "TopicTest", "queueId": "0", "index": "0", "count": "99"}, b""),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}, b""),
    (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"}, b""),
    (RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"}, b""),
    (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "TopicTest"}, b""),
    (RequestCode.GET_ALL_PRODUCER_INFO, {}, b""),
    (RequestCode.QUERY_ASSIGNMENT, {}, ASSIGNMENT),
]


def test_answers_made_of_many_look_ups_or_of_what_many_clients_told_are_made_on_a_thread(g1_store, monkeypatch) -> None:
    asker = Asker(g1_store)
    for name, connection in MEMBERS.items():
        told = heartbeat(name, consumer("G"), consumer(f"H{name}"), producers=("P", f"P{name}"))
        assert asker.ask(RequestCode.HEART_BEAT, body=told, connection=connection).code == 0
        asked = {"consumerGroup": f"H{name}", "topic": "TopicTest", "queueId": "0", "commitOffset": "1"}
        assert asker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, asked, oneway=True).code == 0
    monkeypatch.setattr(time, "time_ns", lambda: 1_900_000_000_000_000_000)  # delays are counted up to it
    for code, fields, body in LONG:
        told = asker.value(code, fields, body)
        with monkeypatch.context() as patch:
            patch.setattr(long_work, "LOOKUPS_ON_LOOP", 3)
            step = asker.step(code, fields, body)
            assert isinstance(step, Unfinished), RequestCode(code)
            assert "look-ups" in str(step.wait)
            assert step.finish() == asker.ask(code, fields, body)
            assert asker.value(code, fields, body) == told


MEMBERS = {f"c{number}": FakeConnection() for number in range(4)}


def test_all_requests_whose_body_is_read_are_held_to_its_limit(g1_store: Path) -> None:
    """Whatever calls `parse_body`, here or to check rights, is found by what it answers to a body that is no JSON."""
    asker = Asker(g1_store)
    codes = Dispatcher(build_processors(asker.service)).codes
    needed = {"topic": "TopicTest", "consumerGroup": "G", "offset": "0", "queueId": "0", "key": "k", "timestamp": "0"}
    read = {code for code in codes if "the body is no" in (asker.ask(code, needed, b"?").remark or "")}
    assert read == set(PARSED_BODIES) == set(BODIES)


def test_what_is_no_plain_json_is_parsed_on_a_thread_and_only_up_to_a_length() -> None:
    plain, odd = b'{"clientID":"c"}', b"{clientID:'c'" + b" " * 8000
    told = begin_on_loop(parse_body(plain, HeartbeatData))
    assert not isinstance(told, Unfinished)
    assert told.client_id == "c"
    step = begin_on_loop(parse_body(odd, HeartbeatData))
    assert isinstance(step, Unfinished)
    assert "no plain JSON" in str(step.wait)
    with pytest.raises(BadCommand, match="no JSON at character"):
        step.finish()
    with pytest.raises(BadCommand, match="and 131073 bytes are more than the 131072"):
        finish(parse_body(b"[" + b" " * 131072, HeartbeatData))


async def test_an_answer_that_no_client_accepts_is_refused_with_its_size(g1_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(g1_store, tmp_path / "store")
    path = store / "config" / "topics.json"
    table = {f"{'t' * 100}{number:04}": {"readQueueNums": 1} for number in range(700)}
    path.write_text(json.dumps({"topicConfigTable": table}))
    service = Asker(store, frame_limit=65536, broker_name="b", cluster="C").service
    async with serving(service) as server, connected(server.addresses[0]) as client:
        answer = await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "more than clients accept" in answer.remark
        assert (await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0


async def test_one_owner_never_has_all_threads() -> None:
    pool, release = LookupPool(3), threading.Event()
    running: list[int] = []

    def block() -> None:
        running.append(1)
        assert release.wait(60)

    blocked = [pool.run("greedy", block) for _ in range(10)]
    await until(lambda: len(running) == 2)
    assert await pool.run("other", lambda: "quick") == "quick"
    assert len(running) == 2
    release.set()
    await asyncio.gather(*blocked)
    pool.close()


async def test_a_closed_pool_gives_up_what_waits() -> None:
    pool, release = LookupPool(1), threading.Event()
    first, second = pool.run("a", lambda: release.wait(60)), pool.run("b", lambda: 1)
    pool.close()
    assert second.cancelled()
    assert pool.run("c", lambda: 1).cancelled()
    release.set()
    assert await first
    await until(lambda: len(pool) == 0)


async def test_every_request_is_answered_by_a_version_and_a_code_of_16_bits(g1_store: Path) -> None:
    """Traps 12, 21 and 22 of remoting-protocol §9."""
    service = Asker(g1_store).service
    codes = {*Dispatcher(build_processors(service)).codes, *WRITING_CODES, *RequestCode, 0, 13, 4711}
    async with serving(service) as server, connected(server.addresses[0]) as client:
        for code, fields in product(sorted(codes), (None, {"topic": "", "queueId": "x", "offset": "", "key": ""})):
            answer = await client.ask(code, fields)
            assert answer.is_response
            assert answer.code == 0 or answer.remark, f"code {code} fails without a word"
            assert (-(2**15) <= answer.code < 2**15, 232 <= answer.version < 2**15) == (True, True), code


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
