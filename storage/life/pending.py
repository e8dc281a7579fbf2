"""The messages of a store that wait: for a delay level, or for a point in time; by the topic they go to, and when.

They are found in the topics where they wait, in nothing else. Of a delay level those are left that lie at or behind the
level's offset in `config/delayOffset.json`; when one is due is in its queue unit. A timer message says when it is due.
Those that were due before the time in `config/timercheck` are delivered, unless they lie at or behind the queue offset
there, from which on the timer has read none. Where one of these files is missing, what was due when the last message of
the log was stored counts as delivered.

A message whose time is far is stored again from time to time, with the same unique key and one roll more: the one with
the most rolls waits. A timer message with TIMER_DEL_UNIQKEY cancels the one that has this unique key and is due in the
same moment; a broker with `appendTopicForTimerDeleteKey` expects the real topic and a plus sign before the key.

Both files may be newer than the queues that are there, or belong to others: a number beyond a queue's end says nothing.
Then what it counts as delivered is looked for in the log, by unique key, and what is not there is overdue.

Messages that a group popped and has not acknowledged come back too (:mod:`storage.life.pop_log`). The notes of pops,
which wait among the timer messages, are not messages of anybody.

What waits is collected in a temporary database, which lies on the disk but for a bounded part of it: so any number of
messages can be sorted and compared. Source: other-formats §5, store-format §2.11.
"""

import contextlib
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

from protocol.errors import RocketLensError, StoreError
from protocol.mask import NO_MASK, Mask
from protocol.message import Message, decode_message
from protocol.message_layout import locate
from protocol.properties import (
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
    parse_properties,
    property_value,
)
from protocol.question import KeyKind, Question
from protocol.system_topics import REVIVE_TOPIC_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from storage.amounts import counted
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels
from storage.layout.store_config import DELAY_OFFSETS
from storage.layout.timer_check import TIMER_CHECK_FILE, TimerCheck
from storage.layout.unread_parts import KV_DIRECTORY, has_kv_notes
from storage.life._deliveries import due_by_unit
from storage.life.origins import Origins
from storage.life.pop_log import PopLog, Popped
from storage.query.get_message import TRANSFER_BYTES, Lost, get_message
from storage.queue.queue_messages import records_between
from storage.store.message_store import MessageStore
from storage.times import LARGEST, format_timestamp

AT_ONCE: Final = 1000
"""Messages that are read of a queue before a look at whether to stop."""

CACHE_KIBIBYTES: Final = 32 * 1024
"""What the temporary database keeps in memory."""

TIMER_QUEUE: Final = 0
"""The one queue of the timer topic."""

EARLIEST: Final = -(2**63)
"""Before every time, in ms."""

MOST_CHECKED: Final = 10_000
"""Messages whose delivery is looked for, where a broker's number is beyond the end of their queue."""

MOST_RECORDS: Final = 16
"""Records of one unique key that are looked at for that."""

LONGEST_NUMBER: Final = 18
"""Digits of a number in a property that is believed."""

_TABLES: Final = """
CREATE TABLE waiting (
    due INTEGER, physical INTEGER, topic TEXT, level INTEGER, rolls INTEGER, size INTEGER, key TEXT, is_late INTEGER,
    state TEXT, owner TEXT, stored INTEGER
);
CREATE TABLE cancels (due INTEGER, name TEXT, PRIMARY KEY (due, name)) WITHOUT ROWID;
CREATE TABLE newest (due INTEGER, key TEXT, rolls INTEGER, PRIMARY KEY (due, key)) WITHOUT ROWID;
"""
_DECIDE: Final = """
UPDATE waiting SET state = CASE
    WHEN EXISTS (SELECT 1 FROM newest WHERE newest.due = waiting.due AND newest.key = waiting.key
                 AND newest.rolls > waiting.rolls) THEN 'rolled'
    WHEN state IN ('cancel', 'popped') THEN state
    WHEN EXISTS (SELECT 1 FROM cancels WHERE cancels.due = waiting.due
                 AND cancels.name IN (waiting.key, waiting.topic || '+' || waiting.key)) THEN 'cancelled'
    WHEN is_late THEN 'overdue'
    ELSE 'waiting' END
"""
_INDEX: Final = "CREATE INDEX by_due ON waiting (due, physical)"
"""Made when all rows are there: so a page neither scans nor sorts all of them."""
_COUNT: Final = """
SELECT topic, sum(state = 'waiting'), sum(state = 'overdue'), sum(state = 'cancelled'), sum(state = 'rolled'),
       sum(state = 'cancel'), sum(state = 'popped'),
       sum(CASE WHEN state IN ('waiting', 'overdue') THEN size ELSE 0 END),
       min(CASE WHEN state IN ('waiting', 'overdue') THEN due END),
       max(CASE WHEN state IN ('waiting', 'overdue') THEN due END)
FROM waiting WHERE due BETWEEN ?1 AND ?2 AND (?3 IS NULL OR topic = ?3) AND stored BETWEEN ?4 AND ?5 GROUP BY topic
ORDER BY sum(state IN ('waiting', 'overdue')) DESC, topic
"""
_LIST: Final = """
SELECT due, physical, rowid, topic, level, rolls, state, owner FROM waiting
WHERE state IN ('waiting', 'overdue', 'cancelled', 'popped') AND due BETWEEN ?1 AND ?2 AND (?3 IS NULL OR topic = ?3)
      AND stored BETWEEN ?4 AND ?5 AND (due, physical, rowid) > (?7, ?8, ?9)
ORDER BY due, physical, rowid LIMIT ?6
"""


_ROWS: Final = """
SELECT due, physical, topic, level, rolls, size, state, owner, stored FROM waiting WHERE rowid > ?
ORDER BY rowid LIMIT ?
"""

KnownRow: TypeAlias = tuple[int, int, str, int | None, int, int, str, str | None, int]
"""Due time, physical offset, topic, level, rolls, size, state, owner and store time of what was found."""

_Row: TypeAlias = tuple[int, int, str, int | None, int, int, str | None, bool, str | None, str | None, int]
"""A row of the table of what waits, in the order of its columns."""


ListedRow: TypeAlias = tuple[int, int, int, str, int | None, int, str, str | None]
"""Due time, physical offset, number, topic, level, rolls, state and owner, as a list has them."""

MessagesAt: TypeAlias = Callable[[Sequence[int]], list[Message | None]]
"""The messages at physical offsets, in their order; None where there is none."""

LISTED_AT_ONCE: Final = 32
"""Messages of a list that are asked for together."""

Place: TypeAlias = tuple[int, int, int]
"""Where a list goes on: due time, physical offset and number of a message."""


class PendingState(Enum):
    """What becomes of a message that lies in one of the topics where messages wait."""

    WAITING = "waiting"
    OVERDUE = "overdue"
    """It was due and is not delivered: the broker was stopped, or is behind."""
    CANCELLED = "cancelled"
    """It will not be delivered, for another message cancels it."""
    POPPED = "popped"
    """A group popped it and has not acknowledged it: it comes back to the group."""


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """One message that waits, as it is stored: `message` has the topic where it waits.

    It goes to `topic` at `due_timestamp`, in ms. `level` is its delay level, None for a timer message, of which `rolls`
    says how often it was stored again.

    One that is popped is stored where it was popped, and comes back to `group`.
    """

    state: PendingState
    due_timestamp: int
    topic: str
    level: int | None
    rolls: int
    message: Message
    group: str | None = None


@dataclass(frozen=True, slots=True)
class PendingTopic:
    """What waits for one topic. `size` are the bytes of the records of all that is `waiting` or `overdue`.

    Their due times, in ms, are between `first_due` and `last_due`, None where there are none. `rolled` are records of
    messages that were stored again since, `cancel_requests` those that cancel others: neither are delivered. `popped`
    messages were sent to the topic, and come back to a group that has not acknowledged them.
    """

    topic: str
    waiting: int
    overdue: int
    cancelled: int
    rolled: int
    cancel_requests: int
    popped: int
    size: int
    first_due: int | None
    last_due: int | None

    @property
    def pending(self) -> int:
        """How many messages will be delivered."""
        return self.waiting + self.overdue


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """Up to when deliveries are known, in ms. `timers` is None where the store has no timer message.

    `timers_known` and `levels_known`: by the broker's own files, and not just by the time of the last message.
    """

    log_timestamp: int
    timers: int | None
    timers_known: bool
    levels_known: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingWindow:
    """A window on messages that wait: one real topic or None, due times and store times in ms, both ends included."""

    topic: str | None = None
    due_after: int = EARLIEST
    due_before: int = LARGEST
    begin: int = EARLIEST
    end: int = LARGEST

    @property
    def asked(self) -> tuple[int, int, str | None, int, int]:
        """Return the window as parameters of the database."""
        return self.due_after, self.due_before, _storable(self.topic), self.begin, self.end


EVERYTHING: Final = PendingWindow()

BEGINNING: Final = (EARLIEST, 0, 0)
"""The place before every message."""


class _WaitingRecord(NamedTuple):
    """What a record says of itself; its properties are a block of bytes, its store time is in ms."""

    properties: bytes
    size: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int


class Pending:
    """All messages that wait in one snapshot of a store; a context manager. One thread may use it at a time.

    `as_of` says up to when deliveries are known, `incomplete` what may be missing.
    """

    def __init__(
        self,
        store: MessageStore,
        report: Callable[[int], None] = lambda _count: None,
        mask: Mask = NO_MASK,
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        """Read all that waits, which waits for the disk; `report` gets the number of messages that were read by then.

        Messages come without what `mask` hides of them; `finish` is called at the end of each list.

        What `report` raises ends the reading. Raises StoreError where a queue cannot be read, and RocketLensError where
        the temporary database cannot be written.
        """
        self._report, self._read_count = report, 0
        self._store, self._mask, self._finish = store, mask, finish
        self._messages_at: MessagesAt = self.messages_in_store
        self._open()
        self._lost: list[str] = []
        self._checked = 0
        try:
            with _database_errors():
                self._database.executescript(_TABLES)
                self.as_of = self._read()
                self._database.execute(_DECIDE)
                self._database.execute(_INDEX)
        except BaseException:
            self.close()
            raise
        self.incomplete = "; ".join(self._lost) or None

    @classmethod
    def of_rows(
        cls,
        rows: Iterable[KnownRow],
        as_of: DeliveryState,
        incomplete: str | None,
    ) -> "Pending":
        """What :meth:`rows` of another one gave, without the messages.

        Raises RocketLensError where the temporary database cannot be written.
        """
        self = cls.__new__(cls)
        self.as_of, self.incomplete = as_of, incomplete
        self._mask, self._finish = NO_MASK, lambda: None
        self._open()
        with _database_errors():
            self._database.executescript(_TABLES)
            self._database.executemany("INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, NULL, 0, ?, ?, ?)", rows)
            self._database.execute(_INDEX)
        return self

    def asking(self, messages_at: MessagesAt) -> Self:
        """This one, whose lists get their messages so."""
        self._messages_at = messages_at
        return self

    def _open(self) -> None:
        """Open a temporary database; one that nobody closes goes with this object."""
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._closes = weakref.finalize(self, self._database.close)
        with _database_errors():
            self._database.executescript(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}; PRAGMA journal_mode = OFF")

    def rows(self, behind: int, limit: int) -> list[KnownRow]:
        """All that was found, without the messages, `limit` rows at once: those whose numbers follow `behind`.

        The numbers are 1, 2, 3 and so on.
        """
        with _database_errors():
            return self._database.execute(_ROWS, (behind, limit)).fetchall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Delete the temporary database."""
        self._closes()

    def topics(self, window: PendingWindow = EVERYTHING) -> list[PendingTopic]:
        """What waits by real topic, those with the most messages first."""
        with _database_errors():
            rows = self._database.execute(_COUNT, window.asked).fetchall()
        return [PendingTopic(*row) for row in rows]

    def messages(self, window: PendingWindow = EVERYTHING, limit: int = -1) -> Iterator[PendingMessage]:
        """The messages, the next one that is due first; at most `limit` of them unless that is negative."""
        for rows in self.listed(window, limit):
            yield from self.joined(rows, self._messages_at([row[1] for row in rows]))
        self._finish()

    def listed(self, window: PendingWindow = EVERYTHING, limit: int = -1) -> Iterator[list[ListedRow]]:
        """The rows of a list, some at once, for who gets their messages elsewhere; the second of each is its place."""
        with _database_errors():
            rows = self._rows(window, limit, BEGINNING)
            while some := rows.fetchmany(LISTED_AT_ONCE):
                yield some

    def joined(self, rows: Sequence[ListedRow], messages: Sequence[Message | None]) -> Iterator[PendingMessage]:
        """Rows with their messages; one whose record was deleted meanwhile, with its segment, is left out."""
        for (due, _, _, topic, level, rolls, state, group), message in zip(rows, messages, strict=True):
            if message is not None:
                shown = self._mask.message(message)
                yield PendingMessage(PendingState(state), due, topic, level, rolls, shown, group)

    def page(
        self, window: PendingWindow, limit: int, behind: Place = BEGINNING
    ) -> tuple[list[PendingMessage], Place | None]:
        """At most `limit` messages, and what the next page is `behind`; None where nothing may follow.

        `behind` is the place of a message: only those that follow it. There may be fewer messages than `limit`, even
        none, although a page follows: records are deleted meanwhile.
        """
        with _database_errors():
            rows = self._rows(window, limit, behind).fetchall()
        found = list(self.joined(rows, self._messages_at([row[1] for row in rows])))
        return found, rows[-1][:3] if rows and len(rows) == limit else None

    def _rows(self, window: PendingWindow, limit: int, behind: Place) -> sqlite3.Cursor:
        """A list, as :data:`ListedRow`."""
        return self._database.execute(_LIST, (*window.asked, limit, *behind))

    def messages_in_store(self, places: Sequence[int]) -> list[Message | None]:
        """The messages at some physical offsets; None where there is none any more."""
        records = ((place, self._store.record_at(place)) for place in places)
        return [
            None if record is None else decode_message(record, physical_offset=place).detached()
            for place, record in records
        ]

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> DeliveryState:
        store = self._store
        log_timestamp = store.commit_log.last_store_timestamp()
        notes: list[str] = []
        if not {TIMER_TOPIC, SCHEDULE_TOPIC}.intersection(store.queues.topics()):
            store.queues.all_topics()  # raises where there may be such a topic that was not found
        unknown = store.queues.why_unknown()
        if unknown:
            self._lost.append(unknown)
        levels_known = self._read_levels(log_timestamp, notes)
        check, why = self._timer_check()
        has_timers = TIMER_TOPIC in store.queues.topics()
        if check is None:
            if has_timers:
                notes.append(f"{why}: timer messages {_count_as_delivered(log_timestamp)}")
        elif not has_timers and check.last_queue_offset > 0:
            self._lost.append(f"the store has no queue of {TIMER_TOPIC}, and its broker read {check.last_queue_offset} "
                              "messages there")  # fmt: skip
        if has_timers:
            self._read_timers(check or TimerCheck(log_timestamp + 1, LARGEST), is_known=check is not None)
        self._read_pops(notes)
        timers = check.last_read_timestamp if check else log_timestamp
        return DeliveryState(
            log_timestamp, timers if has_timers else None, check is not None, levels_known, tuple(notes)
        )

    def _timer_check(self) -> tuple[TimerCheck | None, str]:
        """What config/timercheck says, or why it says nothing."""
        path = self._store.layout.config / TIMER_CHECK_FILE
        try:
            return TimerCheck.read(path), f"{path} is missing or empty"
        except StoreError as error:
            return None, str(error)

    def _read_timers(self, check: TimerCheck, *, is_known: bool) -> None:
        """Collect the messages of the timer topic that are not delivered; `is_known`: the file says so."""
        undated = 0
        queue = self._store.queues.queue(TIMER_TOPIC, TIMER_QUEUE)
        is_ahead = is_known and queue is not None and check.last_queue_offset > queue.max_offset
        if is_ahead and queue is not None:
            self._lost.append(
                f"the queue of {TIMER_TOPIC} ends at {queue.max_offset}, and its broker read up to "
                f"{check.last_queue_offset}: what it did not deliver counts as overdue"
            )
        for records in self._records(TIMER_TOPIC, TIMER_QUEUE, 0):
            rows: list[_Row] = []
            cancels: list[tuple[int, str]] = []
            rolls: list[tuple[int, str, int]] = []
            for record in records:
                due = _number(property_value(record.properties, TIMER_OUT_MS))
                if due is None:
                    undated += 1
                    continue
                is_late = due < check.last_read_timestamp
                is_read = is_late and record.queue_offset < check.last_queue_offset
                if is_read and not is_ahead:
                    continue
                properties = parse_properties(record.properties)
                if properties.get(REAL_TOPIC, "").startswith(REVIVE_TOPIC_PREFIX):
                    continue
                cancelled = _storable(properties.get(TIMER_DEL_UNIQKEY))
                if is_read and cancelled is None and self._was_delivered(record, properties):
                    continue
                key, rolled = _storable(properties.get(UNIQ_KEY)), _number(properties.get(TIMER_ROLL_TIMES)) or 0
                if cancelled is not None:
                    cancels.append((due, cancelled))
                if rolled and key is not None:
                    rolls.append((due, key, rolled))
                topic = _storable(properties.get(REAL_TOPIC)) or TIMER_TOPIC
                state = None if cancelled is None else "cancel"
                place = due, record.physical_offset, topic, None
                rows.append((*place, rolled, record.size, key, is_late, state, None, record.store_timestamp))
            self._keep(rows)
            self._database.executemany("INSERT OR IGNORE INTO cancels VALUES (?, ?)", cancels)
            self._database.executemany(
                "INSERT INTO newest VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET rolls = max(rolls, excluded.rolls)",
                rolls,
            )
        if undated:
            self._lost.append(f"{counted(undated, 'record')} of {TIMER_TOPIC} without a time to be delivered")

    def _read_levels(self, log_timestamp: int, notes: list[str]) -> bool:
        """Collect the messages of all delay levels that are not delivered; whether the offsets of levels are known."""
        store, config = self._store, self._store.config
        why = None
        if config.is_unknown(DELAY_OFFSETS):
            why = f"what {store.layout.config / DELAY_OFFSETS} says is not known"
        elif not config.delay_offsets:
            why = _why_missing(store.layout.config / DELAY_OFFSETS)
        queue_ids: Iterable[int] = ()
        if SCHEDULE_TOPIC in store.queues.topics():
            queue_ids = store.queues.queue_ids(SCHEDULE_TOPIC)
        if why and queue_ids:
            notes.append(f"{why}: delayed messages {_count_as_delivered(log_timestamp)}")
        gone = [level for level, first in config.delay_offsets.items() if first > 0 and level - 1 not in queue_ids]
        if gone:
            levels = ", ".join(map(str, sorted(gone)))
            self._lost.append(
                f"the store has no queue of delay level {levels}, from which its broker delivered messages"
            )
        for queue_id in queue_ids:
            first = 0 if why else config.delay_offsets.get(queue_id + 1, 0)
            self._read_level(queue_id, first, log_timestamp, skips_late=why is not None)
        return why is None

    def _read_level(self, queue_id: int, first: int, log_timestamp: int, *, skips_late: bool) -> None:
        queue = self._store.queues.queue(SCHEDULE_TOPIC, queue_id)
        if queue is None:
            return
        is_ahead = False
        if first > queue.max_offset:
            self._lost.append(
                f"the queue of delay level {queue_id + 1} ends at {queue.max_offset}, and its broker delivered "
                f"messages up to {first}: what it did not deliver counts as overdue"
            )
            is_ahead, first = True, queue.min_offset
        guessed = 0
        for records in self._records(SCHEDULE_TOPIC, queue_id, first):
            rows: list[_Row] = []
            for record in records:
                due = due_by_unit(queue, record.queue_offset, record.physical_offset, record.store_timestamp)
                if due is None:
                    guessed += 1
                    due = min(record.store_timestamp + _usual_delay(queue_id + 1), LARGEST)
                if skips_late and due <= log_timestamp:
                    continue
                if is_ahead and self._was_delivered(record, parse_properties(record.properties)):
                    continue
                topic = _storable(property_value(record.properties, REAL_TOPIC)) or SCHEDULE_TOPIC
                is_late = due <= log_timestamp
                place = due, record.physical_offset, topic, queue_id + 1
                late = is_late or is_ahead
                rows.append((*place, 0, record.size, None, late, None, None, record.store_timestamp))
            self._keep(rows)
        if guessed:
            units = f"queue units of {counted(guessed, 'message')} of delay level {queue_id + 1}"
            self._lost.append(f"{units} are damaged: when they are due is taken from the usual delay levels")

    def _keep(self, rows: Iterable[_Row]) -> None:
        self._database.executemany("INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _was_delivered(self, record: _WaitingRecord, properties: Mapping[str, str]) -> bool:
        """Whether a later record of the real topic has the unique key of one that waits, or may have it.

        One without a key counts as delivered, and so do all that come after `MOST_CHECKED`.
        """
        key, topic = properties.get(UNIQ_KEY), properties.get(REAL_TOPIC)
        if not self._checked:
            self._store.finish_scan()
        self._checked += 1
        if not key or not topic or self._checked > MOST_CHECKED:
            return True
        found = self._store.query(Question(topic=topic, text=key, kind=KeyKind.UNIQUE, maximum=MOST_RECORDS))
        if found.incomplete and found.incomplete not in self._lost:
            self._lost.append(found.incomplete)
        return any(place > record.physical_offset for place in found.physical_offsets)

    def _read_pops(self, notes: list[str]) -> None:
        """Collect the messages that groups have popped and not acknowledged, by the broker's notes in the log."""
        if has_kv_notes(self._store.layout.root):
            notes.append(f"{KV_DIRECTORY}/ is not read: which messages are popped is known only of notes in the log")
        try:
            pops = PopLog(self._store)
        except StoreError as error:
            self._lost.append(str(error))
            return
        if pops.note:
            self._lost.append(pops.note)
        origins, gone = Origins(self._store), 0
        for popped in pops.all_out():
            message = self._popped_message(popped)
            if message is None:
                gone += 1
                continue
            topic = _storable(origins.of(message).topic) or message.topic
            place = popped.revive_timestamp, message.physical_offset, topic, None
            group, stored = _storable(popped.group), message.store_timestamp
            self._keep([(*place, 0, message.total_size, None, False, "popped", group, stored)])
        if gone:
            self._lost.append(f"the records of {counted(gone, 'message')} that are popped, are damaged or missing")

    def _popped_message(self, popped: Popped) -> Message | None:
        try:
            queue = self._store.queues.queue(popped.topic, popped.queue_id)
            own = None if queue is None else queue.parts[-1].queue
            place = popped.queue_offset, popped.queue_offset + 1
            found = None if own is None else next(records_between(own, *place), None)
        except StoreError:
            return None
        return None if found is None else decode_message(found[1])

    def _records(self, topic: str, queue_id: int, first: int) -> Iterator[list[_WaitingRecord]]:
        """The records of a queue from a queue offset on, some at once.

        What a consumer would get: where units are damaged, the log is searched for their messages.
        """
        lost: Lost | None = None
        unreadable = 0
        while True:
            self._report(self._read_count)
            result = get_message(self._store.queues, topic, queue_id, first, AT_ONCE, TRANSFER_BYTES)
            if result.lost is not None:
                lost = result.lost if lost is None else lost + result.lost
            if result.records or result.min_offset <= first < result.max_offset:
                gone = 0 if result.lost is None else result.lost.count
                unreadable += result.next_begin_offset - first - len(result.records) - gone
            self._read_count += len(result.records)
            yield [_waiting_record(record) for record in result.records]
            if result.next_begin_offset <= first:
                break
            first = result.next_begin_offset
        if lost is not None:
            self._lost.append(f"{topic}, queue {queue_id}: {lost}")
        if unreadable:
            records = f"the records of {counted(unreadable, 'message')} of {topic}, queue {queue_id}"
            self._lost.append(f"{records}, are damaged or missing")


@contextlib.contextmanager
def _database_errors() -> Iterator[None]:
    """Turn the errors of the temporary database into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise RocketLensError(
            f"the temporary database of what waits cannot be used: {error} (SQLITE_TMPDIR, else TMPDIR, says where it "
            "lies)"
        ) from error


def _waiting_record(record: memoryview) -> _WaitingRecord:
    places = locate(record)
    _, _, _, _, _, queue_offset, physical_offset, _, _, _, _, store_timestamp, *_ = places.fixed.unpack_from(record)
    block = bytes(record[places.properties : places.total_size])
    return _WaitingRecord(block, places.total_size, queue_offset, physical_offset, store_timestamp)


def _why_missing(path: Path) -> str | None:
    """A clause that says that a file is missing or cannot be looked for; None where it is there."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None


def _count_as_delivered(log_timestamp: int) -> str:
    return f"that were due when the last message was stored, {format_timestamp(log_timestamp)}, count as delivered"


def _storable(text: str | None) -> str | None:
    """A text as the database takes it: unpaired surrogates, of properties that are no UTF-8, become question marks."""
    return text if text is None or text.isascii() else text.encode("utf-8", "replace").decode()


def _usual_delay(level: int) -> int:
    """Milliseconds of a delay level as brokers have it that nobody configured; of one they lack, the longest."""
    levels = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    return levels[min(level, len(levels)) - 1]


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER
    return int(text) if text is not None and is_number else None
