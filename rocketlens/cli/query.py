"""`rocketlens query`: list messages by key, unique key or tag."""

import functools
import sys

import click
import msgspec

from protocol.question import PAGE
from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import SourceArguments, source_options
from rocketlens.cli.options import (
    charset_option,
    gathered,
    limit_option,
    verbose_option,
)
from rocketlens.cli.output import format_options, say_notes, staged_writer, writer
from rocketlens.cli.time_options import check_stored, stored_options, timezone_option


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


@click.command(cls=GroupedCommand)
@click.option("--topic", required=True, help="Topic of the messages.")
@click.option("--key", help="One of the messages' business keys.")
@click.option("--unique-key", help="The id that the producer gave the message.")
@click.option("--tag", help="The messages' tag.")
@stored_options(("--begin", "--end"))
@limit_option("Return at most N newest messages.", earlier=["--max"], default=PAGE)
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
@source_options()
@gathered(wanted=QueryArguments)
@plain_errors
def query(
    source: SourceArguments,
    wanted: QueryArguments,
    output_format: str,
    charset: str | None,
    verbose: bool,
) -> None:
    """List the newest messages with a key, a unique key or a tag.

    Give exactly one of --key, --unique-key and --tag. --since and --until do not apply to a unique key.

    Exit code 0 if something was found, 1 if not. The reason is printed on stderr.
    """
    write = staged_writer if wanted.copies else functools.partial(writer, detailed=False)
    wanted.check()
    source.refuse_rest()
    with source.open() as opened:
        found = opened.query(**msgspec.structs.asdict(wanted))
    say_notes(found, verbose=verbose)
    if found and found.cursor is not None:
        say(f"there are older matches: continue with --cursor {found.cursor}")
    write(output_format, charset=charset)(found)
    sys.exit(FOUND if found else NOT_FOUND)
