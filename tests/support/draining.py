"""Pulls as a Java client asks for them, and the records of an answer."""

from oracles import read_record

SUBSCRIPTION = 4


def pull_of(topic: str, queue_id: int = 0, offset: int = 0, **fields: str | int | None) -> dict[str, str]:
    """The header of a pull of all that does not wait, unless `fields` say otherwise; a field of None is left out."""
    header = {
        "consumerGroup": "G", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 1000, "subVersion": 0, "subscription": "*",
        "expressionType": "TAG", **fields,
    }  # fmt: skip
    return {name: str(value) for name, value in header.items() if value is not None}


def records_of(body):
    position = 0
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big")
        record = read_record(body[position : position + size], 0)
        assert record is not None
        yield record
        position += size
