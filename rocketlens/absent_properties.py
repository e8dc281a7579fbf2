"""Which properties of a SQL92 expression no message of a topic has, whatever the source."""

from typing import TYPE_CHECKING, Final

from protocol.errors import ConfigError
from storage.amounts import counted

if TYPE_CHECKING:
    from rocketlens.source import Source

MOST_LOOKED_AT: Final = 4096
"""Messages that are looked at, of each queue the newest ones."""

LEAST_OF_QUEUE: Final = 32


def note_of_properties(source: "Source", topic: str, sql: str) -> str:
    """Say which properties of an expression no message of a topic has; "" where each is in some message.

    Of a topic with more than `MOST_LOOKED_AT` messages the newest of each queue are looked at, which is said.
    """
    from storage.filter.absent_properties import named_properties, properties_in

    missing, looked, is_all = properties_in(sql), 0, True
    try:
        listed = source.queues(topic)
    except ConfigError:  # a source that has no queues, as a store at a URL
        return ""
    queues = [queue for queue in listed if queue.max_offset > queue.min_offset or queue.problem]
    share = max(MOST_LOOKED_AT // max(len(queues), 1), LEAST_OF_QUEUE)
    for queue in queues:
        place = max(queue.min_offset, queue.max_offset - share)
        is_all = is_all and place == queue.min_offset and not queue.problem
        while missing and not queue.problem and place < queue.max_offset and looked < 2 * MOST_LOOKED_AT:
            found = source.pull(topic, queue.queue_id, place)
            missing.difference_update(*(message.properties for message in found))
            looked += len(found)
            is_all = is_all and not found.notes
            if found.next_offset <= place:
                is_all = False
                break
            place = found.next_offset
        is_all = is_all and place >= queue.max_offset
    if not missing or not looked:
        return ""
    whose = f"no message of topic {topic}"
    if not is_all:
        whose = f"none of {counted(looked, 'message')} of topic {topic} that were looked at"
    return f"{whose} has {named_properties(missing)}"
