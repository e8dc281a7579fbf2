"""Pulls from an official broker, without any client."""

from interop.official_broker import OfficialProcess
from interop.wire import Frame, ask
from oracles import read_record

PULL, MAX_OFFSET = 11, 30
FOUND, RETRY_IMMEDIATELY = 0, 20


def pull(broker: OfficialProcess, topic: str, queue_offset: int, maximum: int, queue_id: int = 0) -> Frame:
    """Ask for messages of a queue."""
    return ask(
        broker.address,
        PULL,
        {
            "topic": topic, "queueId": str(queue_id), "queueOffset": str(queue_offset), "maxMsgNums": str(maximum),
            "consumerGroup": "SELF_TEST_C_GROUP", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG", "maxMsgBytes": "1000000",
        },
    )  # fmt: skip


def delivered(broker: OfficialProcess, topic: str, maximum: int = 32, start: int = 0, queue_id: int = 0) -> list[int]:
    """Physical offsets of what a consumer gets from an offset to the queue's end, a repetition in a row once."""
    offsets: list[int] = []
    following = start
    while following < offset(broker, MAX_OFFSET, topic, queue_id):
        answer = pull(broker, topic, following, maximum, queue_id)
        assert answer.code in (FOUND, RETRY_IMMEDIATELY), answer.header
        position = 0
        while position < len(answer.body):
            record = read_record(answer.body, position)
            assert record is not None
            if record.physical_offset not in offsets[-1:]:
                offsets.append(record.physical_offset)
            position += record.total_size
        assert int(answer.header["extFields"]["nextBeginOffset"]) > following
        following = int(answer.header["extFields"]["nextBeginOffset"])
    return offsets


def offset(broker: OfficialProcess, code: int, topic: str, queue_id: int = 0) -> int:
    """The largest or the smallest offset of a queue."""
    return int(ask(broker.address, code, {"topic": topic, "queueId": str(queue_id)}).header["extFields"]["offset"])
