"""The commands whose place `find` has taken, for those who still type them; they go with the next release."""

from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from protocol.question import OFFSET_ID, PAGE, PHYSICAL_OFFSET, Answer, KeyKind
from rocketlens.cli.body_file import body_option
from rocketlens.cli.command_options import optional_engine_options
from rocketlens.cli.errors import plain_errors
from rocketlens.cli.find import FindArguments, find_and_show, from_id_option
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import EXPECTED, SourceArguments, source_options
from rocketlens.cli.options import charset_option, cursor_option, gathered, limit_option, verbose_option
from rocketlens.cli.output import format_options
from rocketlens.cli.time_options import stored_options, timezone_option
from spark_jobs.run.engine import EngineOptions

if TYPE_CHECKING:
    from rocketlens.source import Source


KINDS: Final = {"auto": None, "key": KeyKind.ANY.words, "offset-id": OFFSET_ID, "physical-offset": PHYSICAL_OFFSET}
"""What `lookup` takes lines for."""


class OldestFirst(FindArguments, frozen=True):
    """What `query` looks for, whose list is the other way round."""

    def ask(self, source: "Source", text: str) -> Answer:
        """As `find` does, the newest last."""
        found = FindArguments.ask(self, source, text)
        return replaced(found, messages=found.messages[::-1], stores=found.stores[::-1])


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
@plain_errors
def query(
    source: SourceArguments,
    output_format: str,
    key: str | None,
    unique_key: str | None,
    tag: str | None,
    **options: object,
) -> None:
    """Do as `rocketlens find SOURCE TEXT --topic TOPIC --as key`, or unique-key or tag."""
    texts = {"key": key, "unique-key": unique_key, "tag": tag}
    given = [(kind, text) for kind, text in texts.items() if text is not None]
    if len(given) != 1:
        raise click.UsageError("expected exactly one of --key, --unique-key and --tag")
    ((kind, text),) = given
    source.refuse_rest()
    wanted = msgspec.convert({**options, "kind": kind}, OldestFirst)
    find_and_show(source, wanted, output_format, [text])


@click.command(cls=GroupedCommand)
@source_options("SOURCE FILE")
@click.option("--topic", help="Topic of the messages; without it every topic is searched.")
@click.option("--as", "kind", type=click.Choice(list(KINDS)), default="auto", help="What the lines are.")
@click.option("--format", "output_format", type=click.Choice(("ndjson", "parquet")), default="ndjson", help="Of rows.")
@click.option("--out", type=click.Path(path_type=Path), metavar="PATH", help="Write to this new file.")
@click.option("--replace", is_flag=True, help="Replace an existing file at --out.")
@charset_option
@optional_engine_options
@gathered(engine=EngineOptions)
@plain_errors
def lookup(
    source: SourceArguments,
    engine: EngineOptions,
    topic: str | None,
    kind: str,
    output_format: str,
    out: Path | None,
    replace: bool,
    charset: str | None,
) -> None:
    """Run `rocketlens find SOURCE -f FILE`."""
    from rocketlens.cli.find_many import ManyArguments, find_many  # few look up many

    file = source.one_of(None)
    if file is None:
        raise click.UsageError(f"{EXPECTED}, and behind it a FILE")
    output_format = "json" if output_format == "ndjson" else output_format
    find_many(source, ManyArguments(file, out, replace, output_format, charset), engine, topic, KINDS[kind])
