"""The copies of a message that a broker keeps under topics of its own: while it waits, after it failed, at its end.

A delayed message waits under the schedule topic or the timer's, one of a transaction under the half topic; one that a
group failed to consume comes back under the group's retry topic, by way of the schedule topic, and ends under its
dead-letter topic. Each keeps its unique key, keys and tag and says where it belongs, and is indexed under the topic
where it waits. Source: store-format §2.11.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from protocol.message import Message, decode_message
from protocol.properties import DLQ_ORIGIN_TOPIC, INNER_MULTI_DISPATCH, REAL_TOPIC, RETRY_TOPIC
from storage.filter.retry import RETRY_PREFIX
from storage.query.lookup_call import KeyQuery
from storage.queue.queue import SCHEDULE_TOPIC
from storage.queue.queue_record import LIGHT_PREFIX
from storage.store.message_store import MessageStore, QueryAnswer

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
OP_TOPICS: Final = {
    HALF_TOPIC: "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    ROCKSDB_HALF_TOPIC: "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
}
"""Where the ends of transactions are noted, by the topic of their half messages: brokers with `transRocksDBEnable` have
topics of their own (other-formats §3)."""
DEAD_LETTER_PREFIX: Final = "%DLQ%"


class Stage(Enum):
    """Where in its life a message was when a record of it was stored."""

    DELIVERED = "delivered"
    """Under its own topic, where consumers find it."""
    SCHEDULED = "scheduled"
    """Waiting for a delay level, be it for the first time or to be consumed again."""
    TIMER = "timer"
    """Waiting for a point in time."""
    HALF = "half"
    """Waiting for the end of its transaction."""
    RETRY = "retry"
    """To be consumed again by one group."""
    DEAD_LETTER = "dead letter"
    """Given up by one group."""


_WAITING: Final = {SCHEDULE_TOPIC: Stage.SCHEDULED, TIMER_TOPIC: Stage.TIMER} | dict.fromkeys(OP_TOPICS, Stage.HALF)


def stage_of(topic: str) -> Stage:
    """The stage of the messages that are stored under a topic."""
    if topic.startswith(RETRY_PREFIX):
        return Stage.RETRY
    if topic.startswith(DEAD_LETTER_PREFIX):
        return Stage.DEAD_LETTER
    return _WAITING.get(topic, Stage.DELIVERED)


def kind_of(topic: str) -> str:
    """What a topic is for: normal, retry, dead letter, or the broker's own."""
    stage = stage_of(topic)
    if stage in (Stage.RETRY, Stage.DEAD_LETTER):
        return str(stage.value)
    own = stage is not Stage.DELIVERED or topic.upper().startswith("RMQ_SYS_")
    return "system" if own or topic in ("TBW102", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC") else "normal"


def origin_topic(message: Message) -> str:
    """The topic to which a message was sent; the one that it is stored under if it does not say."""
    properties, topic = message.properties, message.topic
    if topic in _WAITING:
        topic = properties.get(REAL_TOPIC, topic)
    if topic.startswith(DEAD_LETTER_PREFIX):
        topic = properties.get(DLQ_ORIGIN_TOPIC) or properties.get(RETRY_TOPIC, topic)
    if topic.startswith(RETRY_PREFIX):
        topic = properties.get(RETRY_TOPIC, topic)
    return topic


def is_known_by(message: Message, topic: str) -> bool:
    """Whether clients may know a message by a topic: the one it is stored under, waits for or was first sent to.

    Or one of the light queues it is in.
    """
    if topic == message.topic:
        return True
    properties = message.properties
    if topic.startswith(LIGHT_PREFIX):
        return topic in properties.get(INNER_MULTI_DISPATCH, "").split(",")
    return topic in (properties.get(REAL_TOPIC), origin_topic(message))


def copy_topics(store: MessageStore) -> list[str]:
    """The topics of a store under which copies may be found."""
    topics = {*store.queues.topics(), *store.config.topics}
    return sorted(topic for topic in topics if stage_of(topic) is not Stage.DELIVERED)


_Record: TypeAlias = tuple[Message, memoryview, int]
"""A message, its record, and where that is in the store's log; negative for one of a tier."""

Search: TypeAlias = Callable[[KeyQuery], QueryAnswer]
"""Answers a query under one topic: `MessageStore.query`, or a function that counts its calls."""


@dataclass(frozen=True, slots=True)
class WithCopies:
    """Messages of a topic and their copies, ascending by physical offset, and the records that they are decoded from.

    `answer` is what was found under the topic itself; `cursor` the physical offset below which older matches are left
    out, None when there are none; `incomplete` what may be missing.
    """

    messages: list[Message]
    records: list[memoryview]
    answer: QueryAnswer
    cursor: int | None = None
    incomplete: str | None = None


def query_with_copies(search: Search, query: KeyQuery, topics: Iterable[str]) -> WithCopies:
    """The newest `query.maximum` matches of a topic, their copies under `topics` among them. Waits for the disk."""
    own = search(query)
    found = [*_records(own)]
    # Below the highest place where a search was cut nothing is complete.
    complete_from = own.physical_offsets[0] if own.truncated and own.count else None
    incomplete = own.incomplete
    for topic in topics:
        if topic != query.topic:
            copies, cut_at, note = _copies_under(search, topic, query)
            found += copies
            complete_from = max(complete_from or 0, cut_at) if cut_at is not None else complete_from
            incomplete = incomplete or note
    found = [each for each in found if complete_from is None or each[2] >= complete_from]
    found.sort(key=lambda each: -each[2])
    kept = _within_limits(found, query)
    is_cut = complete_from is not None or len(kept) < len(found)
    return WithCopies(
        [message for message, _, _ in reversed(kept)],
        [record for _, record, _ in reversed(kept)],
        own,
        kept[-1][2] if is_cut and kept else None,
        incomplete,
    )


def _within_limits(newest_first: list[_Record], query: KeyQuery) -> list[_Record]:
    """As many records as the query allows by number and bytes, one at least."""
    kept: list[_Record] = []
    total = 0
    for each in newest_first:
        total += len(each[1])
        if kept and (len(kept) == query.maximum or total > query.maximum_bytes):
            break
        kept.append(each)
    return kept


def _copies_under(search: Search, topic: str, query: KeyQuery) -> tuple[list[_Record], int | None, str | None]:
    """The newest copies under one topic of messages of `query.topic`; where the search was cut; what may be missing."""
    found: list[_Record] = []
    page = msgspec.structs.replace(query, topic=topic)
    while True:
        answer = search(page)
        found += [each for each in _records(answer) if origin_topic(each[0]) == query.topic]
        if not answer.truncated or not answer.count:
            return found, None, answer.incomplete
        before = answer.physical_offsets[0]
        if len(found) >= query.maximum:
            return found, before, answer.incomplete
        page = msgspec.structs.replace(page, before_physical_offset=before)


def _records(answer: QueryAnswer) -> Iterator[_Record]:
    records, position = memoryview(answer.records), 0
    for physical_offset, size in zip(answer.physical_offsets, answer.sizes, strict=True):
        record = records[position : position + size]
        own = physical_offset if physical_offset >= 0 else None
        yield decode_message(record, physical_offset=own), record, physical_offset
        position += size
