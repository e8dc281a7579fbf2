"""`rocketlens query`: list messages by key, unique key or tag."""

import asyncio
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from broker.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from broker.cli.opening import open_store
from broker.cli.options import DIRECTORY, endpoint, store_options, timestamp
from broker.cli.output import chosen_format, format_options, staged_writer, writer
from broker.client import Client, ClientError, Question, ResponseError
from broker.config import Endpoint
from protocol.codes import ResponseCode
from protocol.errors import StoreError
from protocol.message import Message, decode_messages
from storage.times import LARGEST

if TYPE_CHECKING:
    from storage.lookup_call import KeyQuery
    from storage.message_store import MessageStore

PAGE = 64
"""Matches asked for at once; a broker gives no more."""


@dataclass(frozen=True, slots=True)
class Matches:
    """What was found, ascending by physical offset (or by store time, from several brokers); `cursor` for the rest."""

    messages: list[Message]
    cursor: int | None = None
    notes: tuple[str, ...] = ()
    reason: str = ""


@click.command()
@click.argument("store", type=DIRECTORY, required=False)
@click.option(
    "--server", type=endpoint, metavar="HOST:PORT", help="Ask this name server or broker instead of opening a store."
)
@click.option("--topic", required=True, help="Topic of the messages.")
@click.option("--key", help="One of the messages' business keys.")
@click.option("--unique-key", help="The id that the producer gave the message.")
@click.option("--tag", help="The messages' tag.")
@click.option(
    "--begin", type=timestamp, metavar="TIME", default="0", help="Stored at or after this: milliseconds or ISO 8601."
)
@click.option("--end", type=timestamp, metavar="TIME", default=str(LARGEST), help="Stored at or before this.")
@click.option(
    "--max", "maximum", type=click.IntRange(1), metavar="N", default=PAGE, show_default=True, help="The newest so many."
)
@click.option(
    "--cursor", type=click.IntRange(0, 2**63 - 1), metavar="OFFSET", help="Only matches below this physical offset."
)
@click.option(
    "--copies",
    is_flag=True,
    help="Also find where the topic's messages wait (delay level, timer, half of a transaction), are retried, and were "
    "given up; each is listed with its stage and the topic it is stored under.",
)
@format_options
@store_options
@plain_errors
def query(
    store: Path | None,
    server: Endpoint | None,
    topic: str,
    key: str | None,
    unique_key: str | None,
    tag: str | None,
    begin: int,
    end: int,
    maximum: int,
    cursor: int | None,
    copies: bool,
    output_format: str | None,
    as_json: bool,
    **store_arguments: Any,
) -> None:
    """List the newest messages with a key, a unique key or a tag, from the store in STORE or from running brokers.

    Exactly one of --key, --unique-key and --tag is given. A unique key is looked up whatever the times.

    Exit code 0 when something was found, 1 when nothing was; what was searched stands on stderr.
    """
    name = chosen_format(output_format, as_json)
    write = staged_writer(name) if copies else writer(name, detailed=False)
    question = _question(topic, {"K": key, "U": unique_key, "T": tag}, begin, end, cursor)
    question = replace(question, copies=copies)
    if (store is None) == (server is None):
        raise click.UsageError("expected either STORE or --server")
    if store is not None:
        matches = query_store(open_store(store, **store_arguments), question, maximum)
    elif any(value for value in store_arguments.values()):
        raise click.UsageError("options of a STORE make no sense when a server is asked")
    else:
        assert server is not None
        matches = asyncio.run(_ask(server, question, maximum))
    for note in matches.notes:
        say(note)
    if not matches.messages:
        say(matches.reason)
    elif matches.cursor is not None:
        say(f"older matches are left out: --cursor {matches.cursor} goes on with them")
    write(matches.messages)
    sys.exit(FOUND if matches.messages else NOT_FOUND)


def _question(topic: str, keys: dict[str, str | None], begin: int, end: int, cursor: int | None) -> Question:
    given = {kind: value for kind, value in keys.items() if value is not None}
    if len(given) != 1:
        raise click.UsageError("expected exactly one of --key, --unique-key and --tag")
    if begin > end:
        raise click.UsageError(f"--begin {begin} is after --end {end}")
    ((kind, value),) = given.items()
    return Question(topic, value, kind, begin_timestamp=begin, end_timestamp=end, cursor=cursor)


def _key_query(question: Question) -> "KeyQuery":
    from broker.processors.query_message import FIRST_PAGE, KINDS
    from storage.lookup_call import KeyQuery

    return KeyQuery(
        topic=question.topic,
        key=question.key,
        kind=KINDS[question.index_type],
        begin_timestamp=question.begin_timestamp,
        end_timestamp=question.end_timestamp,
        before_physical_offset=FIRST_PAGE if question.cursor is None else question.cursor,
    )


def query_store(store: "MessageStore", question: Question, maximum: int) -> Matches:
    """The newest `maximum` matches of a store, collected in pages, each below the one before."""
    from broker.processors.query_message import explain_nothing
    from storage.life.message_copies import copy_topics, query_with_copies

    query = _key_query(question)
    topics = copy_topics(store) if question.copies else []
    messages: list[Message] = []
    while True:
        page = msgspec.structs.replace(query, maximum=min(maximum - len(messages), PAGE))
        found = query_with_copies(store.query, page, topics)
        messages = found.messages + messages
        if len(messages) >= maximum or found.cursor is None:
            break
        query = msgspec.structs.replace(query, before_physical_offset=found.cursor)
    return Matches(
        messages,
        cursor=found.cursor,
        notes=(f"something may be missing: {found.incomplete}",) if found.incomplete else (),
        reason="" if messages else f"nothing found; {explain_nothing(store, question.topic, found.answer)}",
    )


async def _ask(server: Endpoint, question: Question, maximum: int) -> Matches:
    """Ask the brokers that a name server names for the topic, or the one broker that `server` is."""
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
            raise click.UsageError(f"a cursor belongs to one broker, --server has {len(brokers)}: name one of them")
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


async def _pages(client: Client, endpoint: Endpoint, question: Question, maximum: int) -> Matches:
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


def _matching(records: bytes, question: Question, endpoint: Endpoint) -> list[Message]:
    """The records that match: a Java broker compares hashes alone and leaves the rest to its clients."""
    try:
        messages = list(decode_messages(records))
    except StoreError as error:
        raise ClientError(f"{endpoint} answered bytes that are no messages: {error}") from error
    return [message for message in messages if _is_match(message, question)]


def _is_match(message: Message, question: Question) -> bool:
    from storage.life.message_copies import origin_topic

    if question.index_type == "U":
        return question.key == message.message_id
    if (origin_topic(message) if question.copies else message.topic) != question.topic:
        return False
    return question.key in message.keys if question.index_type == "K" else question.key == message.tags
