"""Names as long as RocketMQ's clients let them be are taken; longer ones, and more of them, are refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from asking import Asker
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode

GROUP, TOPIC = "g" * 255, "t" * 127
RETRY = "%RETRY%" + GROUP


@pytest.fixture(scope="module")
def g1(g1_store: Path) -> Asker:
    return Asker(g1_store)


def locks(group: str = "G", client_id: str = "c", topic: str = "T", broker: str = "b", count: int = 1) -> bytes:
    queues = [{"brokerName": broker, "queueId": number, "topic": topic} for number in range(count)]
    return json.dumps({"consumerGroup": group, "clientId": client_id, "mqSet": queues}).encode()


@pytest.mark.parametrize(
    "body",
    [
        heartbeat("c" * 255, consumer(GROUP, subscription(TOPIC), subscription(RETRY)), producers=(GROUP,)),
        heartbeat("c", consumer("G", subscription(f"{RETRY}+{TOPIC}"), subscription("%DLQ%" + GROUP))),
        heartbeat("c", *(consumer(f"G{number}") for number in range(1024))),
        heartbeat(
            "c",
            consumer("G", *(subscription(f"T{number}", "a > 5 AND b = 'x'", kind="SQL92") for number in range(500))),
        ),
    ],
    ids=["names", "joined names", "groups", "500 topics with expressions"],
)
def test_what_a_client_may_be_called_and_subscribe_to_is_taken_in(body: bytes, g1: Asker) -> None:
    answer = g1.ask(RequestCode.HEART_BEAT, body=body)
    assert (answer.code, answer.remark) == (0, None)


TOO_MUCH: list[tuple[bytes, str, str]] = [
    (heartbeat("c" * 256), "clientID", "256 characters), longer than 255"),
    (heartbeat("c", consumer(GROUP + "g")), "groupName", "256 characters), longer than 255"),
    (heartbeat("c", producers=(GROUP + "g",)), "groupName", "256 characters), longer than 255"),
    (heartbeat("c", consumer("G", subscription(TOPIC + "t"))), "topic", "128 characters), longer than 127"),
    (heartbeat("c", consumer("G", subscription(f"{RETRY}+{TOPIC}t"))), "topic", "391 characters), longer than 390"),
    (heartbeat("c", consumer("G", subscription("T", kind="S" * 64))), "expressionType", "longer than 63"),
    (heartbeat("c", consumer("G", consumeType="C" * 64)), "consumeType", "longer than 63"),
    (
        heartbeat("c", *(consumer(f"G{number}") for number in range(1025))),
        "consumerDataSet",
        "1025 entries, more than 1024",
    ),
    (heartbeat("c", producers=tuple(map(str, range(1025)))), "producerDataSet", "1025 entries, more than 1024"),
    (
        heartbeat("c", consumer("G", *({"topic": f"T{number}"} for number in range(4097)))),
        "subscriptionDataSet of group G",
        "4097 entries, more than 4096",
    ),
    (
        heartbeat("c", *(consumer(f"G{one}", *({"topic": f"T{each}"} for each in range(4095))) for one in range(3))),
        "subscriptionDataSet",
        "12285 of all groups together, more than 8192",
    ),
]


@pytest.mark.parametrize(("body", "field", "words"), TOO_MUCH, ids=[f"{case[1]} {case[2]}" for case in TOO_MUCH])
def test_a_heartbeat_that_tells_too_much_is_refused_naming_it_its_size_and_the_limit(
    body: bytes, field: str, words: str, g1: Asker
) -> None:
    before = g1.service.budget.used
    answer = g1.ask(RequestCode.HEART_BEAT, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith(f"{field}: ")
    assert words in answer.remark
    assert len(answer.remark) < 300
    assert g1.service.budget.used == before, "nothing of it is remembered"


def test_locks_under_names_that_are_too_long_are_refused(g1: Asker) -> None:
    for body, field in (
        (locks(group=GROUP + "g"), "consumerGroup"),
        (locks(client_id="c" * 256), "clientId"),
        (locks(topic=TOPIC + "t"), "topic"),
        (locks(broker="b" * 256), "brokerName"),
        (locks(count=16_385), "mqSet"),
    ):
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            answer = g1.ask(code, body=body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (answer.remark or "").startswith(f"{field}: ")
    assert len(g1.service.locks) == 0
    body = locks(GROUP, "c" * 255, RETRY, count=500)
    assert len(g1.value(RequestCode.LOCK_BATCH_MQ, body=body)["lockOKMQSet"]) == 500


def test_offsets_and_pulls_of_groups_with_too_long_a_name_are_refused(g1: Asker) -> None:
    fields = {"consumerGroup": GROUP + "g", "topic": "TopicTest", "queueId": "0", "commitOffset": "1"}
    pull: dict[str, Any] = fields | {"queueOffset": "0", "maxMsgNums": "1", "sysFlag": "5", "suspendTimeoutMillis": "0"}
    for code, asked in (
        (RequestCode.UPDATE_CONSUMER_OFFSET, fields),
        (RequestCode.PULL_MESSAGE, pull | {"subscription": "*", "subVersion": "0"}),
    ):
        answer = g1.ask(code, asked, oneway=True)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("consumerGroup: ")
    assert len(g1.service.offsets) == 0
    assert g1.service.pulled.next_offsets(GROUP + "g", "TopicTest") == {}
