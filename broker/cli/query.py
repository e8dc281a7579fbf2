"""`rocketlens query`: list messages by key, unique key or tag."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from broker.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from broker.cli.opening import NO_ARGUMENTS, StoreArguments, open_store
from broker.cli.options import DIRECTORY, endpoint, gathered, store_options, timestamp
from broker.cli.output import format_options, staged_writer, writer
from broker.cluster.question import PAGE, KeyQuestion, Matches
from broker.endpoint import Endpoint
from protocol.message import Message
from storage.times import LARGEST

if TYPE_CHECKING:
    from storage.query.lookup_call import KeyQuery
    from storage.store.message_store import MessageStore


class QueryArguments(msgspec.Struct, frozen=True):
    """What the options say: which messages, and how many of them."""

    topic: str
    key: str | None
    unique_key: str | None
    tag: str | None
    begin: int
    end: int
    maximum: int
    cursor: int | None
    copies: bool

    def question(self) -> KeyQuestion:
        """The question to a store or a broker. Raises a usage error for options that contradict each other."""
        keys = {"K": self.key, "U": self.unique_key, "T": self.tag}
        given = {kind: value for kind, value in keys.items() if value is not None}
        if len(given) != 1:
            raise click.UsageError("expected exactly one of --key, --unique-key and --tag")
        if self.begin > self.end:
            raise click.UsageError(f"--begin {self.begin} is after --end {self.end}")
        ((kind, value),) = given.items()
        return KeyQuestion(
            self.topic,
            value,
            kind,
            begin_timestamp=self.begin,
            end_timestamp=self.end,
            cursor=self.cursor,
            copies=self.copies,
        )


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
@gathered(wanted=QueryArguments)
@plain_errors
def query(
    store: Path | None,
    server: Endpoint | None,
    wanted: QueryArguments,
    output_format: str,
    store_arguments: StoreArguments,
) -> None:
    """List the newest messages with a key, a unique key or a tag, from the store in STORE or from running brokers.

    Exactly one of --key, --unique-key and --tag is given. A unique key is looked up whatever the times.

    Exit code 0 when something was found, 1 when nothing was; what was searched stands on stderr.
    """
    write = staged_writer(output_format) if wanted.copies else writer(output_format, detailed=False)
    question = wanted.question()
    if (store is None) == (server is None):
        raise click.UsageError("expected either STORE or --server")
    if store is not None:
        matches = query_store(open_store(store, store_arguments), question, wanted.maximum)
    elif store_arguments != NO_ARGUMENTS:
        raise click.UsageError("options of a STORE make no sense when a server is asked")
    else:
        from broker.cli.asking import ask_brokers

        assert server is not None
        matches = ask_brokers(server, question, wanted.maximum)
    for note in matches.notes:
        say(note)
    if not matches.messages:
        say(matches.reason)
    elif matches.cursor is not None:
        say(f"older matches are left out: --cursor {matches.cursor} goes on with them")
    write(matches.messages)
    sys.exit(FOUND if matches.messages else NOT_FOUND)


def _key_query(question: KeyQuestion) -> "KeyQuery":
    from broker.service.key_search import FIRST_PAGE, KINDS
    from storage.query.lookup_call import KeyQuery

    return KeyQuery(
        topic=question.topic,
        key=question.key,
        kind=KINDS[question.index_type],
        begin_timestamp=question.begin_timestamp,
        end_timestamp=question.end_timestamp,
        before_physical_offset=FIRST_PAGE if question.cursor is None else question.cursor,
    )


def query_store(store: "MessageStore", question: KeyQuestion, maximum: int) -> Matches:
    """The newest `maximum` matches of a store, collected in pages, each below the one before."""
    from broker.service.key_search import explain_nothing
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
