"""From a command to its answer: the table, the refusals, the errors, and what is left to threads."""

import asyncio
import json
import logging
import re
import shutil
import threading
import time
from itertools import product
from pathlib import Path

import pytest

from asking import Asker, FakeConnection
from broker.endpoint import Endpoint
from broker.security.needs import BODIES
from broker.service import long_work
from broker.service._refusals import POP_CODES, REASONS, WRITING_CODES
from broker.service.dispatcher import Dispatcher, Request, check_families, handled_methods, handles
from broker.service.long_work import PARSED_BODIES, begin_on_loop, parse_body
from broker.service.lookup_pool import LookupPool
from broker.service.request_families import PROCESSORS, build_processors
from broker_harness import connected, serving, until
from heartbeats import consumer, heartbeat
from protocol.bodies import HeartbeatData
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response, decode_command, encode_request
from protocol.errors import BadCommand
from protocol.frame import FrameDecoder
from protocol.header_fields import I32
from protocol.headers import RequestHeader, ViewMessageRequestHeader
from storage.files.waiting import Lookup, Unfinished, Wait, finish

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
