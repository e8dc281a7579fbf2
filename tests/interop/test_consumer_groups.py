"""Members of a group share its queues, also of one that dies; two stores are two brokers; what the dashboard asks."""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from benchmarks.server_process import free_port
from blocking_client import eventually
from interop.flows import ends, place
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.java_client import Subscription
from interop.other_clients import other_consumers
from interop.proxy import RecordingProxy, recording_proxy
from interop.stages import GET_CONSUMER_LIST_BY_GROUP, address_text, committed
from interop.stored import Stored, as_java_shows, comparable, stored
from needed_tools import tool
from process import rocketlens_serving, serving_process
from protocol.message_id import HostAddress, encode_message_id
from store_writer import StoreWriter, Written

pytestmark = pytest.mark.interop

TOPIC = "TopicTest"
SOME = 20
"""Messages that a consumer takes before the test goes on."""
CACHED = 2
"""Messages of a queue that it may have pulled beyond those, once before and once while it looks how many it has."""
RESTART_SECONDS = 25
"""Less than the 30 s that a client waits for the answer to a pull."""


@pytest.fixture(scope="module")
def places(store) -> list[tuple[int, int]]:
    return sorted(place(record) for record in store.records.values() if record.topic == TOPIC)


def queues_of(client, name) -> set[int]:
    return {queue_id for topic, queue_id in client.look(name).queues if topic == TOPIC}


def has_taken(client, name, count) -> bool:
    return len(client.look(name).messages) >= count


@pytest.mark.parametrize(
    "client_rebalance", [pytest.param(True, marks=pytest.mark.soak), False], ids=["by themselves", "as the server says"]
)
def test_two_members_share_the_queues_and_one_takes_over_what_the_other_leaves(
    client_rebalance, stage, java, places
) -> None:
    """The one that leaves has decided on none of its messages."""
    leaves = java(OLD_CLIENT_VERSION if client_rebalance else SERVER_VERSION, "JSON")
    stays = java(SERVER_VERSION, "JSON")
    queues, group = {queue_id for queue_id, _ in places}, "CG_shared" if client_rebalance else "CG_assigned"
    first = Subscription("push", group, TOPIC, limit=0, holds=True, client_rebalance=client_rebalance)
    leaves.consume(stage.name_server, {"leaves": first})
    eventually(lambda: queues_of(leaves, "leaves") == queues, "one member holding all queues")
    second = Subscription("push", group, TOPIC, client_rebalance=client_rebalance)
    stays.consume(stage.name_server, {"stays": second})

    def is_shared() -> bool:
        first, second = queues_of(stays, "stays"), queues_of(leaves, "leaves")
        return len(first) == len(second) == len(queues) // 2 and first | second == queues

    eventually(is_shared, "each member holding half of the queues")
    held = queues_of(stays, "stays")
    share = [place for place in places if place[0] in held]
    eventually(partial(has_taken, stays, "stays", len(share)), "one member at the end of its queues")
    assert sorted(stays.look("stays").places) == share

    assert leaves.end("leaves")["leaves"].messages == []
    eventually(lambda: queues_of(stays, "stays") == queues, "all queues handed over")
    eventually(partial(has_taken, stays, "stays", len(places)), "the rest taken over")
    assert sorted(stays.end("stays")["stays"].places) == places
    assert bool(stage.requests(group, GET_CONSUMER_LIST_BY_GROUP)) is client_rebalance


def test_a_member_that_dies_without_a_word_loses_its_queues_and_no_message(stage, java, places, tmp_path) -> None:
    client, group, queues = java(SERVER_VERSION, "JSON"), "CG_mourned", {queue_id for queue_id, _ in places}
    client.consume(stage.name_server, {"mourns": Subscription("push", group, TOPIC, limit=0, holds=True)})
    eventually(lambda: queues_of(client, "mourns") == queues, "one member holding all queues")
    with other_consumers("go", stage.name_server, TOPIC, {group: ("TAG", "*")}, tmp_path) as dies:
        eventually(lambda: bool(dies.messages(group)), "a message taken by the Go client")
        eventually(lambda: len(queues_of(client, "mourns")) == len(queues) // 2, "half of the queues left to it")
        dies.kill()
        taken = {(message["queueId"], message["queueOffset"]) for message in dies.messages(group)}
    eventually(lambda: queues_of(client, "mourns") == queues, "the queues of the dead member taken over")
    client.limit("mourns", 2**62)
    eventually(lambda: {*client.look("mourns").places} | taken == {*places}, "all messages taken by one or the other")
    client.end("mourns")


def test_a_running_consumer_goes_on_where_it_was_when_the_server_starts_anew(store, java, places, tmp_path) -> None:
    """It has few of the messages when the first server goes, and has to pull the others from the second."""
    client, group, port = java(OLD_CLIENT_VERSION, "JSON"), "CG_running", free_port()
    with rocketlens_serving(store.root, tmp_path, port=port):
        subscription = Subscription("orderly", group, TOPIC, limit=SOME, cached=CACHED)
        client.consume(f"127.0.0.1:{port}", {"running": subscription})
        eventually(partial(has_taken, client, "running", SOME), "some messages taken")
    ended = ends(store, TOPIC)
    assert SOME + 2 * CACHED * len(ended) < len(places)
    with rocketlens_serving(store.root, tmp_path, port=port) as server:
        client.limit("running", 2**62)
        eventually(partial(has_taken, client, "running", len(places)), "all messages taken", RESTART_SECONDS)
        assert sorted(client.end("running")["running"].places) == places
        assert {queue_id: committed(server, group, TOPIC, queue_id) for queue_id in ended} == ended


IN_BOTH = "hotkey"


@dataclass(frozen=True)
class Cluster:
    first: Stored
    written: list[Written]
    ports: tuple[int, int]

    @property
    def name_servers(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.ports]

    def messages(self) -> list[tuple[int, int]]:
        known = [record for record in self.first.records.values() if record.topic == TOPIC]
        return sorted((each.physical_offset, each.store_timestamp) for each in (*known, *self.written))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    work = tmp_path_factory.mktemp("several")
    writer = StoreWriter(work / "second")
    keys = {7: IN_BOTH}
    written = [writer.append(TOPIC, b"second %d" % n, queue_id=n % 4, keys=keys.get(n)) for n in range(40)]
    writer.append("OnlyThere", b"alone")
    writer.close()
    first = stored("g1", work / "g1")
    names = ("--broker-name", "broker-a", "--broker-name", "broker-b")
    state = ("--state-dir", str(work / "state"), "--workers", "2")
    with serving_process(first.root, work, str(writer.root), *names, *state) as server:
        ports = [addresses[0].port for _, addresses in server.places]
        yield Cluster(first, written, (ports[0], ports[1]))
        assert server.stop() == 0


def test_the_cluster_list_has_both_brokers_with_their_ports(cluster, client) -> None:
    for name_server in cluster.name_servers:
        printed = client.mqadmin("clusterList", "-n", name_server)
        rows = [line.split()[:4] for line in printed.splitlines() if line.startswith("DefaultCluster")]
        pairs = zip(("broker-a", "broker-b"), cluster.name_servers, strict=True)
        assert rows == [["DefaultCluster", name, "0", address] for name, address in pairs]


def test_a_key_is_looked_for_in_all_stores_that_have_the_topic(cluster, client) -> None:
    printed = client.mqadmin("queryMsgByKey", "-n", cluster.name_servers[0], "-t", TOPIC, "-k", IN_BOTH)
    rows = re.findall(r"^[0-9A-F]{32}\S* +(\d+) +(\d+) ", printed, re.M)
    offsets = sorted((int(queue), int(offset)) for queue, offset in rows)
    records = [record for record in cluster.first.records.values() if record.topic == TOPIC]
    hot = [record for record in records if IN_BOTH in record.properties.get("KEYS", "").split(" ")]
    known = {(record.queue_id, record.queue_offset) for record in hot}
    assert offsets == sorted([*known, (7 % 4, cluster.written[7].queue_offset)])


def test_an_offset_id_is_looked_up_in_the_store_whose_port_it_names(cluster, client) -> None:
    """Both stores have a record there, each another one."""
    first = cluster.first.records[0]
    for port, topic, body in zip(cluster.ports, (first.topic, TOPIC), (first.body, b"second 0"), strict=True):
        message_id = encode_message_id(HostAddress("127.0.0.1", port), 0)
        printed = client.mqadmin("queryMsgById", "-n", cluster.name_servers[0], "-i", message_id, "-t", topic)
        path = re.search(r"Message Body Path: +(\S+)", printed)
        assert path, printed
        assert Path(path[1]).read_bytes() == body


def test_a_consumer_reads_a_topic_that_lies_in_two_stores_completely(cluster, client) -> None:
    wanted = cluster.messages()
    client.consume(cluster.name_servers[1], {"both": Subscription("push", "CG_both", TOPIC)})

    def has_taken(count: int) -> bool:
        return len(client.look("both").messages) >= count

    eventually(partial(has_taken, len(wanted)), "all messages of both stores")
    consumed = client.end("both")["both"]
    assert sorted((message["physicalOffset"], message["storeTimestamp"]) for message in consumed.messages) == wanted


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


def places_of(messages) -> list[tuple[int, int]]:
    return sorted((message["queueId"], message["queueOffset"]) for message in messages)


def test_messages_of_a_topic_and_a_time_are_searched_by_time_and_pulled_queue_by_queue(behind, client) -> None:
    records = of_topic(behind.store, TOPIC)
    times = sorted(record.store_timestamp for record in records)
    begin, end = times[len(times) // 4], times[-1]
    shown = behind.page(client, "messages of a topic", topic=TOPIC, begin=begin, end=end)
    wanted = [record for record in records if begin <= record.store_timestamp <= end]
    assert places_of(shown) == sorted((record.queue_id, record.queue_offset) for record in wanted)
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
