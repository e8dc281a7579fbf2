"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ on the wire."""

import json

import pytest

from asking import Asker
from protocol.codes import RequestCode, ResponseCode


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


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
@pytest.mark.parametrize("data", [b"", b"[]", b'{"clientId":"c"}', b'{"clientId":"c","consumerGroup":"G","mqSet":[1]}'])
def test_a_body_that_is_none_is_answered_saying_what_is_wrong(code: int, data: bytes, g1: Asker) -> None:
    answer = g1.ask(code, body=data)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "LockBatchRequestBody" in (answer.remark or "")
