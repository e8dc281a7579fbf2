"""Two stores in one server are two brokers of one cluster to mqadmin and to consumers."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from blocking_client import eventually
from interop.java_client import Subscription
from interop.stored import Stored, stored
from process import serving_process
from protocol.message_id import HostAddress, encode_message_id
from store_writer import StoreWriter, Written

pytestmark = pytest.mark.interop

TOPIC = "TopicTest"
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


def identities(consumed) -> list[tuple[int, int]]:
    return sorted((message["physicalOffset"], message["storeTimestamp"]) for message in consumed.messages)


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
    assert identities(consumed) == wanted
