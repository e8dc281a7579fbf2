"""Which records of one unique key belong to which message.

A unique key names one message, and now and then several: clients that share an address and a process id make the same
one, and an application that sends what it received again, elsewhere or changed, sends the old one along. What tells
them apart is the topic they were sent to, the CRC of the body and the time they were born. A client that gets no answer
in time sends its message again, with a new time: records that are born within a minute of each other, of one topic and
one body, are one message.

A copy has what its message has, with one exception: where a broker refuses what a consumer sends back, the client sends
it as a new message, born later, and packed anew.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from msgspec.structs import replace

from protocol.message import Message
from protocol.question import FoundBy, KeyKind, Reading
from protocol.system_topics import Origin, Stage, origin_of, stage_of
from storage.amounts import counted

SENT_AGAIN_MILLISECONDS: Final = 60_000
"""Between the births of two records of a message that was only sent again."""

UNIQUE_READINGS: Final = (KeyKind.ANY.words, KeyKind.UNIQUE.words)
"""What a text is taken for that may be a unique key."""

Record: TypeAlias = tuple[Message, Origin]


@dataclass(slots=True)
class _Message:
    """The records of one message that were found so far; `born` are their times, ms."""

    topic: str | None
    crc: int
    born: list[int]
    records: list[Record] = field(default_factory=list)

    def closeness(self, record: Record) -> tuple[bool, ...] | None:
        """How well a copy fits, for a comparison; None if it is of another topic or has nothing in common."""
        message, origin = record
        topic = _sent_to(origin)
        if topic is not None and self.topic is not None and topic != self.topic:
            return None
        readings = [popped for _, popped in origin.readings]
        if topic is None and readings and self.topic is not None and self.topic not in readings:
            return None
        is_born_so, has_body = message.born_timestamp in self.born, message.body_crc == self.crc
        if not is_born_so and not (has_body and message.born_timestamp >= min(self.born)):
            return None
        is_earlier = any(own.physical_offset < message.physical_offset for own, _ in self.records)
        return is_born_so and has_body, is_earlier, is_born_so


def told_apart(records: Iterable[Record]) -> list[list[Record]]:
    """The records of each message, in the order of the log; that message first whose first record is."""
    originals: dict[tuple[str | None, int], list[Record]] = {}
    copies = []
    for record in records:
        if _is_copy(record):
            copies.append(record)
        else:
            originals.setdefault((_sent_to(record[1]), record[0].body_crc), []).append(record)
    found: list[_Message] = []
    for alike in originals.values():
        of = None
        for record in sorted(alike, key=lambda record: record[0].born_timestamp):
            if of is not None and record[0].born_timestamp - of.born[-1] > SENT_AGAIN_MILLISECONDS:
                of = None
            of = _put(record, of, found)
    for record in sorted(copies, key=lambda record: record[0].physical_offset):
        _put(record, _closest(record, found), found)
    for each in found:
        each.records.sort(key=lambda record: record[0].physical_offset)
    return sorted((each.records for each in found), key=lambda records: records[0][0].physical_offset)


def with_shared_notes(readings: Iterable[Reading], found: Iterable[FoundBy], text: str) -> list[Reading]:
    """The readings of a text, with a note where it is the unique key of several messages."""
    alike = messages_of_one_name((each.message for each in found), text)
    return [
        replace(each, note=alike) if alike and not each.note and each.kind in UNIQUE_READINGS else each
        for each in readings
    ]


def messages_of_one_name(messages: Iterable[Message], unique_key: str) -> str | None:
    """A clause that says which messages a unique key names, where that are several; else None.

    By the records that are given, and by what they say of their origin themselves.
    """
    named = (message for message in messages if message.unique_key == unique_key)
    found = told_apart((message, origin_of(message)) for message in named)
    if len(found) < 2:
        return None
    topics = [next((origin.topic for _, origin in records if origin.topic is not None), None) for records in found]
    each = ", ".join(f"one of topic {topic}" if topic is not None else "one of a topic unknown" for topic in topics)
    return f"{counted(len(found), 'message')} are named this: {each}"


def _is_copy(record: Record) -> bool:
    """Whether a record is there because a group failed, or does not say where it was sent to."""
    message, origin = record
    is_of_failure = origin.group is not None or stage_of(message.topic) in (Stage.RETRY, Stage.DEAD_LETTER)
    return is_of_failure or _sent_to(origin) is None


def _sent_to(origin: Origin) -> str | None:
    """The topic that a message was sent to; None where it is not known, or is that of a copy itself."""
    return origin.topic if origin.topic is not None and stage_of(origin.topic) is Stage.DELIVERED else None


def _closest(record: Record, found: Sequence[_Message]) -> _Message | None:
    """The message that a copy fits best."""
    rated = [(closeness, each) for each in found if (closeness := each.closeness(record)) is not None]
    return max(rated, key=lambda pair: pair[0])[1] if rated else None


def _put(record: Record, of: _Message | None, found: list[_Message]) -> _Message:
    """Add a record to a message, to a new one where that is None; return it."""
    message, origin = record
    if of is None:
        of = _Message(_sent_to(origin), message.body_crc, [])
        found.append(of)
    of.records.append(record)
    if message.born_timestamp not in of.born:
        of.born.append(message.born_timestamp)
    return of
