"""How half messages ended: by the records that were stored of them later, and by the operations that name them.

A half message is committed when its message is stored again under its real topic, with the half's place in the log;
the broker then notes the half's queue offset in the topic of operations. It does so too where the transaction is rolled
back. A half that nobody ended is put back behind the others each time its producer is asked, and given up in
TRANS_CHECK_MAX_TIME_TOPIC after as many checks as are allowed. An answer that comes late may name the half that the
producer was asked for first: then one message has several ends, and all are said.

Source: TransactionalMessageServiceImpl, DefaultTransactionalMessageCheckListener and EndTransactionProcessor of
RocketMQ 5.5.0; other-formats §3.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from protocol.errors import BeingSearched, StoreError
from protocol.host_address import HostAddress
from protocol.message import Message, decode_message, decode_messages
from protocol.properties import REAL_TOPIC, TRAN_PREPARED_QUEUE_OFFSET, TRANS_OFFSET, TRANSACTION_CHECK_TIMES
from protocol.question import KeyKind, Question
from protocol.sys_flag import TRANSACTION_MASK, SysFlag
from protocol.system_topics import DISCARDED_TOPIC, OP_TOPICS, ROCKSDB_HALF_TOPIC, Stage, stage_of
from storage.amounts import counted
from storage.queue.queue import Queue, TimeBoundary
from storage.queue.queue_messages import records_between
from storage.store.message_store import MessageStore

OPERATIONS_SEARCHED: Final = 100_000
"""Operations that are looked through for those that ended some half messages."""

OPERATIONS_LISTED: Final = 1_000
"""Operations that are looked through for each half message of a list."""

MOST_KEYS: Final = 50
"""Half messages of a list whose ends are looked for."""

MOST_RECORDS: Final = 64
"""Records of one of them under one topic."""


@dataclass(frozen=True, slots=True)
class HalfEnding:
    """The end of a half message in words, and when its last event happened (ms, None if there was none)."""

    text: str
    timestamp: int | None = None


def endings(
    store: MessageStore | None, records: Sequence[Message], searched: int = OPERATIONS_SEARCHED
) -> dict[int, HalfEnding]:
    """Find the ends of the half messages among the records of one message, by physical offset. Waits for the disk.

    `records` are in the order of the log; at most `searched` operations are read. Without a store they are not looked
    for, and a half that only these could tell of is left out.
    """
    halves = [record for record in records if stage_of(record.topic) is Stage.HALF]
    found = {half.physical_offset: list(_ends_among(half, records)) for half in halves}
    put_back = list(_put_back(halves))
    for half, after in put_back:
        found[half.physical_offset].append((_words_of_check(half, after), after.store_timestamp))
    for half, given_up in _given_up(halves, records, {half.physical_offset for half, _ in put_back}):
        times = _check_times(half)
        asked = f"checked {counted(times, 'time')}, " if times else ""
        found[half.physical_offset].append((f"{asked}given up ({given_up.physical_offset})", given_up.store_timestamp))
    wanted = [half for half in halves if not any("committed" in words for words, _ in found[half.physical_offset])]
    why_unknown: dict[int, str] = {}
    ended = {} if store is None else _operations(store, wanted, searched, why_unknown)
    for half in wanted:
        if half.physical_offset in ended:
            found[half.physical_offset].append(("rolled back", ended[half.physical_offset]))
    reported = {place: _ending(ends) for place, ends in found.items() if ends}
    if store is not None:
        left = (place for place in found if place not in reported)
        reported |= {place: HalfEnding(why_unknown.get(place, "not ended")) for place in left}
    return reported


def outcomes_among(messages: Iterable[Message]) -> dict[tuple[HostAddress, int], str]:
    """How the half messages of a list ended, as far as the list has it; by their brokers and physical offsets.

    Not those that were rolled back or have no end, which only operations tell.
    """
    together: dict[tuple[HostAddress, str | None], dict[int, Message]] = {}
    for message in messages:
        own = together.setdefault((message.store_host, message.unique_key), {})
        own[message.physical_offset] = message
    return {
        (host, place): ending.text
        for (host, _), own in together.items()
        for place, ending in endings(None, [own[place] for place in sorted(own)]).items()
    }


def outcomes(store: MessageStore, messages: Iterable[Message]) -> dict[int, str]:
    """How the half messages of a list ended, by physical offset; those without a unique key are left out.

    Bounded: `MOST_KEYS` of them, and for each the records of its unique key in three topics and `OPERATIONS_LISTED`
    operations are looked at. Waits for the disk.
    """
    halves: dict[str, list[Message]] = {}
    for message in messages:
        if stage_of(message.topic) is Stage.HALF:
            record = store.record_at(message.physical_offset)  # a mask may hide the key of the one in the list
            whole = message if record is None else decode_message(record)
            if whole.unique_key:
                halves.setdefault(whole.unique_key, []).append(whole)
    found: dict[int, str] = {}
    for key, own in islice(halves.items(), MOST_KEYS):
        topics = {DISCARDED_TOPIC, *(half.topic for half in own), *(half.properties.get(REAL_TOPIC) for half in own)}
        records: dict[int, Message] = {}
        for topic in topics:
            if topic is not None:
                answer = store.query(Question(topic=topic, text=key, kind=KeyKind.UNIQUE, maximum=MOST_RECORDS))
                records |= {each.physical_offset: each for each in decode_messages(answer.records)}
        ends = endings(store, [records[place] for place in sorted(records)], OPERATIONS_LISTED)
        for half in own:
            if half.physical_offset in ends:
                found[half.physical_offset] = ends[half.physical_offset].text
    return found


def summary(records: Sequence[Message], ends: dict[int, HalfEnding]) -> str | None:
    """How the transaction of a message ended in all, every end of several; None for a message of none."""
    halves = [record for record in records if stage_of(record.topic) is Stage.HALF]
    if not halves:
        return None
    commits = sum(_is_commit(record) for record in records)
    said = [] if not commits else ["committed" if commits == 1 else f"committed {commits} times"]
    texts = [ends[half.physical_offset].text if half.physical_offset in ends else "" for half in halves]
    if any("rolled back" in text for text in texts):
        said.append("rolled back")
    if any(stage_of(record.topic) is Stage.DISCARDED for record in records):
        said.append("discarded")
    if any(text == "not ended" for text in texts):
        said.append("not ended" if not said else "one half not ended")
    return ", ".join(said) or None


def _ending(ends: list[tuple[str, int]]) -> HalfEnding:
    ends.sort(key=lambda each: each[1])
    return HalfEnding(", ".join(words for words, _ in ends), ends[-1][1])


def _ends_among(half: Message, records: Iterable[Message]) -> Iterator[tuple[str, int]]:
    """Say that and how often records commit a half message, and when the last one did; nothing without a commit."""
    commits = [
        record
        for record in records
        if _is_commit(record) and record.prepared_transaction_offset == half.physical_offset
    ]
    if commits:
        times = "" if len(commits) == 1 else f" {len(commits)} times"
        yield f"committed{times}", commits[-1].store_timestamp


def _is_commit(record: Message) -> bool:
    # Others than committed ones have 0 for the half's place, which is one too.
    return record.sys_flag & TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT and stage_of(record.topic) is not Stage.HALF


def _put_back(halves: Sequence[Message]) -> Iterator[tuple[Message, Message]]:
    """Each half message that was put back, and its copy: the next with one check more."""
    taken: set[int] = set()
    for number, half in enumerate(halves):
        for after in halves[number + 1 :]:
            is_next = after.born_timestamp == half.born_timestamp and _check_times(after) == _check_times(half) + 1
            if is_next and after.physical_offset not in taken:
                taken.add(after.physical_offset)
                yield half, after
                break


def _words_of_check(half: Message, after: Message) -> str:
    """How a half message was put back: for a check, or unchecked, because its producer asked to be left alone."""
    immune = TRAN_PREPARED_QUEUE_OFFSET
    is_unchecked = immune in after.properties and immune not in half.properties
    what = "put back unchecked" if is_unchecked else f"put back for check {_check_times(after)}"
    return f"{what} ({after.physical_offset})"


def _given_up(
    halves: Sequence[Message], records: Iterable[Message], put_back: set[int]
) -> Iterator[tuple[Message, Message]]:
    """Each half message that the broker gave up, and its record among those."""
    left = [record for record in records if stage_of(record.topic) is Stage.DISCARDED]
    for half in reversed(halves):
        if half.physical_offset in put_back:
            continue
        own = [
            record
            for record in left
            if record.physical_offset > half.physical_offset and record.born_timestamp == half.born_timestamp
        ]
        if own:
            left.remove(own[-1])
            yield half, own[-1]


def _check_times(half: Message) -> int:
    text = half.properties.get(TRANSACTION_CHECK_TIMES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _operations(
    store: MessageStore, halves: Sequence[Message], searched: int, why_unknown: dict[int, str]
) -> dict[int, int]:
    """When the operations were stored that name half messages, by the physical offsets of these.

    They are stored after a half message in the queue of the same number. They name queue offsets in their bodies, or in
    the topics of `transRocksDBEnable` a physical offset in a property.
    """
    found: dict[int, int] = {}
    places = {(half.topic, half.queue_id) for half in halves}
    for topic, queue_id in sorted(places):
        own = [half for half in halves if (half.topic, half.queue_id) == (topic, queue_id)]
        is_by_place = topic == ROCKSDB_HALF_TOPIC
        by_name = {str(half.physical_offset if is_by_place else half.queue_offset): half for half in own}
        try:
            queue = store.queues.queue(OP_TOPICS[topic], queue_id)
            if queue is None:
                continue
            first = queue.offset_by_timestamp(min(half.store_timestamp for half in own), TimeBoundary.LOWER)
            for message in _messages_from(queue, first, searched):
                for name in _named(message, is_by_place=is_by_place):
                    if name in by_name:
                        found.setdefault(by_name.pop(name).physical_offset, message.store_timestamp)
                if not by_name:
                    break
            if by_name and queue.max_offset > first + searched:
                why = f"how it ended is not known: {counted(searched, 'operation')} were searched"
                why_unknown |= {half.physical_offset: why for half in by_name.values()}
        except (StoreError, BeingSearched) as error:
            why_unknown |= {half.physical_offset: f"how it ended is not known: {error}" for half in own}
    return found


def _named(operation: Message, *, is_by_place: bool) -> list[str]:
    if is_by_place:
        return [operation.properties.get(TRANS_OFFSET, "")]
    return bytes(operation.stored_body).decode("ascii", "replace").split(",")


def _messages_from(queue: Queue, first: int, searched: int) -> Iterator[Message]:
    """The intact messages of a queue from an offset on, some at most. Raises BeingSearched."""
    for part in queue.parts:
        if part.queue is not None:
            stop = min(first + searched, part.stop)
            for place, record in records_between(part.queue, max(first, part.first), stop):
                yield decode_message(record, physical_offset=place)
