"""Whether messages that waited were delivered, by the records that were stored later.

A broker's own numbers say how far it has come, `config/delayOffset.json` for delay levels and `config/timercheck` for
timer messages. They may be newer than the files of the queues, or come from another store, and then count messages as
delivered that nobody got. The record of a delivery is stored after the one that waited, under the topic that this one
names, with the same unique key, and as often delivered.
"""

from collections.abc import Sequence
from typing import Final

from protocol.errors import StoreError
from protocol.message import Message
from protocol.properties import REAL_TOPIC, TIMER_OUT_MS, TIMER_ROLL_TIMES
from protocol.system_topics import Stage, stage_of
from storage.layout.store_config import DELAY_OFFSETS
from storage.layout.timer_check import TIMER_CHECK_FILE, TimerCheck
from storage.queue.queue import Queue
from storage.store.message_store import MessageStore

WAITING: Final = (Stage.SCHEDULED, Stage.TIMER)


def deliveries(records: Sequence[Message]) -> dict[int, Message]:
    """The record of the delivery of each record that waited, by physical offset; `records` are those of one message.

    They are in the order of the log; of several that waited alike the first was delivered first.
    """
    found: dict[int, Message] = {}
    taken: set[int] = set()
    again = rolled(records)
    for number, waiting in enumerate(records):
        if stage_of(waiting.topic) not in WAITING or waiting.physical_offset in again:
            continue
        topic = waiting.properties.get(REAL_TOPIC)
        for later in records[number + 1 :]:
            is_so = later.topic == topic and later.reconsume_times == waiting.reconsume_times
            if is_so and later.physical_offset not in taken:
                taken.add(later.physical_offset)
                found[waiting.physical_offset] = later
                break
    return found


def rolled(records: Sequence[Message]) -> frozenset[int]:
    """The physical offsets of timer messages that were stored again, because their time is far."""
    found = []
    for number, waiting in enumerate(records):
        if stage_of(waiting.topic) is Stage.TIMER and any(
            stage_of(later.topic) is Stage.TIMER
            and later.properties.get(TIMER_OUT_MS) == waiting.properties.get(TIMER_OUT_MS)
            and _rolls(later) > _rolls(waiting)
            for later in records[number + 1 :]
        ):
            found.append(waiting.physical_offset)
    return frozenset(found)


def _rolls(waiting: Message) -> int:
    text = waiting.properties.get(TIMER_ROLL_TIMES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def due_by_unit(queue: Queue, queue_offset: int, physical_offset: int, store_timestamp: int) -> int | None:
    """Return when a broker delivers a message of a delay level, which its unit has in the place of a tag (ms).

    None where the unit is damaged or lost.
    """
    entry = queue.entry_at(queue_offset)
    is_sound = entry is not None and entry.physical_offset == physical_offset and entry.tags_code >= store_timestamp
    return entry.tags_code if entry is not None and is_sound else None


def state_of_level(store: MessageStore, waiting: Message, *, is_delivered: bool) -> str:
    """Say, behind a comma, what became of a message that waited for a delay level; "" if that is not known."""
    if is_delivered:
        return ", delivered"
    level = waiting.queue_id + 1
    next_offset = store.config.delay_offsets.get(level)
    if next_offset is None:
        return ""
    if next_offset <= waiting.queue_offset:
        return ", not delivered yet"
    queue = store.queues.queue(waiting.topic, waiting.queue_id)
    if queue is not None and next_offset > queue.max_offset:
        file = store.layout.config / DELAY_OFFSETS
        ahead = f"{file.name} is ahead of the level's queue ({next_offset} > {queue.max_offset})"
        return f", not delivered: {ahead}, and no record of its delivery is there"
    return ", counted as delivered, but no record of its delivery is there"


def state_of_timer(store: MessageStore, waiting: Message, *, is_delivered: bool, is_rolled: bool) -> str:
    """Say what became of a timer message; "" if that is not known."""
    if is_delivered:
        return "delivered"
    if is_rolled:
        return "stored again, for its time is far"
    try:
        check = TimerCheck.read(store.layout.config / TIMER_CHECK_FILE)
    except StoreError:
        check = None
    due = waiting.properties.get(TIMER_OUT_MS, "")
    if check is None or not due.isdecimal():
        return ""
    queue = store.queues.queue(waiting.topic, waiting.queue_id)
    if queue is not None and check.last_queue_offset > queue.max_offset:
        ahead = f"{TIMER_CHECK_FILE} is ahead of the timer's queue ({check.last_queue_offset} > {queue.max_offset})"
        return f"not delivered: {ahead}, and no record of its delivery is there"
    if int(due) < check.last_read_timestamp and waiting.queue_offset < check.last_queue_offset:
        return "cancelled, or counted as delivered: no record of its delivery is there"
    return "not delivered yet"
