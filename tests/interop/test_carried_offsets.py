"""Offsets committed to a server of ours the official broker takes up; and queues whose first messages expired."""

import shutil
import socket
from functools import partial

import pytest

from blocking_client import eventually
from heartbeats import consumer, heartbeat
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.java_client import Subscription
from interop.official_broker import official_broker
from interop.stages import WAIT_SECONDS, committed, our_stage
from interop.stored import stored
from interop.wire import FrameSplitter, encode_request
from process import rocketlens_serving
from store_writer import StoreWriter

pytestmark = pytest.mark.interop

UPDATE_CONSUMER_OFFSET, HEART_BEAT = 15, 34
FILE = "consumerOffset.json"
OWN = {("CG_TAG", "TopicTest", 1): 3, ("CG_new", "TopicTest", 2): 7, ("CG_new", "BulkTopic", 0): 1}
"""What is committed here: of a group that the store knows, and of one that it does not."""


def commit(server: tuple[str, int]) -> None:
    groups = [consumer(group) for group in sorted({group for group, _, _ in OWN})]
    with socket.create_connection(server, WAIT_SECONDS) as connection:
        splitter = FrameSplitter()

        def ask_here(code, fields, body=b""):
            connection.sendall(encode_request(code, 1, fields, body))
            while True:
                # A member is also told that its group changed.
                for frame in splitter.feed(connection.recv(1 << 16)):
                    if frame.is_response:
                        return frame

        assert ask_here(HEART_BEAT, {}, heartbeat("c", *groups)).code == 0
        for (group, topic, queue_id), offset in OWN.items():
            fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
            assert ask_here(UPDATE_CONSUMER_OFFSET, fields).code == 0


@pytest.mark.soak  # in each run: the file as a broker writes it, tests/broker/service/consumers/test_offsets.py
def test_a_broker_goes_on_where_groups_have_come_on_an_archive_of_its_store(tmp_path) -> None:
    store = stored("g1", tmp_path / "g1").root
    known = {("CG_TAG", "TopicTest", queue_id): queue_id for queue_id in (0, 2, 3)}
    with rocketlens_serving(store, tmp_path) as server:
        known = {place: offset for place in known if (offset := committed(server, *place)) is not None}
        assert known, "the store's own offsets of the group"
        commit(server)
    copy = tmp_path / "broker-store"
    shutil.copytree(store, copy)
    shutil.copy(tmp_path / "state" / FILE, copy / "config" / FILE)
    with official_broker(copy, tmp_path) as broker:
        assert {place: committed(broker.address, *place) for place in OWN | known} == OWN | known


TOPIC = "Expired"
FIRST, NEXT = 1_000_000, 1_000_050
"""Queue 0 begins and ends here; queue 1 has all its messages from 0 on, queue 2 none any more."""
PLACES = [(0, offset) for offset in range(FIRST, NEXT)] + [(1, offset) for offset in range(50)]
KINDS = ("push", "orderly", "lite")
MOST_PULLS = 30
"""Of one consumer: two pulls a queue would do, a consumer that goes round makes hundreds."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    root = tmp_path_factory.mktemp("expired") / "store"
    writer = StoreWriter(root, segment_size=1 << 16)
    writer.append(TOPIC, bytes(1 << 15), queue_id=2)
    writer.roll()
    for number in range(50):
        writer.append(TOPIC, b"here", queue_id=0, queue_offset=FIRST + number)
        writer.append(TOPIC, b"here", queue_id=1)
    writer.close()
    min((root / "commitlog").iterdir()).unlink()
    with our_stage(root, tmp_path_factory.mktemp("stage")) as running:
        yield running


@pytest.mark.parametrize("version", [pytest.param(SERVER_VERSION, marks=pytest.mark.soak), OLD_CLIENT_VERSION])
def test_consumers_get_what_is_left(version, stage, java) -> None:
    client = java(version, "JSON")
    consumers = {kind: Subscription(kind, f"CG_{kind}_{version}".replace(".", "-"), TOPIC) for kind in KINDS}
    client.consume(stage.name_server, consumers)
    ends = {0: NEXT, 1: 50, 2: 1}
    for one in consumers.values():
        eventually(partial(stage.has_asked_for_more, one.group, TOPIC, ends), f"{one.group} at the end of its queues")
    ended = client.end(*consumers)
    for kind, one in consumers.items():
        assert sorted(ended[kind].places) == PLACES
        assert {queue_id: stage.committed(one.group, TOPIC, queue_id) for queue_id in (0, 1)} == {0: NEXT, 1: 50}
        assert len(stage.pulls(one.group)) < MOST_PULLS
