"""One message with everything that a store knows of it, and its line in a list."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from broker.web.api.bodies import Body, Charset, body_of, checked_charset
from broker.web.api.endpoint import Parameters, PhysicalOffset, QueueOffset, Topic
from broker.web.api.errors import not_found
from broker.web.api.request_context import RequestContext
from protocol.errors import RocketLensError, StoreError
from protocol.message import Message
from protocol.sys_flag import has_inner_messages
from protocol.system_topics import Stage, stage_of
from storage.patterns.processes import PatternLimit
from storage.queue.queue_messages import entry_of
from storage.queue.unit_reader import Missing
from storage.search.find import message_at, message_in_log
from storage.store.extents import lag_of

SHOWN: Final = 64 * 1024
"""Bytes of a body that are shown by default."""

MOST_SHOWN: Final = 4 * 1024 * 1024
INNER_SHOWN: Final = 4 * 1024
MOST_INNER: Final = 64
"""Messages of a batch in one record that are shown."""

BodyLimit: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_SHOWN, description="Number of bytes of the body to return.")]
OneQueueId: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1, description="Id of the queue of the topic.")]


class WrittenBody(msgspec.Struct, rename="camel", kw_only=True):
    """The fields of a message about its body: the first `body_shown` of `body_size` bytes of what `Body` describes.

    `body` is text or base64, as `body_encoding` says. `body_bytes` is base64 beside a text that is not of UTF-8.
    """

    body: str
    body_encoding: Literal["text", "base64"]
    body_kind: str
    body_size: int
    body_stored_size: int
    body_compression: str | None
    body_shown: int
    body_packings: list[str]
    body_bytes: str | None = None
    body_formatted: str | None = None
    body_looks_like: str | None = None
    body_note: str | None = None
    body_error: str | None = None


class InnerMessage(WrittenBody, rename="camel", kw_only=True):
    """One message of several that share a record."""

    queue_offset: int
    unique_key: str | None
    tags: str | None
    keys: list[str]
    properties: dict[str, str]


class Consumption(msgspec.Struct, rename="camel", kw_only=True):
    """How far a consumer group has come in the message's queue; `lag` is what it has not consumed there,
    null where it is ahead of the queue."""

    group: str
    next_offset: int
    has_passed: bool
    lag: int | None


class MessageAnswer(WrittenBody, rename="camel", kw_only=True):
    """A message whole, as docs/message.schema.json describes it.

    `damage` says what is wrong with its record; `origin_topic` is where it was sent to.
    `groups_problem` says why it is not known how far groups have come.
    """

    message_id: str
    unique_key: str | None
    offset_message_id: str
    topic: str
    origin_topic: str
    stage: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    total_size: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    flag: int
    sys_flag: int
    prepared_transaction_offset: int
    magic: int
    body_crc: int
    tags: str | None
    keys: list[str]
    properties: dict[str, str]
    groups: list[Consumption]
    inner_count: int
    inner: list[InnerMessage]
    damage: str | None = None
    groups_problem: str | None = None


class MessageQuestion(Parameters):
    """`offset` is the physical offset of the record."""

    offset: PhysicalOffset
    body_limit: BodyLimit = SHOWN
    charset: Charset | None = None


class QueueMessageQuestion(Parameters):
    """A message by its number in a queue."""

    topic: Topic
    queue_id: OneQueueId
    queue_offset: QueueOffset
    body_limit: BodyLimit = SHOWN
    charset: Charset | None = None


class BodyQuestion(Parameters):
    """`offset` is the physical offset of the record. `unpacked`: what an application packed, as `Body` shows it."""

    offset: PhysicalOffset
    unpacked: Annotated[
        bool, Meta(description="Undo what an application packed too, such as gzip; else the body as it was sent.")
    ] = False


def message(context: RequestContext, question: MessageQuestion) -> MessageAnswer:
    """The message that starts at a physical offset, damaged or not."""
    found, damage = read_message(context, question.offset)
    return _answer(context, found, damage, question)


def queue_message(context: RequestContext, question: QueueMessageQuestion) -> MessageAnswer:
    """The message of a queue offset."""
    context.require_topic(question.topic)
    queue = context.store.queues.queue(question.topic, question.queue_id)
    if queue is None:
        raise not_found(f"topic {question.topic} has no queue {question.queue_id}", "queueId")
    entry = entry_of(queue, question.queue_offset)
    if entry is None:
        reach = f"it has {queue.min_offset} to {queue.max_offset - 1}" if queue.max_offset else "it is empty"
        if queue.min_offset <= question.queue_offset < queue.max_offset:
            reach = Missing.LOST.value
        raise not_found(f"queue {question.queue_id} has no message {question.queue_offset}: {reach}", "queueOffset")
    source = queue.source_at(question.queue_offset)
    assert source is not None  # no message lies in a gap
    found, damage = message_in_log(source.log, entry.physical_offset)
    if found is None:
        raise not_found(f"no message there: {damage}", "queueOffset")
    context.require_message(found)
    return _answer(context, found, damage, question)


def body(context: RequestContext, question: BodyQuestion) -> bytes:
    """The whole body, decompressed, to be downloaded; as it is stored where it cannot be decompressed."""
    found, _ = read_message(context, question.offset)
    found = context.mask.message(found)
    if question.unpacked:
        return bytes(found.content().data)
    try:
        return found.body
    except StoreError:
        return bytes(found.stored_body)


def read_message(context: RequestContext, physical_offset: int) -> tuple[Message, str | None]:
    """The message at a physical offset, and what is wrong with its record.

    Raises `ApiError` where none starts, and for a topic that may not be read.
    """
    found, damage = message_at(context.store, physical_offset)
    if found is None:
        raise not_found(f"no message there: {damage}", "offset")
    context.require_message(found)
    return found, damage


def _answer(
    context: RequestContext, message: Message, damage: str | None, question: MessageQuestion | QueueMessageQuestion
) -> MessageAnswer:
    charset = checked_charset(question.charset)
    inner = _inner(message)
    groups, problem = _groups_of(context, message)
    origin = context.service.origins.of(message).topic or message.topic
    message = context.mask.message(message)
    return MessageAnswer(
        message_id=message.message_id,
        unique_key=message.unique_key,
        offset_message_id=message.offset_message_id,
        topic=message.topic,
        origin_topic=origin,
        stage=stage_of(message.topic).value,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        total_size=message.total_size,
        born_timestamp=message.born_timestamp,
        born_host=str(message.born_host),
        store_timestamp=message.store_timestamp,
        store_host=str(message.store_host),
        reconsume_times=message.reconsume_times,
        flag=message.flag,
        sys_flag=message.sys_flag,
        prepared_transaction_offset=message.prepared_transaction_offset,
        magic=message.magic & 0xFFFFFFFF,
        body_crc=message.body_crc,
        tags=message.tags,
        keys=message.keys,
        properties=message.properties,
        **_written(body_of(message, question.body_limit, charset)),
        groups=groups,
        groups_problem=problem,
        inner_count=len(inner),
        inner=[_inner_answer(each, charset) for each in _shown(context, inner[:MOST_INNER])],
        damage=damage,
    )


def _written(body: Body) -> dict[str, Any]:  # the fields of a `WrittenBody`
    is_base64 = body.text is None and body.base64 is not None
    return {
        "body": (body.base64 if is_base64 else body.text) or "",
        "body_encoding": "base64" if is_base64 else "text",
        "body_kind": body.kind,
        "body_size": body.size,
        "body_stored_size": body.stored_size,
        "body_compression": body.compression,
        "body_shown": body.shown,
        "body_packings": body.packings,
        "body_bytes": None if is_base64 else body.base64,
        "body_formatted": body.formatted,
        "body_looks_like": body.looks_like,
        "body_note": body.note,
        "body_error": body.error,
    }


def _inner(message: Message) -> list[Message]:
    if not has_inner_messages(message.sys_flag):
        return []
    try:
        return message.inner_messages()
    except StoreError:  # The record is no batch: its body is shown as it is.
        return []


def _shown(context: RequestContext, inner: list[Message]) -> Iterator[Message]:
    """Yield the messages of a batch masked, up to the first that the mask takes too long for."""
    with suppress(PatternLimit):
        yield from context.mask.messages(inner)


def _inner_answer(message: Message, charset: str | None) -> InnerMessage:
    return InnerMessage(
        queue_offset=message.queue_offset,
        unique_key=message.unique_key,
        tags=message.tags,
        keys=message.keys,
        properties=message.properties,
        **_written(body_of(message, INNER_SHOWN, charset)),
    )


def _groups_of(context: RequestContext, message: Message) -> tuple[list[Consumption], str | None]:
    """The groups that read the record's queue; none, and the reason, where it is not known how far they have come."""
    try:
        return list(_groups(context, message)), None
    except RocketLensError as error:
        return [], str(error)


def _groups(context: RequestContext, message: Message) -> Iterator[Consumption]:
    """The groups that read the record's queue, by name; of a retry topic its own alone."""
    origin = context.service.origins.of(message)
    is_retry = stage_of(message.topic) is Stage.RETRY
    queue = context.store.queues.queue(message.topic, message.queue_id)
    end = 0 if queue is None else queue.max_offset
    for group, next_offset in committed_in(context, message.topic, message.queue_id):
        if not is_retry or origin.may_be_of(group):
            yield Consumption(
                group=group,
                next_offset=next_offset,
                has_passed=next_offset > message.queue_offset,
                lag=lag_of(next_offset, end),
            )


def committed_in(context: RequestContext, topic: str, queue_id: int) -> Iterator[tuple[str, int]]:
    """The groups that have committed an offset in a queue and may be seen, by name, each with its next offset.

    Raises RocketLensError where that is not known.
    """
    offsets = context.service.offsets
    for group in offsets.groups_of(topic):
        next_offset = offsets.committed(group, topic, queue_id)
        if next_offset is not None and context.may_see_group(group):
            yield group, next_offset
