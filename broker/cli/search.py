"""`rocketlens search`: find messages by what they say."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
import msgspec

from broker.cli.errors import FOUND, NOT_FOUND, STOPPED, USAGE, plain_errors, say
from broker.cli.opening import StoreArguments, open_store
from broker.cli.options import DIRECTORY, gathered, store_options, timestamp
from broker.cli.output import Writer, format_options, growing_writer
from broker.cli.search_progress import SearchProgress
from protocol.errors import ConfigError, FilterSyntaxError
from protocol.printable import printable

if TYPE_CHECKING:
    from storage.search import Criteria, Step
    from storage.store.message_store import MessageStore

PLACES = ("body", "properties", "any")


class SearchConditions(msgspec.Struct, frozen=True):
    """What the options say of the messages that are looked for."""

    topic: str | None
    begin: int | None
    end: int | None
    contains: str | None
    regex: str | None
    place: str
    json_path: str | None
    where: str | None
    tag: str | None
    key: str | None
    key_prefix: str | None
    born_host: str | None
    size: str | None


class SearchExtent(msgspec.Struct, frozen=True):
    """What the options say of how far the search goes, and where."""

    limit: int | None
    cursor: str | None
    exhaustive: bool
    master: str | None


@click.command()
@click.argument("store", type=DIRECTORY)
@click.option("--topic", help="Only messages that are stored under this topic.")
@click.option(
    "--from", "begin", type=timestamp, metavar="TIME", help="Stored at or after this: milliseconds or ISO 8601."
)
@click.option("--to", "end", type=timestamp, metavar="TIME", help="Stored at or before this.")
@click.option("--contains", metavar="TEXT", help="The body, decompressed, contains this text (see --in).")
@click.option(
    "--regex", metavar="RE", help="A Python regular expression matches somewhere in the body's text (see --in)."
)
@click.option(
    "--in",
    "place",
    type=click.Choice(PLACES),
    default="body",
    show_default=True,
    help="Where --contains and --regex look: in the body, in the values of the properties (KEYS and TAGS are some), or "
    "in any of them. Headers, topics and the names of properties are not looked at.",
)
@click.option(
    "--json-path",
    metavar="EXPR=VALUE",
    help="The body is JSON, and the JSONPath finds the value in it: '$.order.id=4711' finds 4711 and \"4711\".",
)
@click.option("--where", metavar="SQL92", help="The properties fulfil this expression: \"a > 5 AND region = 'hz'\".")
@click.option("--tag", help="The message's tag, whole.")
@click.option("--key", help="One of the business keys, or the unique key. With --topic the index is asked.")
@click.option("--key-prefix", metavar="P", help="A business key, or the unique key, starts so; no index can tell.")
@click.option(
    "--born-host", metavar="H", help="Where the message was sent from: an address, address:port, or 10.1.0.0/16."
)
@click.option(
    "--size", metavar="RANGE", help="Bytes of the body, decompressed: 512, 1k..64k, ..2M or 100.. (k is 1024)."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop after so many messages. [default: all]")
@click.option("--cursor", metavar="C", help="Go on where a search for the same, cut short, said it would.")
@click.option(
    "--exhaustive",
    is_flag=True,
    help="Read the whole log, whatever the index, the queues and the clocks of the time say.",
)
@click.option(
    "--master",
    metavar="URL",
    help="Search with Spark, a segment a task: spark://host:7077, or local[*] for processes of this machine.",
)
@format_options
@store_options
@gathered(conditions=SearchConditions, extent=SearchExtent)
@plain_errors
def search(
    store: Path,
    conditions: SearchConditions,
    extent: SearchExtent,
    output_format: str,
    store_arguments: StoreArguments,
) -> None:
    """Search the store in STORE for messages by what they say; all conditions that are given must hold.

    Messages are listed as they are found, in the order of the log. Where the index, the queues of a topic or the time
    tell where to look, only that is read, else the log from its first byte to its last, on all cores.

    Exit code 0 when something was found, 1 when nothing was, 130 when stopped with Ctrl-C. How much was searched and
    what could not be stands on stderr; a search that was cut short tells the cursor to go on with.
    """
    write = growing_writer(output_format)
    # An index that is not asked for a key needs no check, and the log no scan for what it lacks.
    budget = None if conditions.topic and conditions.key and not extent.exhaustive else 0
    opened = open_store(store, store_arguments, scan_budget=budget, check_budget=budget)
    try:
        criteria = _criteria(conditions)
        with stopping() as should_stop:
            steps = _steps(opened, criteria, extent, should_stop)
            last = _show(steps, write)
            was_stopped = should_stop()
    except FilterSyntaxError as error:
        click.echo(f"rocketlens: {printable(str(error))}", err=True)
        sys.exit(USAGE)
    for note in (*last.notes, last.progress.sentence()):
        say(note)
    if last.cursor is not None:
        say(f"there may be more: --cursor {last.cursor} goes on behind")
        if was_stopped:
            sys.exit(STOPPED)
    sys.exit(FOUND if last.progress.found else NOT_FOUND)


def _criteria(conditions: SearchConditions) -> "Criteria":
    from storage.search import Criteria, SearchPlace
    from storage.search.criteria import parse_size_range

    begin, end = conditions.begin, conditions.end
    if begin is not None and end is not None and begin > end:
        raise ConfigError(f"--from {begin} is after --to {end}")
    times: dict[str, int] = {} if begin is None else {"begin_timestamp": begin}
    times |= {} if end is None else {"end_timestamp": end}
    smallest, largest = (0, None) if conditions.size is None else parse_size_range(conditions.size)
    return Criteria(
        topic=conditions.topic,
        contains=None if conditions.contains is None else os.fsencode(conditions.contains),
        regex=conditions.regex,
        place=SearchPlace(conditions.place),
        json_path=conditions.json_path,
        where=conditions.where,
        tag=conditions.tag,
        key=conditions.key,
        key_prefix=conditions.key_prefix,
        born_host=conditions.born_host,
        minimum_size=smallest,
        maximum_size=largest,
        **times,
    )


def _steps(
    store: "MessageStore", criteria: "Criteria", extent: SearchExtent, should_stop: Callable[[], bool]
) -> "Iterator[Step]":
    from storage.search import search as search_here

    options: dict[str, Any] = {"limit": extent.limit, "cursor": extent.cursor, "exhaustive": extent.exhaustive}
    options["should_stop"] = should_stop
    if extent.master is None:
        return search_here(store, criteria, **options)
    from spark_jobs.commands.command_run import check_spark

    check_spark()
    from spark_jobs.search.search import SparkTarget, search_on_spark

    return search_on_spark(store, criteria, spark=SparkTarget(extent.master), **options)


def _show(steps: "Iterator[Step]", write: Writer) -> "Step":
    """Write messages as they come, and how far the search is, if somebody watches; the last step."""
    with SearchProgress() as progress:
        for step in steps:
            if step.messages:
                with progress.aside():
                    write(step.messages)
            progress.show(step.progress)
    return step


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
