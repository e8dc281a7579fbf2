"""Draining a queue as a Java client does: pull, take the messages, and follow the offset that each code says to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from oracles import Record, read_record
from protocol.codes import RequestCode
from protocol.command import Command, Response, ext_fields_of

FOUND, BUSY, NOT_FOUND, RETRY, MOVED = 0, 2, 19, 20, 21
SUBSCRIPTION = 4
MOST_PULLS = 5000

Answer: TypeAlias = Command | Response
"""An answer to a pull, from the wire or not."""


@dataclass
class Drained:
    """What a consumer got: records in order, remarks, and how often the server answered that it is busy."""

    records: list[Record] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    busy: int = 0
    offset: int = 0

    @property
    def offsets(self) -> list[int]:
        """Queue offsets of the messages as their records say them."""
        return [record.queue_offset for record in self.records]

    @property
    def places(self) -> list[int]:
        """Physical offsets of the messages."""
        return [record.physical_offset for record in self.records]


def pull_of(topic: str, queue_id: int = 0, offset: int = 0, **fields: str | int | None) -> dict[str, str]:
    """The header of a pull of all that does not wait, unless `fields` say otherwise; a field of None is left out."""
    header = {
        "consumerGroup": "G", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 1000, "subVersion": 0, "subscription": "*",
        "expressionType": "TAG", **fields,
    }  # fmt: skip
    return {name: str(value) for name, value in header.items() if value is not None}


def drain(
    ask: Callable[[int, dict[str, str]], Answer],
    topic: str,
    queue_id: int = 0,
    *,
    begin: int = 0,
    subscription: str = "*",
    kind: str = "TAG",
    on_busy: Callable[[], object] = lambda: None,
) -> Drained:
    """Everything that a consumer gets until the server answers that there is nothing new."""
    drained = Drained(offset=begin)
    for _ in range(MOST_PULLS):
        answer = ask(
            RequestCode.PULL_MESSAGE,
            pull_of(topic, queue_id, drained.offset, subscription=subscription, expressionType=kind),
        )
        if answer.code == BUSY:
            drained.busy += 1
            on_busy()
            continue
        if take(drained, answer):
            return drained
    raise AssertionError(f"no end at queue offset {drained.offset}")


def take(drained: Drained, answer: Answer) -> bool:
    """Follow an answer; whether it says that there is nothing new."""
    assert answer.code in (FOUND, NOT_FOUND, RETRY, MOVED), answer.remark
    following = next_offset(answer)
    drained.remarks.append(answer.remark or "")
    drained.records += records_of(bytes(answer.body))
    is_end = answer.code == NOT_FOUND and following == drained.offset
    assert is_end or following != drained.offset, f"nobody gets past queue offset {following}"
    drained.offset = following
    return is_end


def next_offset(answer: Answer) -> int:
    """Where an answer says to go on."""
    fields = ext_fields_of(answer) if isinstance(answer, Command) else answer.ext_fields or {}
    return int(fields["nextBeginOffset"])


def records_of(body: bytes) -> Iterator[Record]:
    """The records of a body."""
    position = 0
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big")
        record = read_record(body[position : position + size], 0)
        assert record is not None
        yield record
        position += size
