"""While a server cannot tell how far a group has come, clients of all versions leave its queues alone.

Clients up to 4.9 take any error for *no offset*; they would begin at one end of the queue and commit that.
"""

from pathlib import Path

import pytest

from interop.conftest import Java
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.java_client import Subscription
from interop.stages import QUERY_CONSUMER_OFFSET, our_stage, wait_until
from store_writer import StoreWriter

pytestmark = [pytest.mark.interop, pytest.mark.soak]
"""A client waits 5 s for each answer that it does not get; tests/broker has what the server does, in seconds."""

UPDATE_CONSUMER_OFFSET = 15
TOPIC = "Orders"
MESSAGES, COMMITTED = 10, 6
GROUPS = {OLD_CLIENT_VERSION: "CG_unknown_old", SERVER_VERSION: "CG_unknown_new"}


def written(root: Path) -> Path:
    """A store in which each group has consumed some messages of one queue; returns its file of offsets."""
    writer = StoreWriter(root)
    for number in range(MESSAGES):
        writer.append(TOPIC, b"%d" % number)
    for group in GROUPS.values():
        writer.consumer_offsets[f"{TOPIC}@{group}"] = {0: COMMITTED}
    writer.close()
    one_queue = {"topicName": TOPIC, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    writer.write_config("topics.json", {"topicConfigTable": {TOPIC: one_queue}})
    return root / "config" / "consumerOffset.json"


def test_no_client_starts_at_an_end_while_its_offset_is_not_known_and_each_goes_on_from_the_right_one(
    java: Java, tmp_path: Path
) -> None:
    path = written(tmp_path / "store")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    clients = {version: java(version, "JSON") for version in GROUPS}
    with our_stage(tmp_path / "store", tmp_path) as stage:
        for version, client in clients.items():
            client.consume(stage.name_server, {"asks": Subscription("push", GROUPS[version], TOPIC)})
        for group in GROUPS.values():
            wait_until(
                lambda group=group: len(stage.requests(group, QUERY_CONSUMER_OFFSET)) > 1, "an offset asked for again"
            )
        for group in GROUPS.values():
            assert stage.answers(group, QUERY_CONSUMER_OFFSET) == []
            assert stage.pulls(group) == []
            assert stage.requests(group, UPDATE_CONSUMER_OFFSET) == []
        path.write_bytes(whole)
        for version, client in clients.items():
            # Another member has them share out the queues at once; else they do so every 20 seconds.
            client.consume(stage.name_server, {"nudges": Subscription("push", GROUPS[version], TOPIC)})
        expected = [(0, offset) for offset in range(COMMITTED, MESSAGES)]
        for client in clients.values():
            wait_until(
                lambda client=client: sorted(client.look("asks").places + client.look("nudges").places) == expected,
                "the messages behind the committed offset",
            )
        for client in clients.values():
            client.end("asks", "nudges")
        for group in GROUPS.values():
            assert {frame.header["extFields"]["queueOffset"] for frame in stage.pulls(group) if is_of_topic(frame)} <= {
                str(offset) for offset in range(COMMITTED, MESSAGES + 1)
            }
            assert stage.committed(group, TOPIC, 0) == MESSAGES


def is_of_topic(frame: object) -> bool:
    fields: dict[str, str] = frame.header["extFields"]  # type: ignore[attr-defined]
    return fields["topic"] == TOPIC
