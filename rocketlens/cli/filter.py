"""`rocketlens filter`: try a consumer's filter on a store, and learn why it leaves messages out."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from protocol.errors import FilterSyntaxError
from protocol.mask import Mask
from protocol.message import Message, decode_message
from protocol.printable import printable
from rocketlens.arguments import apart
from rocketlens.cli.errors import FOUND, NOT_FOUND, USAGE, fail, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import open_store
from rocketlens.cli.options import DIRECTORY, charset_option, gathered, limit_option, store_options, where_option
from rocketlens.cli.output import format_options, print_table, write_messages, writer
from rocketlens.cli.time_options import timezone_option
from rocketlens.opening import StoreArguments
from storage.amounts import counted

if TYPE_CHECKING:
    from storage.filter.base import MessageFilter
    from storage.store.message_store import MessageStore

MESSAGES_AT_ONCE = 32
BYTES_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class FilterChoice:
    """A filter: its two stages as a broker calls them, whether a consumer gets a message in the end, and why."""

    stages: "MessageFilter"
    delivers: Callable[[Message], bool]
    explain: Callable[[Message], str]


class Explained(NamedTuple):
    """One message, whether the filter delivers it, and why."""

    message: Message
    delivered: bool
    reason: str


class FilterArguments(msgspec.Struct, frozen=True):
    """What the options say: which messages, by which filter, and what is listed of them."""

    topic: str
    tag: str | None
    sql: str | None
    explain: bool
    maximum: int | None


@click.command("filter", cls=GroupedCommand)
@click.argument("store", type=DIRECTORY)
@click.option("--topic", required=True, help="Topic of the messages.")
@click.option("--tag", metavar="EXPRESSION", help="A tag subscription: 'TagA || TagB', or '*' for all messages.")
@where_option("A SQL92 subscription", earlier=["--sql"])
@click.option("--explain", is_flag=True, help="List all messages, and for each whether it would be delivered, and why.")
@limit_option("List at most N messages. [default: all]", earlier=["--max"])
@charset_option
@format_options
@timezone_option
@store_options
@gathered(wanted=FilterArguments)
@plain_errors
def filter_(
    store: Path,
    wanted: FilterArguments,
    output_format: str,
    charset: str | None,
    store_arguments: StoreArguments,
) -> None:
    """List the messages of a topic that a consumer with a filter would get, queue by queue.

    Give exactly one of --tag and --where. Filters decide as RocketMQ's do: whole tags are compared, and a message for
    which the expression is unknown or cannot be evaluated is not delivered.

    Exit code 0 if something would be delivered, 1 if not. The number of messages is printed on stderr.
    """
    topic, tag = wanted.topic, wanted.tag
    if (tag is None) == (wanted.sql is None):
        raise click.UsageError("expected exactly one of --tag and --where")
    from rocketlens.store import mask_of_store, message_store_of
    from storage.filter.hidden import refuse_hidden

    found = open_store(store, store_arguments)
    opened, mask = message_store_of(found, with_keys=False, masks=True), mask_of_store(found)
    try:
        refuse_hidden(mask, tag, wanted.sql)
        choice = _by_tag(tag) if tag is not None else _by_expression(wanted.sql or "")
    except FilterSyntaxError as error:
        click.echo(f"rocketlens: {printable(str(error))}", err=True)
        sys.exit(USAGE)
    if not opened.queues.has_topic(topic):
        from storage.store.topic_catalog import absence_of_topic

        fail("; ".join(absence_of_topic(opened, topic)), NOT_FOUND)
    count = _Count()
    if wanted.explain:
        explained = _explained(opened, topic, choice, count, wanted.maximum)
        _write_explained(
            (_judged(mask, choice, message, delivered=passes) for message, passes in explained), output_format, charset
        )
    else:
        delivered = _delivered(opened, topic, choice, count, wanted.maximum)
        writer(output_format, detailed=False, charset=charset)(map(mask.message, delivered))
    say(count.sentence(topic))
    sys.exit(FOUND if count.delivered else NOT_FOUND)


@dataclass(slots=True)
class _Count:
    """How many messages were looked at, how many of them delivered, and how many listed."""

    seen: int = 0
    delivered: int = 0
    listed: int = 0

    def sentence(self, topic: str) -> str:
        """The outcome in words."""
        verdict = f"{self.delivered} of {counted(self.seen, 'message')} of {topic} would be delivered"
        return f"{verdict}; the first {self.listed} are listed" if self.listed < self.delivered else verdict


def _by_tag(text: str) -> FilterChoice:
    from storage.filter.explanation import explain_tag, is_tagged_so
    from storage.filter.tag import TagFilter, parse_tag_expression

    expression = parse_tag_expression(text)
    return FilterChoice(
        TagFilter(expression),
        lambda message: is_tagged_so(expression, message.tags),
        lambda message: explain_tag(expression, message.tags),
    )


def _by_expression(text: str) -> FilterChoice:
    from storage.filter.explanation import explain_expression
    from storage.filter.expression import ExpressionFilter
    from storage.filter.sql92 import parse

    expression = parse(text)
    unread = expression.text[expression.end :].strip()
    if unread:
        say(f"text behind the expression is ignored, as by brokers: {unread}")
    stages = ExpressionFilter(expression)
    return FilterChoice(
        stages,
        lambda message: stages.matches_commit_log(message.properties_bytes),
        lambda message: explain_expression(expression, message.properties),
    )


def _messages(store: "MessageStore", topic: str, stages: "MessageFilter | None") -> Iterator[Message]:
    """The messages of a topic that pass a filter's stages, by queue and queue offset."""
    from storage.query.get_message import get_message

    snapshot = store.snapshot
    for queue in snapshot.queues.queues_of(topic):
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = get_message(
                snapshot.queues,
                topic,
                queue.queue_id,
                offset,
                MESSAGES_AT_ONCE,
                BYTES_AT_ONCE,
                stages,
            )
            yield from apart(map(decode_message, result.records), topic, offset)[0]
            offset = max(result.next_begin_offset, offset + 1)


def _size(store: "MessageStore", topic: str) -> int:
    return sum(queue.max_offset - queue.min_offset for queue in store.queues.queues_of(topic))


def _delivered(
    store: "MessageStore", topic: str, choice: FilterChoice, count: _Count, maximum: int | None
) -> Iterator[Message]:
    """The messages delivered, the first `maximum` of them; all are counted."""
    count.seen = _size(store, topic)
    for message in _messages(store, topic, choice.stages):
        if choice.delivers(message):
            count.delivered += 1
            if maximum is None or count.listed < maximum:
                count.listed += 1
                yield message


def _explained(
    store: "MessageStore", topic: str, choice: FilterChoice, count: _Count, maximum: int | None
) -> Iterator[tuple[Message, bool]]:
    """All messages, and whether they are delivered, the first `maximum` of them; all are counted."""
    count.seen = _size(store, topic)
    for number, message in enumerate(_messages(store, topic, None)):
        delivered = choice.delivers(message)
        count.delivered += delivered
        if maximum is None or number < maximum:
            yield message, delivered
    count.listed = count.delivered


def _judged(mask: Mask, choice: FilterChoice, message: Message, *, delivered: bool) -> Explained:
    """A message with the reason, without what is hidden of both."""
    return Explained(mask.message(message), delivered, mask.text(choice.explain(message)))


def _write_explained(rows: Iterable[Explained], output_format: str, charset: str | None) -> None:
    if output_format != "table":
        write_messages(
            output_format, ((row.message, {"delivered": row.delivered, "reason": row.reason}) for row in rows), charset
        )
        return
    print_table(
        ("MESSAGE ID", "QUEUE", "OFFSET", "TAG", "DELIVERED", "WHY"),
        (
            (
                row.message.message_id,
                row.message.queue_id,
                row.message.queue_offset,
                row.message.tags or "",
                "yes" if row.delivered else "no",
                row.reason,
            )
            for row in rows
        ),
    )
