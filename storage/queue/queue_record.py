"""Finds out whether a record of the commit log is a message of a queue, and its queue offset.

A unit only points to a record; the record itself has its topic, queue id and queue offset. The two can disagree: when a
log was cut and written anew, units of the older log remain after a queue's end (store-format §6.3, §6.6).
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import Final

from protocol.errors import StoreError
from protocol.java_hash import java_hash
from protocol.message_layout import INT, SYS_FLAG_POSITION, PartPlaces, locate
from protocol.properties import (
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    TAGS,
    integer_in,
    property_value,
)
from protocol.sys_flag import TRANSACTION_MASK, SysFlag
from protocol.system_topics import LIGHT_PREFIX

QUEUE_ID_POSITION: Final = 12
_LIST_SEPARATOR: Final = ","
_COUNT_BITS: Final = 16
_OFFSET_BITS: Final = 64


class QueueName:
    """Topic and queue id in the form in which records have them, to compare with many records.

    `topic_bytes` is the topic's UTF-8.
    """

    __slots__ = ("_queue_id", "queue_id", "topic", "topic_bytes")

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.topic_bytes = topic.encode("utf-8", "surrogateescape")
        self._queue_id = INT.pack(queue_id)

    @property
    def is_light(self) -> bool:
        """Whether this is a light queue: its records name it among several queues, and have another topic."""
        return self.topic.startswith(LIGHT_PREFIX)

    def owns(self, record: memoryview) -> bool:
        """Whether an intact record is a message of this queue, as its own queue or as one of several."""
        places = _places_of(record)
        return places is not None and (
            self._is_named_by(record, places) or self._dispatched_offset(record, places) is not None
        )

    def offset_in(self, record: memoryview, physical_offset: int) -> int | None:
        """Return the queue offset in this queue of the record at a physical offset, None if it is not its message."""
        places = _places_of(record)
        if places is None:
            return None
        own_offset: int
        _, _, _, _, _, own_offset, own_place, *_ = places.fixed.unpack_from(record)
        if own_place != physical_offset:
            return None
        dispatched = self._dispatched_offset(record, places)
        return own_offset if dispatched is None and self._is_named_by(record, places) else dispatched

    def _is_named_by(self, record: memoryview, places: PartPlaces) -> bool:
        """Whether a record has this topic and queue id."""
        if record[QUEUE_ID_POSITION : QUEUE_ID_POSITION + INT.size] != self._queue_id:
            return False
        return record[places.topic : places.topic + places.topic_length] == self.topic_bytes

    def _dispatched_offset(self, record: memoryview, places: PartPlaces) -> int | None:
        """The offset in this queue of a message that names it among several queues (store-format §2.10), or None."""
        return next((offset for name, offset in dispatched_places(record, places) if name == self.topic), None)


def _places_of(record: memoryview) -> PartPlaces | None:
    """Return the places of the parts of a record of sound shape; None if it has changed since it was checked."""
    with suppress(StoreError):
        return locate(record)
    return None


def dispatched_places(record: memoryview | bytes, places: PartPlaces) -> Iterator[tuple[str, int | None]]:
    """Yield the queues that a record names besides its own, each with its offset there (store-format §2.10)."""
    properties = record[places.properties : places.total_size]
    names = property_value(properties, INNER_MULTI_DISPATCH)
    if names is not None:
        offsets = (property_value(properties, INNER_MULTI_QUEUE_OFFSET) or "").split(_LIST_SEPARATOR)
        for name, offset in zip_longest(names.split(_LIST_SEPARATOR), offsets):
            if name is not None:
                yield name, _number(offset, _OFFSET_BITS)


def tags_code_of(record: memoryview) -> int:
    """Return the tags code that the unit of a record of sound shape should have."""
    places = locate(record)
    tag = property_value(record[places.properties : places.total_size], TAGS)
    return java_hash(tag) if tag else 0


def batch_in(record: memoryview, queue_offset: int) -> tuple[int, int]:
    """Return the queue offset of the first message in a record of sound shape, and the number of its messages.

    A record that is no batch has one message, with ``queue_offset``; the same is returned for one that has changed
    since it was checked, and for one that a broker would not dispatch, since it reads the number as a short.
    """
    places = _places_of(record)
    if places is None:
        return queue_offset, 1
    properties = record[places.properties : places.total_size]
    base = _number(property_value(properties, INNER_BASE), _OFFSET_BITS)
    number = _number(property_value(properties, INNER_NUM), _COUNT_BITS)
    return (queue_offset, 1) if base is None or number is None else (base, number)


def _number(text: str | None, bits: int) -> int | None:
    """What a broker reads as a number that cannot be negative."""
    number = integer_in(text, bits)
    return None if number is None or number < 0 else number


def queue_place(record: memoryview) -> tuple[int, int, str] | None:
    """Return queue id, queue offset and topic of a record of sound shape; `record` may be longer than the record.

    Bytes of a topic that are not valid UTF-8 are decoded as in file names. None if the record has changed since it was
    checked.
    """
    places = _places_of(record)
    if places is None:
        return None
    _, _, _, queue_id, _, queue_offset, *_ = places.fixed.unpack_from(record)
    topic = bytes(record[places.topic : places.topic + places.topic_length])
    return queue_id, queue_offset, topic.decode("utf-8", "surrogateescape")


def is_queued(record: memoryview) -> bool:
    """Whether a record gets a unit in its queue; it gets none if its transaction is open or was rolled back."""
    (sys_flag,) = INT.unpack_from(record, SYS_FLAG_POSITION)
    return sys_flag & TRANSACTION_MASK in (0, SysFlag.TRANSACTION_COMMIT)
