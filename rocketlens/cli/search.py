"""`rocketlens search`: find messages by their content."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType

import click
import msgspec

import rocketlens
from protocol.errors import FilterSyntaxError
from protocol.printable import printable
from rocketlens.arguments import SearchOptions, criteria_of
from rocketlens.cli.command_options import optional_engine_options, storage_option, store_argument
from rocketlens.cli.errors import FOUND, NOT_FOUND, STOPPED, USAGE, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import open_store
from rocketlens.cli.options import charset_option, gathered, limit_option, store_options, where_option
from rocketlens.cli.output import Writer, format_options, growing_writer
from rocketlens.cli.search_progress import SearchProgress
from rocketlens.cli.searched_place import StorePlace, searched_store
from rocketlens.cli.time_options import check_stored, stored_options, timezone_option
from rocketlens.opening import StoreArguments

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
    charset: str | None


class SearchExtent(msgspec.Struct, frozen=True):
    """What the options say of how far the search goes, and where."""

    maximum: int | None
    cursor: str | None
    exhaustive: bool


@click.command(cls=GroupedCommand)
@store_argument
@click.option("--topic", help="Only messages that are stored under this topic.")
@stored_options(("--from", "--to"), is_optional=True)
@click.option("--contains", metavar="TEXT", help="The body, decompressed and unpacked, contains this text (see --in).")
@click.option(
    "--regex", metavar="RE", help="A Python regular expression matches somewhere in the body's text (see --in)."
)
@click.option(
    "--in",
    "place",
    type=click.Choice(PLACES),
    default="body",
    show_default=True,
    help="Where --contains and --regex look: in the body, in the values of the properties (including KEYS "
    "and TAGS), or in both. Headers, topics and the names of properties are not searched.",
)
@click.option(
    "--json-path",
    metavar="EXPR=VALUE",
    help="The body is JSON, and the JSONPath finds the value in it: '$.order.id=4711' finds 4711 and \"4711\".",
)
@where_option("The properties fulfil this expression", name="where")
@click.option("--tag", help="The message's whole tag.")
@click.option("--key", help="One of the business keys, or the unique key. With --topic the index is used.")
@click.option(
    "--key-prefix", metavar="P", help="A business key, or the unique key, starts with this; the index cannot be used."
)
@click.option(
    "--born-host",
    metavar="H",
    help="The sender, behind a proxy too: an address, address:port, a network like 10.1.0.0/16, a host name.",
)
@click.option(
    "--size", metavar="RANGE", help="Bytes of the decompressed body: 512, 1k..64k, ..2M or 100.. (k is 1024)."
)
@limit_option("Stop after N messages. [default: all]")
@click.option(
    "--cursor", metavar="C", help=("Continue an earlier search with the same conditions at the cursor that it printed.")
)
@click.option(
    "--exhaustive",
    is_flag=True,
    help="Read the whole log, without using the index, the queues or the times.",
)
@charset_option
@storage_option
@optional_engine_options
@format_options
@timezone_option
@store_options
@gathered(conditions=SearchConditions, extent=SearchExtent, place=StorePlace)
@plain_errors
def search(
    place: StorePlace,
    conditions: SearchConditions,
    extent: SearchExtent,
    output_format: str,
    store_arguments: StoreArguments,
) -> None:
    """Search the store in STORE for messages by their content; a message must meet all conditions.

    STORE is a directory, or a URL such as s3://bucket/store, which is searched by an engine, a task for each segment.

    Messages are listed as they are found, in the order of the log. If the index, the queues of a topic or the time
    limit the search, only that part of the log is read; otherwise all of it, on all cores.

    Exit code 0 if something was found, 1 if not, 130 if stopped with Ctrl-C. A report on stderr says how much was
    searched and what could not be; a search that ended early also prints the cursor to continue with.
    """
    write = growing_writer(output_format, conditions.charset)
    begin, end = conditions.begin, conditions.end
    check_stored(begin, end)
    try:
        with stopping() as should_stop, _searching(place, store_arguments, conditions, extent, should_stop) as found:
            _show(found, write)
            was_stopped = should_stop()
    except FilterSyntaxError as error:
        click.echo(f"rocketlens: {printable(str(error))}", err=True)
        sys.exit(USAGE)
    for note in (*found.notes, found.progress.sentence()):
        say(note)
    if found.cursor is not None:
        times = (("--since", begin), ("--until", end))
        # As they were taken: -1h is another time when the search is continued, and so would be another search.
        given = "".join(f"{name} {time} " for name, time in times if time is not None)
        say(f"there may be more: continue with {given}--cursor {found.cursor}")
        if was_stopped:
            sys.exit(STOPPED)
    sys.exit(FOUND if found.progress.found else NOT_FOUND)


@contextlib.contextmanager
def _searching(
    place: StorePlace,
    store_arguments: StoreArguments,
    conditions: SearchConditions,
    extent: SearchExtent,
    should_stop: Callable[[], bool],
) -> Iterator["rocketlens.Search"]:
    contains = None if conditions.contains is None else os.fsencode(conditions.contains)  # bytes that may be no UTF-8
    options = SearchOptions(
        begin=conditions.begin,
        end=conditions.end,
        contains=contains,
        regex=conditions.regex,
        place=conditions.place,
        json_path=conditions.json_path,
        where=conditions.where,
        tag=conditions.tag,
        key=conditions.key,
        key_prefix=conditions.key_prefix,
        born_host=conditions.born_host,
        size=conditions.size,
        charset=conditions.charset,
        limit=extent.maximum,
        cursor=extent.cursor,
    )
    if not place.needs_engine:
        store = open_store(place.directory, store_arguments)
        yield store.search(topic=conditions.topic, exhaustive=extent.exhaustive, should_stop=should_stop, **options)
        return
    from rocketlens.searching import Search
    from rocketlens.store import needs_keys
    from spark_jobs.search.search import search_by_tasks

    criteria = replace(criteria_of(conditions.topic, options), masked=store_arguments.rules)
    with_keys = needs_keys(criteria, exhaustive=extent.exhaustive)
    with searched_store(place, store_arguments, conditions.topic, with_keys=with_keys) as searched:
        steps = search_by_tasks(
            searched,
            criteria,
            engine=place,
            notify=say,
            limit=extent.maximum,
            cursor=extent.cursor,
            exhaustive=extent.exhaustive,
            should_stop=should_stop,
        )
        yield Search(steps)


def _show(found: "rocketlens.Search", write: Writer) -> None:
    """Write messages as they come, and on a terminal how far the search is."""
    with SearchProgress() as progress:
        for messages in found.pieces():
            if messages:
                with progress.aside():
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
