"""The ids that a producer traces a batch by: with one trace for all of its messages, which names them together.

A batch in one record has an id of its own, which its trace has. One that the broker has stored as records of their own
is traced by the ids of its messages with commas between them. Nothing in these records says that they were one batch:
they are neighbours in their queue, of one sender, born and stored at one moment (store-format §2.2). Of a longer run,
as where a producer sent two batches in a millisecond, each part that the message lies in may be its batch.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from protocol.errors import StoreError
from protocol.message import Message, decode_message
from protocol.sys_flag import has_inner_messages
from protocol.system_topics import Stage, stage_of
from storage.store.message_store import MessageStore

MOST_MESSAGES: Final = 992
"""Ids that fit into the properties of a trace, all of which it has as one key."""

MOST_PARTS: Final = 64
"""Parts of a run of neighbours that are tried, the longest first."""


def ids_of_batch(store: MessageStore, record: Message, found: Sequence[Message]) -> list[str]:
    """The ids by which the batch of a record may have been traced, if it is of one; `found` are the messages in it."""
    if has_inner_messages(record.sys_flag):
        every = [record.unique_key, *(message.unique_key for message in found)]
        return [each for each in every if each is not None]
    if stage_of(record.topic) is not Stage.DELIVERED:
        return []
    before, after = _neighbours(store, record, -1), _neighbours(store, record, 1)
    ids = [each.unique_key or "" for each in (*reversed(before), record, *after)]
    return [",".join(ids[start:stop]) for start, stop in islice(_parts(len(before), len(ids)), MOST_PARTS)]


def _parts(place: int, count: int) -> Iterator[tuple[int, int]]:
    """The parts of a run in which a message lies with another, the longest and first ones first: start and stop."""
    for length in range(count, 1, -1):
        for start in range(max(place + 1 - length, 0), min(place, count - length) + 1):
            yield start, start + length


def _neighbours(store: MessageStore, record: Message, step: int) -> list[Message]:
    """The messages beside one in its queue, the nearest first, that may have come with it."""
    try:
        return list(_walk(store, record, step))
    except StoreError:  # it is not known which they are
        return []


def _walk(store: MessageStore, record: Message, step: int) -> Iterator[Message]:
    queue = store.queues.queue(record.topic, record.queue_id)
    for number in range(1, MOST_MESSAGES if queue is not None else 0):
        place = None if queue is None else queue.message_in_log(record.queue_offset + step * number)
        found = None if place is None else store.record_at(place)
        if found is None:
            return
        message = decode_message(found, check_crc=False)
        if _moment(message) != _moment(record) or not message.unique_key:
            return
        yield message


def _moment(message: Message) -> tuple[object, ...]:
    return message.topic, message.queue_id, message.born_host, message.born_timestamp, message.store_timestamp
