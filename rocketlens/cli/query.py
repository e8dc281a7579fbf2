"""`rocketlens query`: list messages by key, unique key or tag."""

import functools
import sys
from pathlib import Path

import click
import msgspec

from broker.endpoint import Endpoint
from protocol.question import PAGE
from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from rocketlens.cli.opening import open_source
from rocketlens.cli.options import (
    DIRECTORY,
    charset_option,
    gathered,
    store_options,
    verbose_option,
)
from rocketlens.cli.output import format_options, say_notes, staged_writer, writer
from rocketlens.cli.server_options import ServerArguments, server_option, server_options
from rocketlens.cli.time_options import check_stored, stored_options, timezone_option
from rocketlens.opening import StoreArguments


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

    def check(self) -> None:
        """Raise a usage error for options that contradict each other."""
        if (self.key, self.unique_key, self.tag).count(None) != 2:
            raise click.UsageError("expected exactly one of --key, --unique-key and --tag")
        check_stored(self.begin, self.end)


@click.command()
@click.argument("store", type=DIRECTORY, required=False)
@server_option
@click.option("--topic", required=True, help="Topic of the messages.")
@click.option("--key", help="One of the messages' business keys.")
@click.option("--unique-key", help="The id that the producer gave the message.")
@click.option("--tag", help="The messages' tag.")
@stored_options
@click.option(
    "--max",
    "maximum",
    type=click.IntRange(1),
    metavar="N",
    default=PAGE,
    show_default=True,
    help="Return at most N newest messages.",
)
@click.option(
    "--cursor", type=click.IntRange(0, 2**63 - 1), metavar="OFFSET", help="Only matches below this physical offset."
)
@click.option(
    "--copies",
    is_flag=True,
    help="Also find the copies of the topic's messages that wait (delay level, timer, half of a "
    "transaction), are retried, or were given up; each is listed with its stage and the topic under "
    "which it is stored.",
)
@charset_option
@format_options
@timezone_option
@verbose_option
@server_options
@store_options
@gathered(wanted=QueryArguments)
@plain_errors
def query(
    store: Path | None,
    server: Endpoint | None,
    wanted: QueryArguments,
    output_format: str,
    charset: str | None,
    verbose: bool,
    server_arguments: ServerArguments,
    store_arguments: StoreArguments,
) -> None:
    """List the newest messages with a key, a unique key or a tag, from the store in STORE or from running brokers.

    Give exactly one of --key, --unique-key and --tag. --begin and --end do not apply to a unique key.

    Exit code 0 if something was found, 1 if not. The reason is printed on stderr.
    """
    write = staged_writer if wanted.copies else functools.partial(writer, detailed=False)
    wanted.check()
    with open_source(store, server, store_arguments, server_arguments) as source:
        found = source.query(**msgspec.structs.asdict(wanted))
    say_notes(found, verbose=verbose)
    if found and found.cursor is not None:
        say(f"there are older matches: continue with --cursor {found.cursor}")
    write(output_format, charset=charset)(found)
    sys.exit(FOUND if found else NOT_FOUND)
