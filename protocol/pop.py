"""What a broker notes of messages that a group popped: checkpoints and acknowledgements, JSON in the bodies of records.

Both wait in the timer topic for the end of the time in which a popped message is invisible, and go to the revive topic
then, where the broker takes those that nobody acknowledged and puts their messages into a retry topic. The tag says
what a note is: `ck`, `ack` or `bAck`.

name        of       meaning
t, q, c     both     topic, queue id and group
so, pt      both     first queue offset of the pop, and its time in ms: with the names above they tell pops apart
it          ck       how long the messages are invisible, in ms
n, d        ck       how many there are, and where each is behind `so`; old brokers wrote no `d`, and left no gaps
bm          ck       bits of those that were acknowledged before the checkpoint was stored
ao          ack      queue offset of the message that was acknowledged
aol         bAck     those of several

Acknowledgements of brokers before 5.1 have the long names `topic`, `queueId`, `consumerGroup`, `startOffset`,
`popTime`, `ackOffset` and `ackOffsetList`. Source: PopCheckPoint, AckMsg and BatchAckMsg of RocketMQ 5.5.0;
other-formats §6.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

CHECKPOINT_TAG: Final = "ck"
ACKNOWLEDGEMENT_TAGS: Final = ("ack", "bAck")

MOST_POPPED: Final = 127
"""Messages that one checkpoint counts at most: the number is a byte."""

_LONG: Final = 1 << 63
_BITS: Final = 32
_OLD_NAMES: Final = {
    "t": "topic", "q": "queueId", "c": "consumerGroup", "so": "startOffset", "pt": "popTime", "ao": "ackOffset",
    "aol": "ackOffsetList",
}  # fmt: skip


class Pop(NamedTuple):
    """One request by which a group popped messages of a queue."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_timestamp: int


@dataclass(frozen=True, slots=True)
class PopCheckpoint:
    """The messages of one pop, by queue offset, and when those of them come back that nobody acknowledges (ms).

    `acknowledged` are those that were, before the checkpoint was stored.
    """

    pop: Pop
    revive_timestamp: int
    offsets: tuple[int, ...]
    acknowledged: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The messages of one pop that were acknowledged, by queue offset."""

    pop: Pop
    offsets: tuple[int, ...]


def decode_checkpoint(body: bytes | memoryview) -> PopCheckpoint | None:
    """The checkpoint in the body of a record; None where there is none."""
    values = _decoded(body)
    pop = _pop(values)
    invisible, count = _number(values, "it"), _number(values, "n")
    if pop is None or invisible is None or count is None:
        return None
    places = _numbers(values, "d") or tuple(range(count))
    if not 0 <= count <= MOST_POPPED or len(places) > MOST_POPPED:
        return None
    bits = _number(values, "bm") or 0
    offsets = tuple(pop.start_offset + place for place in places)
    done = tuple(offset for number, offset in enumerate(offsets[:_BITS]) if bits >> number & 1)
    return PopCheckpoint(pop, pop.pop_timestamp + invisible, offsets, done)


def decode_acknowledgement(body: bytes | memoryview) -> Acknowledgement | None:
    """The acknowledgement in the body of a record, of one message or of several; None where there is none."""
    values = _decoded(body)
    pop = _pop(values)
    if pop is None:
        return None
    offset = _number(values, "ao")
    return Acknowledgement(pop, _numbers(values, "aol") or (() if offset is None else (offset,)))


def _decoded(body: bytes | memoryview) -> Mapping[str, Any]:
    try:
        values = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _pop(values: Mapping[str, Any]) -> Pop | None:
    topic, group = _value(values, "t"), _value(values, "c")
    queue_id, start, timestamp = _number(values, "q"), _number(values, "so"), _number(values, "pt")
    if not isinstance(topic, str) or not isinstance(group, str) or None in (queue_id, start, timestamp):
        return None
    return Pop(topic, group, queue_id or 0, start or 0, timestamp or 0)


def _value(values: Mapping[str, Any], name: str) -> Any:
    return values.get(name, values.get(_OLD_NAMES.get(name, name)))


def _number(values: Mapping[str, Any], name: str) -> int | None:
    value = _value(values, name)
    return value if type(value) is int and -_LONG <= value < _LONG else None


def _numbers(values: Mapping[str, Any], name: str) -> tuple[int, ...]:
    found = _value(values, name)
    if not isinstance(found, list) or any(type(each) is not int or abs(each) >= _LONG for each in found):
        return ()
    return tuple(found)
