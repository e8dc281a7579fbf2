"""Requests that cost thousands of look-ups leave the event loop."""

import asyncio
import json
import shutil
import time
from pathlib import Path

import pytest

from asking import Asker, FakeConnection
from broker.security.needs import BODIES
from broker.service import long_work
from broker.service.dispatcher import Dispatcher
from broker.service.long_work import (
    LOOKUPS_ON_LOOP,
    PARSED_BODIES,
    UNITS_A_TURN,
    Parsing,
    begin_on_loop,
    go_on_on_loop,
    leave_to_a_thread,
    parse_body,
)
from broker.service.request_families import build_processors
from broker_harness import connected, serving
from heartbeats import consumer, heartbeat
from protocol.bodies import HeartbeatData
from protocol.codes import RequestCode, ResponseCode
from protocol.errors import BadCommand
from storage.files.waiting import Lookup, Unfinished, Wait, finish
from store_queries import at_once, wait_of


def test_only_long_work_waits_for_a_thread() -> None:
    at_once(leave_to_a_thread(LOOKUPS_ON_LOOP))
    assert str(wait_of(leave_to_a_thread(LOOKUPS_ON_LOOP + 1))) == "1001 look-ups"


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


def test_answers_made_of_many_look_ups_or_of_what_many_clients_told_are_made_on_a_thread(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def parse(units: int, what: str = "it", *, is_part: bool = False) -> Lookup[str]:
    yield Parsing(what, units, (lambda: None) if is_part else None)
    return what


@pytest.mark.asyncio
async def test_a_turn_of_the_event_loop_parses_so_much_and_the_next_one_again() -> None:
    assert begin_on_loop(parse(UNITS_A_TURN - 1, "first")) == "first"
    step = begin_on_loop(parse(2, "second"))
    assert isinstance(step, Unfinished)
    assert isinstance(step.wait, Parsing)
    assert (str(step.wait), step.wait.units, step.wait.is_part) == ("second", 2, False)
    assert await asyncio.to_thread(step.finish) == "second"
    assert begin_on_loop(parse(1, "third")) == "third"
    await asyncio.sleep(0)
    assert begin_on_loop(parse(UNITS_A_TURN, "next turn")) == "next turn"
    assert isinstance(begin_on_loop(parse(1, "and no more")), Unfinished)
    assert await asyncio.to_thread(finish, parse(UNITS_A_TURN + 1, "elsewhere")) == "elsewhere"


@pytest.mark.asyncio
async def test_a_look_up_goes_on_on_the_loop_after_its_parsing_up_to_the_next_wait() -> None:
    def parse_twice_and_look() -> Lookup[str]:
        yield from parse(UNITS_A_TURN + 1, is_part=True)
        yield from parse(UNITS_A_TURN)
        yield Wait("a page")
        return "found"

    step = begin_on_loop(parse_twice_and_look())
    assert isinstance(step, Unfinished)
    following = go_on_on_loop(step)
    assert isinstance(following, Unfinished)
    assert str(following.wait) == "a page"
    assert following.finish() == "found"


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


@pytest.mark.asyncio
async def test_an_answer_that_no_client_accepts_is_refused_with_its_size(g1_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(g1_store, tmp_path / "store")
    path = store / "config" / "topics.json"
    table = {f"{'t' * 100}{number:04}": {"readQueueNums": 1} for number in range(700)}
    path.write_text(json.dumps({"topicConfigTable": table}))
    service = Asker(store, frame_limit=65536, broker_name="b", cluster="C").service
    async with serving(service) as server, connected(server.addresses[0]) as client:
        answer = await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "more than clients accept" in (answer.remark or "")
        assert (await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
