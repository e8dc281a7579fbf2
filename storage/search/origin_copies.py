"""The copies of a message that is gone: retries and dead letters say by what id they were sent back.

A broker puts the offset message id of the record that a consumer sent back into the property ORIGIN_MESSAGE_ID of the
copy, and from 5.0 on into DLQ_ORIGIN_MESSAGE_ID of a dead letter; no index has it. So the messages of retry and
dead-letter topics are gone through, the newest of each queue first, and not more than `MOST_LOOKED_AT`.
"""

from collections.abc import Callable, Iterator
from typing import Final

from protocol.errors import BeingSearched, StoreError
from protocol.message import Message, decode_message
from protocol.properties import DLQ_ORIGIN_MESSAGE_ID, ORIGIN_MESSAGE_ID
from protocol.system_topics import Stage, stage_of
from storage.queue.queue_messages import records_between
from storage.store.message_store import MessageStore

MOST_LOOKED_AT: Final = 20_000
AT_ONCE: Final = 64
STAGES: Final = (Stage.DEAD_LETTER, Stage.RETRY)


def names_as_origin(message: Message, message_id: str) -> bool:
    """Whether a message says that it is a copy of the record with an offset message id."""
    said = (message.properties.get(name, "") for name in (ORIGIN_MESSAGE_ID, DLQ_ORIGIN_MESSAGE_ID))
    return message_id.upper() in (each.upper() for each in said)


def copies_of(
    store: MessageStore, message_id: str, is_time_up: Callable[[], bool] = lambda: False
) -> Iterator[Message]:
    """Yield the dead letters, then the retries, that name an offset message id as their origin. Waits for the disk.

    It ends early when `is_time_up`, or when enough was looked at.
    """
    left = MOST_LOOKED_AT
    topics = [topic for stage in STAGES for topic in sorted(store.queues.topics()) if stage_of(topic) is stage]
    for topic in topics:
        try:
            for queue in store.queues.queues_of(topic):
                own = queue.parts[-1]
                assert own.queue is not None  # no queue ends with a gap
                end = own.stop
                while end > own.first and left > 0 and not is_time_up():
                    start = max(own.first, end - AT_ONCE)
                    for _, record in reversed(list(records_between(own.queue, start, end))):
                        message = decode_message(record, check_crc=False)
                        if names_as_origin(message, message_id):
                            yield message
                    left, end = left - (end - start), start
        except (StoreError, BeingSearched):  # its queues cannot be read, or not yet
            continue


def say_copies(copies: list[Message]) -> str:
    """Which copies there are, and where, as a clause."""
    return ", ".join(f"the {stage_of(each.topic).value} at {each.physical_offset}" for each in copies)
