"""`rocketlens search`: find messages by their content."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

import click
import msgspec

import rocketlens
from protocol.errors import FilterSyntaxError
from protocol.message import Message
from protocol.printable import printable
from rocketlens.absent_properties import note_of_properties
from rocketlens.arguments import words_of
from rocketlens.cli.command_options import optional_engine_options
from rocketlens.cli.condition_options import SearchConditions, condition_options
from rocketlens.cli.errors import FOUND, NOT_FOUND, STOPPED, USAGE, about_store, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import SourceArguments, source_options
from rocketlens.cli.options import charset_option, gathered, limit_option
from rocketlens.cli.output import Writer, format_options, growing_table, growing_writer, write_messages
from rocketlens.cli.search_progress import SearchProgress
from rocketlens.cli.time_options import check_stored, timezone_option
from spark_jobs.run.engine import EngineOptions
from storage.amounts import counted

if TYPE_CHECKING:
    from storage.filter.consumption import SubscriptionCheck


class SearchExtent(msgspec.Struct, frozen=True):
    """What the options say of how far the search goes, and of what is listed."""

    maximum: int | None
    cursor: str | None
    exhaustive: bool
    explain: bool


@click.command(cls=GroupedCommand)
@source_options("SOURCE [TOPIC]")
@click.option("--topic", help="Only messages that are stored under this topic.")
@condition_options(("--from", "--to"), earlier_where=["--sql"])
@limit_option("Stop after N messages. [default: all]", earlier=["--max"])
@click.option("--cursor", metavar="C", help="Continue a search with the same conditions at the cursor that it printed.")
@click.option(
    "--exhaustive",
    is_flag=True,
    help="Read the whole log; trust no index, queue or time.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="List all that meets the other conditions, and whether a consumer with --tag or --where gets it, and why.",
)
@charset_option
@optional_engine_options
@format_options
@timezone_option
@gathered(conditions=SearchConditions, extent=SearchExtent, engine=EngineOptions)
@plain_errors
def search(
    source: SourceArguments,
    topic: str | None,
    conditions: SearchConditions,
    extent: SearchExtent,
    engine: EngineOptions,
    output_format: str,
) -> None:
    """List the messages of SOURCE, or of one TOPIC of it, that meet all conditions.

    They are listed as they are found, in the order of the log, of which only that part is read to which index, queues
    or times lead, otherwise all of it, on all cores. A URL is searched by an engine, a task for each segment. Of a
    server the queues of TOPIC are pulled.

    --tag and --where are judged of each message, also in a batch. With --explain as consumers get them: a broker
    judges the record, which a batch is, and a client compares tags. What became of a message in each group is said by
    `rocketlens life`.

    Exit code 0 if something was found (with --explain: is delivered), 1 if not, 130 if stopped with Ctrl-C. A report on
    stderr says what was searched and what could not be, and where an early end can be continued.
    """
    topic = source.one_of(topic)
    begin, end = conditions.begin, conditions.end
    check_stored(begin, end)
    try:
        with stopping() as should_stop, source.open(engine) as opened:
            options = conditions.options(extent.maximum, extent.cursor)
            write = growing_writer(output_format, conditions.charset)
            if extent.explain:
                check = _subscription_check(source, topic, conditions)
                write = ExplainingWriter(check, output_format, conditions.charset)
                options |= {"tag": None, "where": None}
            found = opened.search(topic=topic, exhaustive=extent.exhaustive, should_stop=should_stop, **options)
            _show(found, write)
            was_stopped = should_stop()
            count = write.delivered if isinstance(write, ExplainingWriter) else found.progress.found
            asks = topic is not None and conditions.where is not None and not (count or was_stopped)
            why = note_of_properties(opened, topic or "", conditions.where or "") if asks else ""
    except FilterSyntaxError as error:
        click.echo(f"rocketlens: {printable(str(error))}", err=True)
        sys.exit(USAGE)
    for note in (*_notes(conditions.where), *found.notes, why, found.progress.sentence()):
        if note:
            say(note)
    if conditions.key is not None and not (count or was_stopped):
        say(_not_by_key(conditions.key))
    if isinstance(write, ExplainingWriter):
        say(write.sentence())
    if found.cursor is not None:
        times = (("--since", begin), ("--until", end))
        # As they were taken: -1h is another time when the search is continued, and so would be another search.
        given = "".join(f"{name} {time} " for name, time in times if time is not None)
        say(f"there may be more: continue with {given}--cursor {found.cursor}")
        if was_stopped:
            sys.exit(STOPPED)
    sys.exit(FOUND if count else NOT_FOUND)


def _notes(where: str | None) -> list[str]:
    """Return notes about an expression."""
    if where is None:
        return []
    from storage.filter.sql92 import parse

    return list(filter(None, [parse(where).note]))


def _not_by_key(key: str) -> str:
    """Why no message may have a key: RocketMQ splits KEYS at blanks."""
    words = words_of(key)
    each = f"each of {', '.join(words)}" if len(words) > 1 else "it in KEYS that were a list"
    return f"{key}: RocketMQ splits KEYS at blanks; `rocketlens find` looks for {each}"


def _subscription_check(
    source: SourceArguments, topic: str | None, conditions: SearchConditions
) -> "SubscriptionCheck":
    """What decides for a consumer; raises a usage error for what is no subscription."""
    from storage.filter.consumption import SubscriptionCheck
    from storage.filter.hidden import refuse_hidden
    from storage.patterns.mask import mask_of

    if topic is None or (conditions.tag is None) == (conditions.where is None):
        raise click.UsageError("--explain needs a TOPIC, and --tag or --where: what a consumer subscribes to")
    refuse_hidden(mask_of(source.store_arguments.rules), conditions.tag, conditions.where)
    return SubscriptionCheck(conditions.tag, conditions.where)


class ExplainingWriter:
    """Writes messages, for each whether a consumer gets it, and why; and counts those that it gets."""

    def __init__(self, check: "SubscriptionCheck", output_format: str, charset: str | None) -> None:
        self._subscription_check, self._format, self._charset = check, output_format, charset
        self._write_rows = growing_table(("MESSAGE ID", "QUEUE", "OFFSET", "TAG", "DELIVERED", "WHY"))
        self.seen = self.delivered = 0

    def __call__(self, messages: Iterable[Message]) -> None:
        """Write some messages."""
        checked = [(message, *self._subscription_check.verdict(message)) for message in messages]
        self.seen += len(checked)
        self.delivered += sum(delivered for _, delivered, _ in checked)
        if self._format == "table":
            self._write_rows(
                (each.message_id, each.queue_id, each.queue_offset, each.tags or "", "yes" if delivered else "no", why)
                for each, delivered, why in checked
            )
        else:
            rows = ((message, {"delivered": delivered, "reason": why}) for message, delivered, why in checked)
            write_messages(self._format, rows, self._charset)

    def sentence(self) -> str:
        """The outcome in words."""
        return f"{self.delivered} of {counted(self.seen, 'message')} would be delivered"


def _show(found: "rocketlens.Search", write: Writer) -> None:
    """Write messages as they come, and on a terminal how far the search is."""
    with SearchProgress() as progress:
        for messages in found.pieces():
            if messages:
                with progress.aside(), about_store(found.store):
                    write(messages)
            progress.show(found.progress)


@contextlib.contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Whether to stop: after Ctrl-C or SIGTERM, another of which ends the process at once."""
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if stopped:
            os._exit(STOPPED)
        stopped.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield lambda: bool(stopped)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
