"""The commands whose place `find` has taken, for those who still type them; they go with the next release."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click
import msgspec

from protocol.question import PAGE
from rocketlens.answers import FoundMessages
from rocketlens.cli.body_file import body_option
from rocketlens.cli.errors import plain_errors
from rocketlens.cli.find import FindArguments, find_and_show, from_id_option
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import SourceArguments, source_options
from rocketlens.cli.options import charset_option, cursor_option, gathered, limit_option, verbose_option
from rocketlens.cli.output import format_options
from rocketlens.cli.time_options import stored_options, timezone_option

if TYPE_CHECKING:
    from rocketlens.source import Source


class QueryArguments(msgspec.Struct, frozen=True):
    """What the options of `query` say of what is looked for."""

    key: str | None
    unique_key: str | None
    tag: str | None

    def named(self) -> tuple[str, str]:
        """What the text is to be taken for, and the text."""
        named = (("key", self.key), ("unique-key", self.unique_key), ("tag", self.tag))
        given = [(kind, text) for kind, text in named if text is not None]
        if len(given) != 1:
            raise click.UsageError("expected exactly one of --key, --unique-key and --tag")
        return given[0]


class OldestFirst(FindArguments, frozen=True):
    """What `query` looks for, whose list is the other way round."""

    def ask(self, source: "Source", text: str) -> FoundMessages:
        """As `find` does, the newest last."""
        found = FindArguments.ask(self, source, text)
        return replace(found, messages=found.messages[::-1])


@click.command(cls=GroupedCommand)
@source_options("SOURCE ID...")
@click.option("--topic", help="Topic of the messages; without it every topic is searched.")
@click.option("--damaged", is_flag=True, help="Damaged records are shown without this.")
@charset_option
@body_option
@from_id_option
@format_options
@timezone_option
@verbose_option
@plain_errors
def view(source: SourceArguments, output_format: str, damaged: bool, **options: object) -> None:
    """Do as `rocketlens find SOURCE ID... --full`."""
    find_and_show(source, msgspec.convert({**options, "full": True}, FindArguments), output_format)


@click.command(cls=GroupedCommand)
@source_options()
@click.option("--topic", required=True, help="Topic of the messages.")
@click.option("--key", help="One of the messages' business keys.")
@click.option("--unique-key", help="The id that the producer gave the message.")
@click.option("--tag", help="The messages' tag.")
@stored_options(("--begin", "--end"))
@limit_option("Return at most N newest messages.", earlier=["--max"], default=PAGE)
@cursor_option
@click.option("--copies", is_flag=True, help="Also find the copies of the topic's messages.")
@charset_option
@format_options
@timezone_option
@verbose_option
@gathered(asked=QueryArguments)
@plain_errors
def query(source: SourceArguments, output_format: str, asked: QueryArguments, **options: object) -> None:
    """Do as `rocketlens find SOURCE TEXT --topic TOPIC --as key`, or unique-key or tag."""
    kind, text = asked.named()
    source.refuse_rest()
    wanted = msgspec.convert({**options, "kind": kind}, OldestFirst)
    find_and_show(source, wanted, output_format, [text])
