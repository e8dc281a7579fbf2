"""One message's whole life, in order of time: its copies, who has consumed them, the transaction's end, its traces."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias

import msgspec

from protocol.compression import Budget
from protocol.errors import StoreError
from protocol.mask import MASKED, NO_MASK, Mask
from protocol.message import Message, decode_messages
from protocol.properties import TIMER_OUT_MS
from protocol.question import KeyKind, Question
from protocol.system_topics import SYSTEM_GROUP_PREFIX, TRACE_TOPIC, TRACE_TOPIC_PREFIX, Origin, Stage, stage_of
from protocol.trace import Trace, TraceKind, decode_traces
from storage.life._batch_ids import ids_of_batch
from storage.life._deliveries import deliveries, due_by_unit, rolled, state_of_level, state_of_timer
from storage.life.message_copies import copy_topics
from storage.life.named_messages import Record, told_apart
from storage.life.origins import Origins
from storage.life.pop_log import PopLog, may_pop
from storage.life.transactions import endings, summary
from storage.life.verdicts import (
    Filters,
    GroupProgress,
    GroupVerdict,
    Passage,
    group_verdicts,
    is_withheld,
    registered_filters,
    verdict_of_failure,
)
from storage.query.search_report import joined_clauses
from storage.store.message_store import MessageStore

MOST_COPIES: Final = 256
"""Records of one message under one topic that are looked at; more of them than that are no resends."""

Committed: TypeAlias = Callable[[str, int], Iterable[tuple[str, int]]]
"""Gives the groups that have committed an offset in a queue, by topic and queue id: name and next offset."""


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
    number: int | None = 1
    """Of several messages that are named alike, the one it happened to, from 1 on; None where that is not known."""

    @property
    def stage(self) -> Stage | None:
        """Where the message was, None for a trace."""
        return stage_of(self.message.topic) if self.message else None


@dataclass(frozen=True, slots=True)
class Story:
    """What happened to one of the messages that a unique key names: its events in order of time.

    `topic` is the one it was sent to, None where that is not known; `born_timestamp` is in ms. `transaction` says how
    its transaction ended, None for a message of none.
    """

    number: int
    topic: str | None
    born_timestamp: int
    events: tuple[Event, ...]
    transaction: str | None = None

    @property
    def verdicts(self) -> tuple[GroupVerdict, ...]:
        """The verdict of every group that met the message, by name; what was stored last decides."""
        stored = ((event.message, event.origin, event.groups) for event in self.events if event.message is not None)
        return tuple(replace(each, number=self.number) for each in group_verdicts(stored))


@dataclass(frozen=True)
class MessageLife:
    """The events of all messages that a unique key names, in order of time; `incomplete` says what may be missing.

    Mostly that is one message. Where it is several, `stories` tells each of them alone. `notes`, sentences, say what
    is not read of the topics and groups that it is about.
    """

    events: tuple[Event, ...]
    incomplete: str | None = None
    transactions: tuple[str | None, ...] = ()
    """How the transaction of each message ended."""
    notes: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    """Where a text named the message that is no unique key: those of all that it names, this one's first."""
    reason: str = ""
    """Why there is nothing to tell; empty where there is something."""

    @cached_property
    def stories(self) -> tuple[Story, ...]:
        """The messages by their numbers, each with its events; traces of which it is not known belong to none."""
        found: dict[int, list[Event]] = {}
        for event in self.events:
            if event.number is not None:
                found.setdefault(event.number, []).append(event)
        return tuple(self._story(number, found[number]) for number in sorted(found))

    def _story(self, number: int, events: Sequence[Event]) -> Story:
        stored = [(event.message, event.origin) for event in events if event.message is not None]
        topics = (origin.topic for _, origin in stored if origin is not None and origin.topic is not None)
        born = min((message.born_timestamp for message, _ in stored), default=events[0].timestamp)
        transaction = self.transactions[number - 1] if number <= len(self.transactions) else None
        return Story(number, next(topics, None), born, tuple(events), transaction)

    @property
    def verdicts(self) -> tuple[GroupVerdict, ...]:
        """The verdict of every group that met a message, by the messages' numbers and by name."""
        return tuple(verdict for story in self.stories for verdict in story.verdicts)


def find_life(
    store: MessageStore,
    unique_key: str,
    topic: str | None = None,
    trace_topics: Iterable[str] = (),
    *,
    waits: bool = True,
    committed: Committed | None = None,
    filters: Filters | None = None,
    mask: Mask = NO_MASK,
) -> MessageLife:
    """Find every record and every trace of the message with a unique key; in a topic, or in all. Waits for the disk.

    Traces are looked for under the usual topics and under ``trace_topics``. With ``waits`` off a scan that is not
    finished is not waited for: ``incomplete`` says so. ``committed`` knows how far groups have come, by default the
    store's own file of offsets, and ``filters`` what they subscribe to, by default the expressions that the store has.
    What ``mask`` hides is hidden in records and traces; raises ConfigError for a unique key that it hides.
    """
    mask.refuse_value("unique_key", unique_key)
    if waits:
        store.finish_scan()
    topics = [topic, *copy_topics(store)] if topic else [*store.queues.topics(), *store.config.topics]
    records: dict[tuple[int, int], Message] = {}
    named = {unique_key: None}
    incomplete = None if topic else store.queues.why_unknown()
    if committed is None:
        incomplete = incomplete or _why_groups_are_unknown(store)
        committed = _stored_offsets(store)
    for name in sorted(set(topics)):
        question = Question(topic=name, text=unique_key, kind=KeyKind.UNIQUE, maximum=MOST_COPIES)
        answer = store.query(question)
        for record in decode_messages(answer.records):
            found = question.messages_in(record)
            records.update(((each.physical_offset, each.queue_offset), each) for each in found)
            named.update(dict.fromkeys(ids_of_batch(store, record, found)))
        incomplete = joined_clauses((incomplete, answer.incomplete))
    origins = Origins(store)
    messages = told_apart((message, origins.found(message, store.query)) for message in records.values())
    teller = _Teller(store, messages, committed, filters or registered_filters(store.config))
    stored = [event for number, records_of in enumerate(messages, 1) for event in teller.events(number, records_of)]
    # Sorting keeps the order of the log among records of one moment.
    stored.sort(key=lambda event: event.message.physical_offset if event.message else 0)
    traced = (_numbered(event, messages) for event in _traces(store, named, trace_topics))
    events = sorted(chain(stored, traced), key=lambda event: event.timestamp)
    about = {name for each in messages for message, origin in each for name in (message.topic, origin.topic) if name}
    return MessageLife(
        tuple(_shown(event, mask) for event in events),
        joined_clauses((incomplete, teller.incomplete)),
        tuple(teller.transactions),
        (*store.config.notes_of_topics(about or topics), *store.config.unread_of_groups(about or topics)),
    )


def _numbered(event: Event, messages: Sequence[Sequence[Record]]) -> Event:
    """Say of a trace which message it is of: the only one, or the only one of its topic."""
    assert event.trace is not None
    topic = event.trace.topic
    numbers = [
        number
        for number, records in enumerate(messages, 1)
        if len(messages) == 1 or any(origin.topic == topic for _, origin in records)
    ]
    return replace(event, number=numbers[0] if len(numbers) == 1 or not messages else None) if messages else event


def _shown(event: Event, mask: Mask) -> Event:
    if event.message is not None:
        return replace(event, message=mask.message(event.message)) if mask else event
    trace = event.trace
    if trace is None or not mask.changes:
        return event
    # It stood in a body that is hidden whole. The id of the request begins with the consumer's address.
    host, request = (text and MASKED for text in (trace.client_host, trace.request_id))
    return replace(event, trace=msgspec.structs.replace(trace, client_host=host, request_id=request))


class _Teller:
    """Makes the events of messages of their records; `transactions` are how those of the messages ended."""

    def __init__(
        self, store: MessageStore, records: Sequence[Sequence[Record]], committed: Committed, filters: Filters
    ) -> None:
        self._store, self._committed, self._filters = store, committed, filters
        self._messages = [message for each in records for message, _ in each]
        self.transactions: list[str | None] = []
        self.incomplete: str | None = None

    def events(self, number: int, records: Sequence[Record]) -> Iterator[Event]:
        """The events of one message; its records are in the order of the log."""
        messages = [message for message, _ in records]
        ends, delivered, again = endings(self._store, messages), deliveries(messages), rolled(messages)
        self.transactions.append(summary(messages, ends))
        withheld = {
            (origin.group, message.reconsume_times - 1)
            for message, origin in records
            if stage_of(message.topic) is Stage.DEAD_LETTER and is_withheld(message)
        }
        for message, origin in records:
            groups = tuple(self._progress(message, origin, records))
            event = Event(message.store_timestamp, message, origin, groups=groups, number=number)
            stage, place = stage_of(message.topic), message.physical_offset
            if stage is Stage.SCHEDULED:
                event = self._scheduled(message, event, is_delivered=place in delivered)
            elif stage is Stage.TIMER:
                is_rolled = place in again
                note = state_of_timer(self._store, message, is_delivered=place in delivered, is_rolled=is_rolled)
                due = message.properties.get(TIMER_OUT_MS, "")
                until = int(due) if due.isdecimal() and len(due) < 19 else None
                event = replace(event, note=note, until_timestamp=until)
            elif stage is Stage.HALF:
                end = ends[place]
                event = replace(event, note=end.text, until_timestamp=end.timestamp)
            elif stage is Stage.DISCARDED:
                event = replace(event, note="no consumer gets it")
            elif stage is Stage.DEAD_LETTER:
                ended = verdict_of_failure(message, origin)
                event = replace(event, note=f"{ended.group} {ended.text}" if ended else "")
            elif stage is Stage.RETRY and (origin.group, message.reconsume_times) in withheld:
                event = replace(event, note="withheld by a proxy: the group had no more attempts")
            yield event

    @cached_property
    def _pops(self) -> PopLog | None:
        """The notes of pops that were stored since the first record was; None where they cannot be read."""
        first = min(message.physical_offset for message in self._messages)
        try:
            found = PopLog(self._store, first, sorted({message.topic for message in self._messages}))
        except StoreError as error:
            self.incomplete = str(error)
            return None
        self.incomplete = found.note
        return found

    def _scheduled(self, message: Message, event: Event, *, is_delivered: bool) -> Event:
        """Add the delay level of a copy, when it is due, and whether the broker has delivered it."""
        try:
            queue = self._store.queues.queue(message.topic, message.queue_id)
            place = message.queue_offset, message.physical_offset, message.store_timestamp
            until = due_by_unit(queue, *place) if queue else None
            state = state_of_level(self._store, message, is_delivered=is_delivered)
        except StoreError:  # when it is due is left out
            until, state = None, ", delivered" if is_delivered else ""
        return replace(event, note=f"delay level {message.queue_id + 1}{state}", until_timestamp=until)

    def _progress(self, message: Message, origin: Origin, records: Sequence[Record]) -> Iterator[GroupProgress]:
        """The groups that read the record's queue, by name: no broker's own, of a retry topic its own alone."""
        is_retry = stage_of(message.topic) is Stage.RETRY
        for group, next_offset in self._committed(message.topic, message.queue_id):
            if group.startswith(SYSTEM_GROUP_PREFIX) or (is_retry and not origin.may_be_of(group)):
                continue
            if next_offset <= message.queue_offset:
                yield GroupProgress(group, next_offset, has_passed=False, passage=Passage.AHEAD)
                continue
            passage, until = self._passage(message, group, records)
            has_passed = passage not in (Passage.POPPED, Passage.UNKNOWN)
            yield GroupProgress(group, next_offset, has_passed, passage, until)

    def _passage(self, message: Message, group: str, records: Sequence[Record]) -> tuple[Passage, int | None]:
        """Return what a group did with a record that its offset is beyond; for a popped one also when it comes back."""
        came_back = any(
            later.physical_offset > message.physical_offset
            and later.reconsume_times > message.reconsume_times
            and origin.group == group
            for later, origin in records
        )
        pops = self._pops
        place = group, message.topic, message.queue_id, message.queue_offset
        popped = None if pops is None else pops.popped(*place)
        if popped is not None:
            if came_back:
                return Passage.CAME_BACK, None
            if popped.is_acknowledged:
                return Passage.ACKNOWLEDGED, None
            return Passage.POPPED, popped.revive_timestamp
        if came_back:
            return Passage.CONSUMED, None
        if may_pop(self._store, group, message.topic):
            return Passage.UNKNOWN, None
        if stage_of(message.topic) is Stage.RETRY:
            return Passage.CONSUMED, None
        known = self._filters(group, message.topic)
        passes = None if known is None else known.lets_through(message)
        if passes is None:
            return Passage.BEYOND, None
        return (Passage.CONSUMED if passes else Passage.SKIPPED), None


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


def _traces(store: MessageStore, ids: Iterable[str], trace_topics: Iterable[str]) -> Iterator[Event]:
    """Return the traces of clients; the end of a consumption that has no time takes that of its beginning.

    `ids` are the message's, first its own, then those that a producer may have traced the batch by that it was sent in.
    """
    known = (name for name in store.queues.topics() if name == TRACE_TOPIC or name.startswith(TRACE_TOPIC_PREFIX))
    began: dict[str, Trace] = {}
    for topic in sorted({*known, *trace_topics}):
        for message, text in _trace_messages(store, topic, ids):
            for trace in _traces_in(message):
                if trace.message_id != text:
                    continue
                if trace.kind is TraceKind.CONSUMING and trace.request_id:
                    began[trace.request_id] = trace
                yield _trace_event(trace, began.get(trace.request_id or ""), message)


def _trace_messages(store: MessageStore, topic: str, ids: Iterable[str]) -> Iterator[tuple[Message, str]]:
    for text in ids:
        answer = store.query(Question(topic=topic, text=text, kind=KeyKind.KEY, maximum=MOST_COPIES))
        yield from ((message, text) for message in decode_messages(answer.records))


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
