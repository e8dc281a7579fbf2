"""Offsets that groups committed to a server of ours, given to the official broker: it takes them up as its own."""

import shutil
from pathlib import Path

import pytest

from interop.official_broker import official_broker
from interop.rocketlens_process import rocketlens_serving
from interop.stages import committed
from interop.stored import stored
from interop.wire import ask

pytestmark = pytest.mark.interop

UPDATE_CONSUMER_OFFSET = 15
FILE = "consumerOffset.json"
OWN = {("CG_TAG", "TopicTest", 1): 3, ("CG_new", "TopicTest", 2): 7, ("CG_new", "BulkTopic", 0): 1}
"""What is committed here: of a group that the store knows, and of one that it does not."""


def test_a_broker_goes_on_where_groups_have_come_on_an_archive_of_its_store(tmp_path: Path) -> None:
    store = stored("g1", tmp_path / "g1").root
    known = {("CG_TAG", "TopicTest", queue_id): queue_id for queue_id in (0, 2, 3)}
    with rocketlens_serving(store, tmp_path) as server:
        known = {place: offset for place in known if (offset := committed(server, *place)) is not None}
        assert known, "the store's own offsets of the group"
        for (group, topic, queue_id), offset in OWN.items():
            fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
            assert ask(server, UPDATE_CONSUMER_OFFSET, fields).code == 0
    copy = tmp_path / "broker-store"
    shutil.copytree(store, copy)
    shutil.copy(tmp_path / "state" / FILE, copy / "config" / FILE)
    with official_broker(copy, tmp_path) as broker:
        assert {place: committed(broker.address, *place) for place in OWN | known} == OWN | known
