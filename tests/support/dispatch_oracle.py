"""What dispatch makes of a log, by loops and dictionaries from the reference alone: the oracle of the bulk jobs."""

import re
from dataclasses import dataclass, field

import oracles
from oracles import SCHEDULE_TOPIC, index_hash, index_keys, is_queued, packed, parse_properties, tags_code

NUMBER = re.compile(r"[+-]?[0-9]+")


def java_number(text: str, bits: int) -> int | None:
    """What `Short`, `Integer` or `Long.parse…` make of ASCII text, None for an exception."""
    if not NUMBER.fullmatch(text) or not -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
        return None
    return int(text)


def is_dispatched(record):
    properties = record.properties
    if record.topic == SCHEDULE_TOPIC and "DELAY" in properties and java_number(properties["DELAY"], 32) is None:
        return False
    if "INNER_NUM" in properties and "INNER_BASE" in properties:
        numbers = java_number(properties["INNER_NUM"], 16), java_number(properties["INNER_BASE"], 64)
        return None not in numbers
    return True


def split_java(text: str) -> list[str]:
    """`String.split(",")`: empty items at the end are dropped."""
    return [] if not text.strip(",") else text.rstrip(",").split(",")


def light_units(record):
    """Topic, queue id and queue offset of the light queues that a message is in, too (store-format §2.10).

    Their names are bytes as they stand, as topics are: those that are no UTF-8 are no names of directories.
    """
    properties, topic = parse_properties(record.properties_bytes.decode("utf-8", "surrogateescape")), record.topic
    names, offsets = properties.get("INNER_MULTI_DISPATCH", ""), properties.get("INNER_MULTI_QUEUE_OFFSET", "")
    if topic.startswith(("%RETRY%", "rmq_sys_")) or topic == SCHEDULE_TOPIC or not names.strip() or not offsets.strip():
        return
    if len(split_java(names)) != len(split_java(offsets)):
        return
    for name, text in zip(split_java(names), split_java(offsets), strict=True):
        offset = java_number(text, 64)
        if name and "/" not in name and offset is not None:
            yield name.encode("utf-8", "surrogateescape"), 0 if name.startswith("%LMQ%") else record.queue_id, offset


@dataclass
class QueueUnits:
    """The units of a queue as they are in its files, with their queue offsets and store times."""

    kind: int
    units: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)


@dataclass
class Dispatched:
    """What a log leads to: entries as (hash, physical offset, store time), and units by (topic, queue id, is light)."""

    entries: list[tuple[int, int, int]] = field(default_factory=list)
    queues: dict[tuple[bytes, int, bool], QueueUnits] = field(default_factory=dict)


def dispatch(records, *, profile="5.5", levels=oracles.DEFAULT_DELAY_LEVELS, lmq=False, batch_topics=()):
    made = Dispatched()
    for record in records:
        place = (record.physical_offset, record.store_timestamp)
        made.entries += [(index_hash(key), *place) for key in index_keys(record, profile)]
        if is_queued(record):
            for name, queue_id, kind, offset, unit in _units(record, levels, lmq, batch_topics):
                queue = made.queues.setdefault((name, queue_id, kind == 2), QueueUnits(kind))
                queue.units.append(unit)
                queue.offsets.append(offset)
                queue.timestamps.append(record.store_timestamp)
    return made


def _units(record, levels, lmq, batch_topics):
    unit = packed(record.physical_offset, 8) + packed(record.total_size, 4) + packed(tags_code(record, levels), 8)
    if record.topic_bytes in batch_topics:
        properties = record.properties
        count, base = 1, record.queue_offset  # so in 5.5.0, see the store g2-queues
        if "INNER_NUM" in properties and "INNER_BASE" in properties:
            count, base = int(properties["INNER_NUM"]), int(properties["INNER_BASE"])
        if count >= 0 and base >= 0:
            unit += packed(record.store_timestamp, 8) + packed(base, 8) + packed(count, 2)
            yield record.topic_bytes, record.queue_id, 1, base, unit + packed(-1, 4) + packed(0, 4)
        return
    yield record.topic_bytes, record.queue_id, 0, record.queue_offset, unit
    if lmq:
        for name, queue_id, offset in light_units(record):
            yield name, queue_id, 2, offset, unit
