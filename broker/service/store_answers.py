"""Answers about a whole store as they travel: a message's life, what waits, what takes the disk, what is wrong with it.

Bytes of msgpack, which decode to the very values that a store that is opened gives. Messages travel as their records.
"""

from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from protocol.errors import ProtocolError, StoreError
from protocol.message import Message, decode_message
from protocol.question import taken_apart
from protocol.system_topics import Origin
from protocol.trace import Trace
from storage.life.message_life import Event, MessageLife
from storage.life.pending import DeliveryState, KnownRow
from storage.life.verdicts import GroupProgress
from storage.store.message_store import MessageStore

Value = TypeVar("Value")

MOST_BYTES: Final = 15 * 1024 * 1024
"""Bytes of one answer: clients take frames of 16 MiB."""

UNDER_WAY: Final = "rocketlensUnderWay"
"""The field of an answer that says: not yet, ask again; its value is how far the work is."""


class SentEvent(msgspec.Struct, frozen=True, array_like=True):
    """As :class:`Event`, with the record of its message, which may be one of a batch, of this queue offset."""

    timestamp: int
    record: bytes | None
    origin: Origin | None
    trace: Trace | None
    note: str
    until_timestamp: int | None
    groups: tuple[GroupProgress, ...]
    number: int | None
    queue_offset: int = 0


class SentLife(msgspec.Struct, frozen=True, array_like=True):
    """As :class:`MessageLife`."""

    events: list[SentEvent]
    incomplete: str | None
    transactions: tuple[str | None, ...]
    notes: tuple[str, ...] = ()


class SentPending(msgspec.Struct, frozen=True, array_like=True):
    """Rows of what waits, by their numbers; the first ones with what is to be said of all of them."""

    as_of: DeliveryState
    incomplete: str | None
    rows: list[KnownRow]


class SentNotes(msgspec.Struct, frozen=True, array_like=True):
    """Sentences about what is not read of topics, and of groups; why a log that is damaged may lack more."""

    topics: list[str] = []
    groups: list[str] = []
    lost: str = ""


class SentPopped(msgspec.Struct, frozen=True, array_like=True):
    """How many messages groups have popped and not acknowledged, by group, topic and queue id; None if not known.

    `age` is how many seconds ago they were counted.
    """

    counts: dict[str, dict[str, dict[int, int]]] | None
    age: int = 0


class SentTopics(msgspec.Struct, frozen=True, array_like=True):
    """Topics with their queues to read and to write, None where these are not known; `more` says why there may be more.

    Of an account to which topics are denied without these.
    """

    topics: list[tuple[str, int | None, int | None]]
    more: str = ""


def encode_life(store: MessageStore, life: MessageLife) -> bytes:
    """A life with its records; raises StoreError where one is gone."""
    return encode_answer(
        SentLife([_sent(store, event) for event in life.events], life.incomplete, life.transactions, life.notes),
    )


def _sent(store: MessageStore, event: Event) -> SentEvent:
    record = None
    if event.message is not None:
        place = event.message.physical_offset
        found = store.record_at(place)
        if found is None:
            raise StoreError(store.layout.root, place, what="the message is gone")
        record = bytes(found)
    return SentEvent(
        event.timestamp,
        record,
        event.origin,
        event.trace,
        event.note,
        event.until_timestamp,
        event.groups,
        event.number,
        0 if event.message is None else event.message.queue_offset,
    )


def decode_life(data: bytes) -> MessageLife:
    """What :func:`encode_life` made; raises ProtocolError, and StoreError for what is no record."""
    sent = decode_answer(data, SentLife)
    events = tuple(
        Event(
            each.timestamp,
            None if each.record is None else _message(each.record, each.queue_offset),
            each.origin,
            each.trace,
            each.note,
            each.until_timestamp,
            each.groups,
            each.number,
        )
        for each in sent.events
    )
    return MessageLife(events, sent.incomplete, sent.transactions, sent.notes)


def _message(record: bytes, queue_offset: int) -> Message:
    """The message of a record, of a batch the one with a queue offset."""
    messages = taken_apart(decode_message(record))
    return next((each for each in messages if each.queue_offset == queue_offset), messages[0])


def encode_answer(value: object) -> bytes:
    """A value as bytes; raises StoreError where that is more than one answer can be."""
    data = msgspec.msgpack.encode(value, enc_hook=_encoded)
    if len(data) > MOST_BYTES:
        raise StoreError("", what=f"the answer has {len(data)} bytes, and {MOST_BYTES} can be sent: open the store")
    return data


def decode_answer(data: bytes, kind: type[Value]) -> Value:
    """A value of a class; raises ProtocolError for invalid bytes."""
    try:
        return msgspec.msgpack.decode(data, type=kind, dec_hook=_decoded)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"expected a {kind.__name__}: {error}") from error


def _encoded(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _decoded(kind: type[Any], value: Any) -> object:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)
