"""One message's whole life, in order of time: its copies, who has consumed them, the transaction's end, its traces."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import Final, TypeAlias

import msgspec

from protocol.compression import Budget
from protocol.errors import StoreError
from protocol.mask import MASKED, NO_MASK, Mask
from protocol.message import Message, decode_message, decode_messages
from protocol.properties import TIMER_OUT_MS, TRANS_OFFSET
from protocol.sys_flag import TRANSACTION_MASK, SysFlag
from protocol.system_topics import (
    OP_TOPICS,
    ROCKSDB_HALF_TOPIC,
    TRACE_TOPIC,
    TRACE_TOPIC_PREFIX,
    Origin,
    Stage,
    stage_of,
)
from protocol.trace import Trace, TraceKind, decode_traces
from storage.life.message_copies import copy_topics
from storage.life.origins import Origins
from storage.query.lookup_call import KeyKind, KeyQuery
from storage.queue.queue import Queue, TimeBoundary
from storage.store.message_store import MessageStore

MOST_COPIES: Final = 256
"""Records of one message under one topic that are looked at; more of them than that are no resends."""

OPS_SEARCHED: Final = 100_000
"""Operations of transactions that are looked through for the one that ended a half message."""

OPS_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a consumer group has come in the queue of a record."""

    group: str
    next_offset: int
    """The queue offset that the group reads next."""
    has_passed: bool


Committed: TypeAlias = Callable[[str, int], Iterable[tuple[str, int]]]
"""Gives the groups that have committed an offset in a queue, by topic and queue id: name and next offset."""


class Ending(Enum):
    """How a message ended for a consumer group, or how far it is."""

    NOT_YET = "not yet"
    """The group has not come to it."""
    PASSED = "passed"
    """The group has passed it, or its last retry."""
    RETRYING = "retrying"
    """The group failed to consume it, and it waits to be consumed again."""
    GAVE_UP = "gave up"
    """The group failed to consume it to the end, and it lies among the group's dead letters."""


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """What all records of a message together say of one group. `retries` counts how often it was delivered again."""

    group: str
    ending: Ending
    retries: int = 0

    @property
    def text(self) -> str:
        """The verdict in words that stand behind the name of the group."""
        if self.ending is Ending.GAVE_UP:
            return f"gave up after {self.retries} {'retry' if self.retries == 1 else 'retries'} → DLQ"
        if self.ending is Ending.RETRYING:
            return f"failed, retry {self.retries} waits"
        if self.ending is Ending.PASSED:
            return f"has passed it at retry {self.retries}" if self.retries else "has passed it"
        return "not yet"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a message, at a time in milliseconds; either a stored record or a trace of it."""

    timestamp: int
    message: Message | None = None
    origin: Origin | None = None
    """Where the record was sent to, and the group that failed to consume it before; None for a trace."""
    trace: Trace | None = None
    note: str = ""
    until_timestamp: int | None = None
    """When the waiting of a copy is to end, or has ended; in milliseconds."""
    groups: tuple[GroupProgress, ...] = ()

    @property
    def stage(self) -> Stage | None:
        """Where the message was, None for a trace."""
        return stage_of(self.message.topic) if self.message else None


@dataclass(frozen=True, slots=True)
class MessageLife:
    """A message's events in order of time; `incomplete` says what may be missing."""

    events: tuple[Event, ...]
    incomplete: str | None = None

    @property
    def verdicts(self) -> tuple[GroupVerdict, ...]:
        """The verdict of every group that met the message, by name; what was stored last decides."""
        found: dict[str, GroupVerdict] = {}
        for event in self.events:
            if event.message is not None:
                _judge(event, event.message, found)
        return tuple(found[group] for group in sorted(found))


def _judge(event: Event, message: Message, found: dict[str, GroupVerdict]) -> None:
    """Bring the verdicts that were found so far up to one more record."""
    failure = _verdict_of_failure(event, message)
    if failure is not None:
        found[failure.group] = failure
    for each in event.groups:
        if failure is not None and each.group == failure.group:
            continue
        known = found.get(each.group)
        if not each.has_passed:
            found[each.group] = GroupVerdict(each.group, Ending.NOT_YET)
        elif known is None or known.ending is Ending.GAVE_UP:
            found[each.group] = GroupVerdict(each.group, Ending.PASSED)


def _verdict_of_failure(event: Event, message: Message) -> GroupVerdict | None:
    """What a copy says that is there because a group failed to consume the message; None for other records."""
    group, times = event.origin.group if event.origin else None, message.reconsume_times
    if group is None:
        return None
    if event.stage is Stage.DEAD_LETTER:
        # The broker has counted the delivery that failed last as well.
        return GroupVerdict(group, Ending.GAVE_UP, max(times - 1, 0))
    has_passed = event.stage is Stage.RETRY and any(each.has_passed for each in event.groups)
    return GroupVerdict(group, Ending.PASSED if has_passed else Ending.RETRYING, times)


def find_life(
    store: MessageStore,
    unique_key: str,
    topic: str | None = None,
    trace_topics: Iterable[str] = (),
    *,
    waits: bool = True,
    committed: Committed | None = None,
    mask: Mask = NO_MASK,
) -> MessageLife:
    """Find every record and every trace of the message with a unique key; in a topic, or in all. Waits for the disk.

    Traces are looked for under the usual topics and under ``trace_topics``. With ``waits`` off a scan that is not
    finished is not waited for: ``incomplete`` says so. ``committed`` knows how far groups have come, by default the
    store's own file of offsets. What ``mask`` hides is hidden in records and traces; raises ConfigError for a unique
    key that it hides.
    """
    mask.refuse_value("unique_key", unique_key)
    if waits:
        store.finish_scan()
    topics = [topic, *copy_topics(store)] if topic else [*store.queues.topics(), *store.config.topics]
    records: dict[int, Message] = {}
    incomplete = None if topic else store.queues.why_unknown()
    if committed is None:
        incomplete = incomplete or _why_groups_are_unknown(store)
        committed = _stored_offsets(store)
    for name in sorted(set(topics)):
        answer = store.query(KeyQuery(topic=name, key=unique_key, kind=KeyKind.UNIQUE, maximum=MOST_COPIES))
        records.update((message.physical_offset, message) for message in decode_messages(answer.records))
        incomplete = incomplete or answer.incomplete
    messages = sorted(records.values(), key=lambda message: message.physical_offset)
    origins = Origins(store)
    stored = (_event(store, message, origins.found(message, store.query), messages, committed) for message in messages)
    # Sorting keeps the order of the log among records of one moment.
    events = sorted(chain(stored, _traces(store, unique_key, trace_topics)), key=lambda event: event.timestamp)
    return MessageLife(tuple(_shown(event, mask) for event in events), incomplete)


def _shown(event: Event, mask: Mask) -> Event:
    if event.message is not None:
        return replace(event, message=mask.message(event.message)) if mask else event
    if event.trace is not None and event.trace.client_host is not None and "born_host" in mask.fields:
        return replace(event, trace=msgspec.structs.replace(event.trace, client_host=MASKED))
    return event


def _event(
    store: MessageStore, message: Message, origin: Origin, all_of_it: list[Message], committed: Committed
) -> Event:
    event = Event(message.store_timestamp, message, origin, groups=tuple(_progress(message, origin, committed)))
    stage = stage_of(message.topic)
    if stage is Stage.SCHEDULED:
        return _scheduled(store, message, event)
    if stage is Stage.TIMER:
        due = message.properties.get(TIMER_OUT_MS, "")
        return replace(event, until_timestamp=int(due) if due.isdecimal() and len(due) < 19 else None)
    if stage is Stage.HALF:
        return _half(store, message, event, all_of_it)
    ended = _verdict_of_failure(event, message)
    return replace(event, note=f"{ended.group} {ended.text}") if ended and stage is Stage.DEAD_LETTER else event


def _why_groups_are_unknown(store: MessageStore) -> str | None:
    """Why it is not known which groups have passed the message; None where it is."""
    try:
        store.config.refuse_unknown_offsets()
    except StoreError as error:
        return str(error)
    return None


def _stored_offsets(store: MessageStore) -> Committed:
    """The offsets that the store's broker has written down."""

    def committed(topic: str, queue_id: int) -> Iterator[tuple[str, int]]:
        for (group, of), offsets in sorted(store.config.consumer_offsets.items()):
            if of == topic and queue_id in offsets:
                yield group, offsets[queue_id]

    return committed


def _progress(message: Message, origin: Origin, committed: Committed) -> Iterator[GroupProgress]:
    """The groups that read the record's queue, by name; of a retry topic its own alone."""
    for group, next_offset in committed(message.topic, message.queue_id):
        if stage_of(message.topic) is not Stage.RETRY or origin.may_be_of(group):
            yield GroupProgress(group, next_offset, next_offset > message.queue_offset)


def _scheduled(store: MessageStore, message: Message, event: Event) -> Event:
    """Add the delay level of a copy, when it is due, and whether the broker has delivered it."""
    level = message.queue_id + 1
    try:
        queue = store.queues.queue(message.topic, message.queue_id)
        entry = queue.entry_at(message.queue_offset) if queue else None
    except StoreError:  # when it is due is left out
        entry = None
    delivered = store.config.delay_offsets.get(level)
    state = "" if delivered is None else ", delivered" if delivered > message.queue_offset else ", not delivered yet"
    # A unit of the schedule topic has the time of delivery where others have their tag's hash.
    return replace(event, note=f"delay level {level}{state}", until_timestamp=entry.tags_code if entry else None)


def _half(store: MessageStore, half: Message, event: Event, all_of_it: list[Message]) -> Event:
    """Add how the transaction of a half message ended, and when."""
    for message in all_of_it:
        # Others than committed ones have 0, which is an offset too.
        is_committed = message.sys_flag & TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT
        if is_committed and message.prepared_transaction_offset == half.physical_offset:
            return replace(event, note="committed", until_timestamp=message.store_timestamp)
    try:
        ended = _find_op(store, half)
    except StoreError as error:
        return replace(event, note=f"how it ended is not known: {error}")
    if ended is None:
        return replace(event, note="not ended")
    return replace(event, note="rolled back, or given up", until_timestamp=ended.store_timestamp)


def _find_op(store: MessageStore, half: Message) -> Message | None:
    """The operation that names a half message, stored after it in the queue of the same number.

    It names queue offsets in its body, or in the topics of `transRocksDBEnable` a physical offset in a property.
    """
    queue = store.queues.queue(OP_TOPICS[half.topic], half.queue_id)
    if queue is None:
        return None
    wanted = str(half.queue_offset)
    for message in _messages_from(store, queue, queue.offset_by_timestamp(half.store_timestamp, TimeBoundary.LOWER)):
        if half.topic == ROCKSDB_HALF_TOPIC:
            is_its_end = message.properties.get(TRANS_OFFSET) == str(half.physical_offset)
        else:
            is_its_end = wanted in bytes(message.stored_body).decode("ascii", "replace").split(",")
        if is_its_end:
            return message
    return None


def _messages_from(store: MessageStore, queue: Queue, first: int) -> Iterator[Message]:
    """The intact messages of a queue from an offset on, OPS_SEARCHED at most."""
    end = min(queue.max_offset, first + OPS_SEARCHED)
    for start in range(first, end, OPS_AT_ONCE):
        for entry in queue.entries(start, min(OPS_AT_ONCE, end - start)):
            record = store.record_at(entry.physical_offset)
            if record is not None:
                yield decode_message(record, physical_offset=entry.physical_offset)


def _traces(store: MessageStore, unique_key: str, trace_topics: Iterable[str]) -> Iterator[Event]:
    """Return the traces of clients; the end of a consumption that has no time takes that of its beginning."""
    known = (name for name in store.queues.topics() if name == TRACE_TOPIC or name.startswith(TRACE_TOPIC_PREFIX))
    began: dict[str, Trace] = {}
    for topic in sorted({*known, *trace_topics}):
        answer = store.query(KeyQuery(topic=topic, key=unique_key, kind=KeyKind.KEY, maximum=MOST_COPIES))
        for message in decode_messages(answer.records):
            for trace in _traces_in(message):
                if trace.message_id != unique_key:
                    continue
                if trace.kind is TraceKind.CONSUMING and trace.request_id:
                    began[trace.request_id] = trace
                yield _trace_event(trace, began.get(trace.request_id or ""), message)


def _traces_in(message: Message) -> Iterator[Trace]:
    try:
        yield from decode_traces(message.decoded_body(budget=Budget.of_list()))
    except StoreError:  # a body that cannot be decompressed, or is far longer than a client writes them, has no traces
        return


def _trace_event(trace: Trace, began: Trace | None, message: Message) -> Event:
    timestamp = trace.timestamp
    if timestamp is None and began is not None and began.timestamp is not None:
        timestamp = began.timestamp + (trace.cost_milliseconds or 0)
    note = f"by group {began.group}" if trace.group is None and began is not None else ""
    return Event(message.born_timestamp if timestamp is None else timestamp, trace=trace, note=note)
