"""What RocketMQ's dashboard asks for a page, asked by the official client classes as it does: by the VIP port too."""

from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from benchmarks.server_process import free_port
from interop.jars import SERVER_VERSION
from interop.proxy import RecordingProxy, recording_proxy
from interop.stages import address_text
from interop.stored import Stored, as_java_shows, comparable, stored
from needed_tools import tool
from process import serving_process

pytestmark = pytest.mark.interop

TOPIC = "TopicTest"
ROUTE, CLUSTER, QUERY, SEARCH, PULL = 105, 106, 12, 29, 11
HEART_BEAT, UNREGISTER_CLIENT = 34, 35
OVERHEAD = {HEART_BEAT, UNREGISTER_CLIENT}
"""Heartbeats and leave-takings, which any client sends."""


@dataclass(frozen=True)
class Behind:
    store: Stored
    main: RecordingProxy
    vip: RecordingProxy

    def page(self, client, page, **options):
        for proxy in (self.main, self.vip):
            proxy.forget()
        return client.dashboard(address_text(self.main), page, **options)

    def asked(self) -> tuple[list[int], list[int]]:
        codes = (proxy.request_codes() for proxy in (self.main, self.vip))
        main, vip = ([code for code in each if code not in OVERHEAD] for each in codes)
        return main, vip


@pytest.fixture(scope="module")
def behind(java, tmp_path_factory):
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


def of_topic(store, topic):
    return [record for record in store.records.values() if record.topic == topic]


def places(messages) -> list[tuple[int, int]]:
    return sorted((message["queueId"], message["queueOffset"]) for message in messages)


def test_messages_of_a_topic_and_a_time_are_searched_by_time_and_pulled_queue_by_queue(behind, client) -> None:
    records = of_topic(behind.store, TOPIC)
    times = sorted(record.store_timestamp for record in records)
    begin, end = times[len(times) // 4], times[-1]
    shown = behind.page(client, "messages of a topic", topic=TOPIC, begin=begin, end=end)
    wanted = [record for record in records if begin <= record.store_timestamp <= end]
    assert places(shown) == sorted((record.queue_id, record.queue_offset) for record in wanted)
    main, vip = behind.asked()
    assert set(main) <= {ROUTE, PULL}
    assert vip == [SEARCH] * 8


def test_either_kind_of_id_is_found_without_the_address_in_it(behind, client) -> None:
    offset_id, produced = next(each for each in behind.store.with_offset_ids if each[1].topic == TOPIC)
    record = behind.store.at(offset_id)
    for message_id, is_offset_id in ((offset_id, True), (produced.unique_key, False)):
        (shown,) = behind.page(client, "message by id", topic=TOPIC, id=message_id)
        assert comparable(shown) == as_java_shows(record, is_old_client=False, by_unique_key_query=is_offset_id)
        main, vip = behind.asked()
        assert (set(main), vip) == ({CLUSTER, ROUTE}, [QUERY])


def test_the_pages_of_topics_consumers_and_the_cluster_are_filled(behind, client) -> None:
    topics = behind.page(client, "topics", topic=TOPIC)
    assert TOPIC in topics["topics"]
    assert topics["messages"] == len(of_topic(behind.store, TOPIC))
    assert topics["queues"] == {"broker-a": 4}
    groups = behind.page(client, "consumers", group="CG_TAG")
    assert (groups["behind"], "CG_TAG" in groups["groups"]) == (44, True)
    (figures,) = behind.page(client, "cluster").values()
    assert {"msgPutTotalTodayNow", "msgGetTotalTodayNow", "putTps", "runtime"} <= set(figures["runtime"])
    assert figures["config"] == "broker-a"
