"""Offsets that groups committed to a server of ours, given to the official broker: it takes them up as its own."""

import shutil
import socket

import pytest

from heartbeats import consumer, heartbeat
from interop.official_broker import official_broker
from interop.stages import WAIT_SECONDS, committed
from interop.stored import stored
from interop.wire import FrameSplitter, encode_request
from process import rocketlens_serving

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
