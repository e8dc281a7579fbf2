"""What waits in a store, in plain Python and by the records alone: the judge of `storage.life.pending`."""

from collections.abc import Iterable
from dataclasses import dataclass

from oracles import Record, delay_milliseconds

TIMER, SCHEDULE = "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"


@dataclass(frozen=True)
class Judged:
    """A record in one of these topics that is not delivered; `fate` as the product names it, or rolled, or cancel."""

    due: int
    physical_offset: int
    topic: str
    fate: str


def judge(
    records: Iterable[Record], timer_check: tuple[int, int] | None, level_offsets: dict[int, int] | None
) -> list[Judged]:
    """Every record that waits, ascending by due time and place.

    `timer_check` is the time and queue offset of config/timercheck, `level_offsets` those of delayOffset.json; None for
    a file that is missing, so that the newest store time decides.
    """
    everything = list(records)
    last = max((record.store_timestamp for record in everything), default=0)
    left = []
    for record in everything:
        if record.topic == SCHEDULE:
            level = record.queue_id + 1
            due = record.store_timestamp + delay_milliseconds(level)
            next_offset = 0 if level_offsets is None else level_offsets.get(level, 0)
            end = sum((each.topic, each.queue_id) == (SCHEDULE, record.queue_id) for each in everything)
            is_missed = next_offset > end and is_undelivered(record, everything)
            if is_missed or (due > last if level_offsets is None else record.queue_offset >= next_offset):
                fate = "overdue" if due <= last or is_missed else "waiting"
                left.append(Judged(due, record.physical_offset, record.properties["REAL_TOPIC"], fate))
    timers = []
    for record in everything:
        if record.topic == TIMER:
            due = int(record.properties["TIMER_OUT_MS"])
            time, offset = timer_check or (last + 1, 1 << 62)
            is_ahead = timer_check is not None and offset > sum(each.topic == TIMER for each in everything)
            is_missed = is_ahead and ("TIMER_DEL_UNIQKEY" in record.properties or is_undelivered(record, everything))
            if due >= time or record.queue_offset >= offset or is_missed:
                timers.append((record, due, due < time))
    for record, due, is_late in timers:
        properties = record.properties
        key, rolls = properties.get("UNIQ_KEY"), int(properties.get("TIMER_ROLL_TIMES", "0"))
        fate = "overdue" if is_late else "waiting"
        for other, other_due, _ in timers:
            if other_due == due and key is not None:
                said = other.properties.get("TIMER_DEL_UNIQKEY")
                if said in (key, f"{properties['REAL_TOPIC']}+{key}"):
                    fate = "cancelled"
        if "TIMER_DEL_UNIQKEY" in properties:
            fate = "cancel"
        for other, other_due, _ in timers:
            is_same = key is not None and other.properties.get("UNIQ_KEY") == key and other_due == due
            if is_same and int(other.properties.get("TIMER_ROLL_TIMES", "0")) > rolls:
                fate = "rolled"
        left.append(Judged(due, record.physical_offset, properties["REAL_TOPIC"], fate))
    return sorted(left, key=lambda each: (each.due, each.physical_offset))


def is_undelivered(record: Record, everything: Iterable[Record]) -> bool:
    """Whether a record that waits has a unique key, and no later record of its topic has that."""
    key, topic = record.properties.get("UNIQ_KEY"), record.properties["REAL_TOPIC"]
    return key is not None and not any(
        (each.topic, each.properties.get("UNIQ_KEY")) == (topic, key) and each.physical_offset > record.physical_offset
        for each in everything
    )
