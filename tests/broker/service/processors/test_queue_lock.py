"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ on the wire."""

import json

from asking import Asker
from protocol.codes import RequestCode


def queue(queue_id: int) -> dict[str, object]:
    return {"brokerName": "broker-a", "queueId": queue_id, "topic": "TopicTest"}


def body(client_id: str, *queue_ids: int) -> bytes:
    data = {
        "clientId": client_id,
        "consumerGroup": "G",
        "mqSet": [queue(queue_id) for queue_id in queue_ids],
        "onlyThisBroker": False,
    }
    return json.dumps(data).encode()


def test_the_queues_that_a_client_has_to_itself_are_named(g1: Asker) -> None:
    assert g1.value(RequestCode.LOCK_BATCH_MQ, body=body("c1", 0, 1)) == {"lockOKMQSet": [queue(0), queue(1)]}
    assert g1.value(RequestCode.LOCK_BATCH_MQ, body=body("c2", 1, 2)) == {"lockOKMQSet": [queue(2)]}
