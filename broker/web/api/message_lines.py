"""A message as a line of a list, on the page, in its API and for assistants."""

from collections.abc import Iterator
from typing import Final

import msgspec

from broker.web.api.bodies import preview_of
from protocol.message import Message
from protocol.system_topics import stage_of

LONGEST: Final = 1000
"""Characters of keys and tag in a list."""


class MessageLine(msgspec.Struct, rename="camel", kw_only=True):
    """A message in a list; times in ms. `stage` is where in its life it was stored, `preview` its body's beginning.

    All fields are those of docs/message.schema.json.
    """

    message_id: str
    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    born_timestamp: int
    total_size: int
    reconsume_times: int
    stage: str
    unique_key: str | None
    offset_message_id: str
    tags: str | None
    keys: list[str]
    preview: str | None
    found_by: str | None = None
    damage: str | None = None
    outcome: str | None = None
    match: list[str] | None = None


def line_of(
    message: Message,
    found_by: str | None = None,
    damage: str | None = None,
    charset: str | None = None,
    *,
    outcome: str | None = None,
) -> MessageLine:
    """A message in a list; `outcome` is how the transaction of a half message ended."""
    tags = message.tags
    return MessageLine(
        message_id=message.message_id,
        physical_offset=message.physical_offset,
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        store_timestamp=message.store_timestamp,
        born_timestamp=message.born_timestamp,
        total_size=message.total_size,
        reconsume_times=message.reconsume_times,
        stage=stage_of(message.topic).value,
        unique_key=message.unique_key,
        offset_message_id=message.offset_message_id,
        tags=tags if tags is None else tags[:LONGEST],
        keys=list(_first(message.keys)),
        preview=preview_of(message, charset),
        found_by=found_by,
        damage=damage,
        outcome=outcome,
    )


def _first(keys: list[str]) -> Iterator[str]:
    """Return the first keys, which have at most `LONGEST` characters together."""
    room = LONGEST
    for key in keys:
        if room <= 0:
            return
        yield key[:room]
        room -= len(key) + 1
