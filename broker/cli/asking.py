"""What commands ask of a running broker, or of those that a name server names, instead of a store."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import click

from broker.cli.finding import Finding, message_id_of, physical_offset_of
from broker.cluster.client import Client, ClientError, ResponseError
from broker.cluster.question import PAGE, KeyQuestion, Matches
from broker.endpoint import Endpoint
from protocol.codes import ResponseCode
from protocol.errors import StoreError
from protocol.message import Message, decode_message, decode_messages
from storage.amounts import counted


def ask_for_ids(server: Endpoint | None, ids: Sequence[str], topic: str | None) -> list[Finding]:
    """Ask `server` for ids of any kind, or with None the server whose address stands in each.

    Raises `ClientError` when there is no server to ask, or none that answers.
    """
    return asyncio.run(_ask_for_ids(server, ids, topic))


def ask_brokers(server: Endpoint, question: KeyQuestion, maximum: int) -> Matches:
    """Ask the brokers that a name server names for the topic, or the one broker that `server` is.

    Raises `ClientError` when none answers.
    """
    return asyncio.run(_ask_brokers(server, question, maximum))


async def _ask_for_ids(server: Endpoint | None, ids: Sequence[str], topic: str | None) -> list[Finding]:
    async with Client() as client:
        return [await _find(client, server, text, topic=topic) for text in ids]


async def _find(client: Client, server: Endpoint | None, text: str, *, topic: str | None = None) -> Finding:
    message_id, physical_offset = message_id_of(text), physical_offset_of(text)
    if message_id is not None:
        physical_offset = message_id.physical_offset
        server = server or Endpoint(message_id.address.ip, message_id.address.port)
    if server is None:
        raise ClientError(
            f"{text}: only an offset message id contains an address to connect to; name one with --server"
        )
    if physical_offset is None:
        return await _ask_by_unique_key(client, server, text, topic)
    finding = await _ask_by_offset(client, server, physical_offset, topic)
    if finding.messages or message_id is None or not topic:
        return finding
    # As Java clients do: what looks like an offset id may be a unique key after all.
    by_unique_key = await _ask_by_unique_key(client, server, text, topic)
    return by_unique_key if by_unique_key.messages else finding


async def _ask_by_offset(client: Client, server: Endpoint, physical_offset: int, topic: str | None) -> Finding:
    try:
        record = await client.view(server, physical_offset, topic or "")
    except ResponseError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise ClientError(
                f"{server} is not a broker (perhaps a name server): --server needs a broker here"
            ) from error
        return Finding(reason=str(error))
    try:
        return Finding((decode_message(record, physical_offset=physical_offset),))
    except StoreError as error:
        return Finding(reason=f"{server} answered bytes that are not a message: {error}")


async def _ask_by_unique_key(client: Client, server: Endpoint, key: str, topic: str | None) -> Finding:
    """Ask for a unique key in one topic, else in every topic that the server knows."""
    try:
        topics = [topic] if topic else await client.topics(server)
    except ResponseError as error:
        raise ClientError(f"{key} may be a unique key: name its topic with --topic ({error})") from error
    reasons = []
    for name in topics:
        page = await client.query(server, KeyQuestion(name, key, "U", maximum=32))
        if page.records:
            return Finding(tuple(decode_messages(page.records)))
        reasons.append(page.remark)
    where = f"in topic {topic}" if topic else f"in any of {counted(len(topics), 'topic')}"
    last = f": {reasons[-1]}" if reasons else ""
    return Finding(reason=f"{server} has no message with unique key {key} {where}{last}")


async def _ask_brokers(server: Endpoint, question: KeyQuestion, maximum: int) -> Matches:
    async with Client() as client:
        try:
            brokers = await client.brokers_of(server, question.topic)
        except ResponseError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return Matches([], reason=str(error))
        if brokers is None:
            brokers = {"": server}
        if len(brokers) > 1 and question.cursor is not None:
            raise click.UsageError(f"a cursor belongs to one broker, but --server has {len(brokers)}: name one of them")
        found = [await _pages(client, endpoint, question, maximum) for endpoint in brokers.values()]
    if len(found) == 1:
        return found[0]
    messages = sorted((message for matches in found for message in matches.messages), key=_store_timestamp)
    notes = [f"{name}: {note}" for name, matches in zip(brokers, found, strict=True) for note in matches.notes]
    notes += [
        f"{name} ({brokers[name]}) has older matches, which --server {brokers[name]} --cursor {matches.cursor} shows"
        for name, matches in zip(brokers, found, strict=True)
        if matches.cursor is not None
    ]
    reasons = "; ".join(f"{name}: {matches.reason}" for name, matches in zip(brokers, found, strict=True))
    return Matches(messages[-maximum:], notes=tuple(notes), reason=reasons)


def _store_timestamp(message: Message) -> int:
    return message.store_timestamp


async def _pages(client: Client, endpoint: Endpoint, question: KeyQuestion, maximum: int) -> Matches:
    """The newest `maximum` matches of one broker; several pages only where the broker knows cursors."""
    pages: list[list[Message]] = []
    count = 0
    while True:
        page = await client.query(endpoint, replace(question, maximum=min(maximum - count, PAGE)))
        matching = _matching(page.records, question, endpoint)
        pages.append(matching)
        count += len(matching)
        if count >= maximum or page.cursor is None or not page.records:
            break
        question = replace(question, cursor=page.cursor)
    return Matches(
        messages=[message for matching in reversed(pages) for message in matching],
        cursor=page.cursor,
        notes=(f"something may be missing: {page.incomplete}",) if page.incomplete else (),
        reason="" if count else f"{endpoint} found nothing: {page.remark}",
    )


def _matching(records: bytes, question: KeyQuestion, endpoint: Endpoint) -> list[Message]:
    """The records that match: a Java broker compares hashes alone and leaves the rest to its clients."""
    try:
        messages = list(decode_messages(records))
    except StoreError as error:
        raise ClientError(f"{endpoint} answered bytes that are not messages: {error}") from error
    return [message for message in messages if _is_match(message, question)]


def _is_match(message: Message, question: KeyQuestion) -> bool:
    from storage.life.message_copies import origin_topic

    if question.index_type == "U":
        return question.key == message.message_id
    if (origin_topic(message) if question.copies else message.topic) != question.topic:
        return False
    return question.key in message.keys if question.index_type == "K" else question.key == message.tags
