"""`rocketlens find`: the messages that a text names, whatever it is; what the page's one box does."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from broker.endpoint import Endpoint
from rocketlens.arguments import MOST_FOUND
from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from rocketlens.cli.opening import open_source
from rocketlens.cli.options import (
    charset_option,
    gathered,
    is_typed,
    store_options,
    verbose_option,
)
from rocketlens.cli.output import format_options, found_writer, say_notes
from rocketlens.cli.server_options import ServerArguments, server_option, server_options
from rocketlens.cli.time_options import check_stored, stored_options, timezone_option
from rocketlens.opening import StoreArguments
from storage.amounts import counted

if TYPE_CHECKING:
    from rocketlens.answers import FoundMessages

MOST_TOPICS = 20
"""Topics whose names hold the text that are printed."""


class FindArguments(msgspec.Struct, frozen=True):
    """What the options say: where to look, and for how many messages."""

    topic: str | None
    begin: int
    end: int
    maximum: int
    verbose: bool
    charset: str | None


@click.command()
@click.argument("arguments", nargs=-1, required=True, metavar="[STORE] TEXT")
@server_option
@click.option("--topic", help="Look in this topic only; without it every topic is searched.")
@stored_options
@click.option(
    "--max",
    "maximum",
    type=click.IntRange(1),
    metavar="N",
    default=MOST_FOUND,
    show_default=True,
    help="List at most N messages.",
)
@charset_option
@format_options
@timezone_option
@verbose_option
@server_options
@store_options
@gathered(wanted=FindArguments)
@plain_errors
def find(
    arguments: tuple[str, ...],
    server: Endpoint | None,
    wanted: FindArguments,
    output_format: str,
    server_arguments: ServerArguments,
    store_arguments: StoreArguments,
) -> None:
    """Find the messages that TEXT names, whatever it is, in the store in STORE or through running brokers.

    TEXT may be an offset message id, a physical offset, a unique key, a key or a tag: all are tried, in every topic,
    retries and dead letters among them, and for each it is printed on stderr how many messages it names. Keys and tags
    are compared whole, and case counts. --begin and --end do not apply to ids.

    Exit code 0 if a message was found, 1 if not.
    """
    write = found_writer(output_format, wanted.charset)
    *stores, text = arguments
    if len(stores) > 1 or (is_typed("server") if stores else server is None):
        raise click.UsageError("expected STORE and one TEXT, or --server and one TEXT")
    check_stored(wanted.begin, wanted.end)
    store = Path(stores[0]) if stores else None
    with open_source(store, server, store_arguments, server_arguments) as source:
        found = source.find(text, topic=wanted.topic, begin=wanted.begin, end=wanted.end, maximum=wanted.maximum)
    _say_readings(found)
    say_notes(found, verbose=wanted.verbose)
    write(found)
    sys.exit(FOUND if found else NOT_FOUND)


def _say_readings(found: "FoundMessages") -> None:
    """Print what the text was taken for, one reading a line, and the topics that are named so."""
    for reading in found.readings if found else ():
        count = counted(reading.found, "message") if reading.found else "none"
        say(f"as {reading.kind}: {count}{f' ({reading.note})' if reading.note else ''}")
    if found.topics:
        more = len(found.topics) - MOST_TOPICS
        say(f"topics named so: {', '.join(found.topics[:MOST_TOPICS])}{f' and {more:,} more' if more > 0 else ''}")
