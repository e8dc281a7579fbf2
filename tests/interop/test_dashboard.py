"""What RocketMQ's dashboard asks for a page, asked by the official client classes as it does: by the VIP port too."""

import base64
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.server_process import free_port
from golden.record.records import Record
from golden_store import G1
from interop.conftest import Java
from interop.jars import SERVER_VERSION
from interop.java_client import JavaClient, JavaError, Subscription
from interop.proxy import RecordingProxy, recording_proxy
from interop.stages import address_text, wait_until
from interop.stored import Stored, as_java_shows, comparable, stored
from needed_tools import tool
from process import serving_process
from store_writer import StoreWriter

pytestmark = pytest.mark.interop

TOPIC = "TopicTest"
ROUTE, CLUSTER, QUERY, SEARCH, PULL = 105, 106, 12, 29, 11
CONNECTIONS, CONSUMED_BY = 203, 300
HEART_BEAT, UNREGISTER_CLIENT = 34, 35
OVERHEAD = {HEART_BEAT, UNREGISTER_CLIENT}
"""Heartbeats and leave-takings, which any client sends."""


@dataclass(frozen=True)
class Behind:
    """A server behind proxies that tell what came by its port and by the one two lower."""

    store: Stored
    main: RecordingProxy
    vip: RecordingProxy

    def page(self, client: JavaClient, page: str, **options: Any) -> Any:
        """What a page shows; then `asked` is what it asked."""
        for proxy in (self.main, self.vip):
            proxy.forget()
        return client.dashboard(address_text(self.main), page, **options)

    def asked(self) -> tuple[list[int], list[int]]:
        """The codes that came by the main port and by the lower one, each in order."""
        codes = (proxy.request_codes() for proxy in (self.main, self.vip))
        main, vip = ([code for code in each if code not in OVERHEAD] for each in codes)
        return main, vip


@pytest.fixture(scope="module")
def behind(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    tool("java")
    work, store = tmp_path_factory.mktemp("dashboard"), stored("g1", tmp_path_factory.mktemp("g1"))
    with ExitStack() as stack:
        port = free_port((-2,))
        main = stack.enter_context(recording_proxy(None, ("127.0.0.1", port)))
        vip = stack.enter_context(recording_proxy(None, ("127.0.0.1", port - 2)))
        options = ("--vip", "--advertise", address_text(main), "--state-dir", str(work / "state"))
        server = stack.enter_context(serving_process(store.root, work, *options))
        main.target, vip.target = server.endpoints
        yield Behind(store, main, vip)
        java(SERVER_VERSION, "JSON").dashboard(address_text(main), "close")
        assert server.stop() == 0


@pytest.fixture
def client(java: Java) -> JavaClient:
    return java(SERVER_VERSION, "JSON")


def of_topic(store: Stored, topic: str) -> list[Record]:
    return [record for record in store.records.values() if record.topic == topic]


def places(messages: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((message["queueId"], message["queueOffset"]) for message in messages)


def test_messages_of_a_topic_and_a_time_are_searched_by_time_and_pulled_queue_by_queue(
    behind: Behind, client: JavaClient
) -> None:
    records = of_topic(behind.store, TOPIC)
    times = sorted(record.store_timestamp for record in records)
    begin, end = times[len(times) // 4], times[-1]
    shown = behind.page(client, "messages of a topic", topic=TOPIC, begin=begin, end=end)
    wanted = [record for record in records if begin <= record.store_timestamp <= end]
    assert places(shown) == sorted((record.queue_id, record.queue_offset) for record in wanted)
    main, vip = behind.asked()
    assert set(main) <= {ROUTE, PULL}
    assert vip == [SEARCH] * 8


def test_the_dead_letters_of_a_group_are_shown_likewise(client: JavaClient, tmp_path: Path) -> None:
    store = stored("g2-hosts", tmp_path)
    topic = next(each.topic for each in store.records.values() if each.topic.startswith("%DLQ%"))
    with serving_process(store.root, tmp_path, "--vip", "--state-dir", str(tmp_path / "state")) as server:
        name_server = str(server.endpoints[0])
        options = {"topic": topic, "begin": 0, "end": int(time.time() * 1000)}
        shown = client.dashboard(name_server, "messages of a topic", **options)
        assert places(shown) == sorted((each.queue_id, each.queue_offset) for each in of_topic(store, topic))
        for message in shown:
            found = client.dashboard(name_server, "message by id", topic=topic, id=message["messageId"])
            assert [each["offsetMessageId"] for each in found] == [message["offsetMessageId"]]
        client.dashboard(name_server, "close")


def test_messages_with_a_key_are_queried_at_each_broker_of_the_route(behind: Behind, client: JavaClient) -> None:
    shown = behind.page(client, "message by key", topic=TOPIC, key="hotkey")
    wanted = [record for record in of_topic(behind.store, TOPIC) if record.properties.get("KEYS") == "hotkey"]
    newest = sorted(wanted, key=lambda record: record.physical_offset)[-64:]
    assert places(shown) == sorted((record.queue_id, record.queue_offset) for record in newest)
    main, vip = behind.asked()
    assert (set(main), vip) == ({ROUTE}, [QUERY])


def test_the_trace_of_a_message_is_queried_by_its_id_in_the_trace_topic(client: JavaClient, tmp_path: Path) -> None:
    vectors = [line.split("\t") for line in (G1.parent / "trace-vectors.tsv").read_text("utf-8").splitlines()]
    told = [
        (keys, bytes.fromhex(body)) for kind, _, _, keys, body in vectors if kind in ("Pub", "SubBefore", "SubAfter")
    ]
    writer = StoreWriter(tmp_path / "traced")
    for keys, body in told:
        writer.append("RMQ_SYS_TRACE_TOPIC", body, keys=keys)
    writer.append("RMQ_SYS_TRACE_TOPIC", b"of another message", keys="another k1")
    writer.close()
    with serving_process(writer.root, tmp_path, "--vip", "--state-dir", str(tmp_path / "state")) as server:
        name_server, (message_id, _, _) = str(server.endpoints[0]), told[0][0].split(" ")
        shown = client.dashboard(name_server, "message by key", topic="RMQ_SYS_TRACE_TOPIC", key=message_id)
        assert sorted(base64.b64decode(each["body"]) for each in shown) == sorted(body for _, body in told)
        client.dashboard(name_server, "close")


def test_either_kind_of_id_is_found_without_the_address_in_it(behind: Behind, client: JavaClient) -> None:
    offset_id, produced = next(each for each in behind.store.with_offset_ids if each[1].topic == TOPIC)
    record = behind.store.at(offset_id)
    for message_id, is_offset_id in ((offset_id, True), (produced.unique_key, False)):
        (shown,) = behind.page(client, "message by id", topic=TOPIC, id=message_id)
        assert comparable(shown) == as_java_shows(record, is_old_client=False, by_unique_key_query=is_offset_id)
        main, vip = behind.asked()
        assert (set(main), vip) == ({CLUSTER, ROUTE}, [QUERY])


def test_an_id_that_is_nowhere_is_not_found_and_nothing_hangs(behind: Behind, client: JavaClient) -> None:
    with pytest.raises(JavaError, match="CODE: 208"):
        behind.page(client, "message by id", topic=TOPIC, id="FD00000000000000000000000000000270000000000000000000AAAA")


def test_a_messages_detail_says_who_has_consumed_it(behind: Behind, client: JavaClient) -> None:
    key = next(each.unique_key for each in behind.store.produced if each.topic == TOPIC)
    tracks = behind.page(client, "message detail", topic=TOPIC, id=key)
    assert {"CG_TAG", "CG_FAIL"} & set(tracks)
    assert set(tracks.values()) <= {"NOT_ONLINE", "CONSUMED", "NOT_CONSUME_YET", "CONSUMED_BUT_FILTERED"}
    main, vip = behind.asked()
    assert {CONSUMED_BY, CONNECTIONS} <= {*main, *vip}


def test_the_pages_of_topics_consumers_and_the_cluster_are_filled(behind: Behind, client: JavaClient) -> None:
    topics = behind.page(client, "topics", topic=TOPIC)
    assert TOPIC in topics["topics"]
    assert topics["messages"] == len(of_topic(behind.store, TOPIC))
    assert topics["queues"] == {"broker-a": 4}
    groups = behind.page(client, "consumers", group="CG_TAG")
    assert (groups["behind"], "CG_TAG" in groups["groups"]) == (44, True)
    (figures,) = behind.page(client, "cluster").values()
    assert {"msgPutTotalTodayNow", "msgGetTotalTodayNow", "putTps", "runtime"} <= set(figures["runtime"])
    assert figures["config"] == "broker-a"


def test_a_group_that_consumes_here_alone_is_in_the_list_of_consumers(behind: Behind, client: JavaClient) -> None:
    assert "CG_HERE" not in behind.page(client, "consumers", group="CG_TAG")["groups"]
    client.consume(address_text(behind.main), {"here": Subscription("push", "CG_HERE", TOPIC, "TagA")})
    try:
        wait_until(lambda: (TOPIC, 3) in client.look("here").queues, "the queues are given to the consumer")
        assert "CG_HERE" in behind.page(client, "consumers", group="CG_TAG")["groups"]
        topics = behind.page(client, "topics", topic=TOPIC)
        assert "%RETRY%CG_HERE" in topics["topics"]
        assert "CG_HERE" in topics["groups"]
    finally:
        client.end("here")
