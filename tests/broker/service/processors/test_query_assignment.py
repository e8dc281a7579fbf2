"""Queues that the server assigns: as an official broker 5.5.0 answered the same questions on this store."""

import json
from typing import Any

import pytest

from asking import Asker, FakeConnection
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode
from protocol.command import Response

QUERY_ASSIGNMENT = 400
QUESTION = {
    "clientId": "c1",
    "consumerGroup": "G",
    "messageModel": "CLUSTERING",
    "strategyName": "AVG",
    "topic": "TopicTest",
}


def join(asker: Asker, *client_ids: str) -> None:
    for client_id in client_ids:
        told = heartbeat(client_id, consumer("G", subscription("TopicTest")))
        asker.ask(RequestCode.HEART_BEAT, body=told, connection=FakeConnection())


def ask(asker: Asker, **changes: str | None) -> Response:
    return asker.ask(QUERY_ASSIGNMENT, body=json.dumps(QUESTION | changes).encode())


def assigned(asker: Asker, **changes: str | None) -> list[int] | None:
    """The queue ids of an answer, None for one without a list."""
    answer = ask(asker, **changes)
    assert (answer.code, answer.remark) == (0, None)
    body: dict[str, Any] = json.loads(bytes(answer.body))
    if body == {}:
        return None
    topic = changes.get("topic", "TopicTest")
    for one in body["messageQueueAssignments"]:
        assert one.keys() == {"messageQueue", "mode"}
        assert one["mode"] == "PULL"
        assert (one["messageQueue"]["brokerName"], one["messageQueue"]["topic"]) == ("broker-a", topic)
    return [one["messageQueue"]["queueId"] for one in body["messageQueueAssignments"]]


def test_a_member_alone_is_answered_as_by_a_broker(g1: Asker) -> None:
    join(g1, "c1")
    everywhere: dict[str, str | None] = {"messageModel": "BROADCASTING"}
    answers: list[tuple[dict[str, str | None], list[int] | None]] = [
        ({}, [0, 1, 2, 3]),
        ({"strategyName": "AVG_BY_CIRCLE"}, [0, 1, 2, 3]),
        ({"clientId": "unknown"}, []),
        ({"consumerGroup": "CG_off"}, None),
        ({"topic": "NoSuch"}, None),
        ({"strategyName": "FOO"}, None),
        ({"strategyName": None}, None),
        ({"clientId": None}, None),
        ({"clientId": ""}, None),
        (everywhere, [0, 1, 2, 3]),
        (everywhere | {"clientId": "unknown", "consumerGroup": "CG_off"}, [0, 1, 2, 3]),
        (everywhere | {"topic": "NoSuch"}, None),
        ({"topic": "%RETRY%G"}, [0]),
        ({"topic": "%RETRY%CG_off", "consumerGroup": "CG_off"}, None),
    ]
    for changes, expected in answers:
        assert assigned(g1, **changes) == expected, changes


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("AVG", [[0, 1], [2], [3]]), ("AVG_BY_CIRCLE", [[0, 3], [1], [2]])],
)
def test_members_share_by_the_order_of_their_names(strategy: str, expected: list[list[int]], g1: Asker) -> None:
    join(g1, "c3", "c1", "c2", "c1")
    assert [assigned(g1, strategyName=strategy, clientId=name) for name in ("c1", "c2", "c3")] == expected
