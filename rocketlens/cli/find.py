"""`rocketlens find`: the messages that texts name, whatever they are; what the page's one box does."""

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from protocol.question import FoundBy
from rocketlens.answers import FoundMessages
from rocketlens.arguments import MOST_FOUND
from rocketlens.cli.body_file import body_option, check_body_options, file_of, write_body
from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import EXPECTED, SourceArguments, source_options
from rocketlens.cli.options import charset_option, gathered, limit_option, verbose_option
from rocketlens.cli.output import format_options, found_writer, say_notes, writer
from rocketlens.cli.time_options import check_stored, stored_options, timezone_option
from storage.amounts import counted
from storage.files.write_guard import check_outside

if TYPE_CHECKING:
    from rocketlens.source import Source

MOST_TOPICS = 20
"""Topics whose names hold the text that are printed."""

HINT: Final = "a part of a body is found by `search --contains`; keys are compared whole, and case counts"
"""What an empty answer says, as the page does."""

_LIST: Final = re.compile(r"[\[\](),;]")


class FindArguments(msgspec.Struct, frozen=True):
    """What the options say: where to look, for how many messages, and how they are shown."""

    topic: str | None
    begin: int
    end: int
    maximum: int
    full: bool
    copies: bool
    body: str | None
    verbose: bool
    charset: str | None

    def ask(self, source: "Source", text: str) -> FoundMessages:
        """The messages that a text names; where it names none, those that the words in it name."""
        found = self._ask(source, text)
        if found or len(words := words_of(text)) < 2:
            return found
        say(f"{text}: RocketMQ splits KEYS at blanks; looked for each of {', '.join(words)}")
        each = [self._ask(source, word) for word in words]
        return together(each) if any(each) else found

    def _ask(self, source: "Source", text: str) -> FoundMessages:
        return source.find(text, topic=self.topic, begin=self.begin, end=self.end, maximum=self.maximum)


def words_of(text: str) -> list[str]:
    """The keys that a text may stand for, which looks like a list or holds blanks: as they are stored, and bare."""
    pieces = text.split()
    bare = _LIST.sub(" ", text).split()
    return list(dict.fromkeys((*bare, *pieces))) if len(bare) > 1 or bare != [text] else [text]


def together(answers: Sequence[FoundMessages]) -> FoundMessages:
    """Several answers as one, each message once."""
    rows: dict[tuple[int, str], tuple[FoundBy, str]] = {}
    for found in answers:
        for message, kind, outcome in zip(found, found.kinds, found.outcomes or [""] * len(found), strict=True):
            rows.setdefault((message.physical_offset, message.offset_message_id), (FoundBy(message, kind), outcome))
    return FoundMessages(
        tuple(found.message for found, _ in rows.values()),
        notes=tuple(dict.fromkeys(note for found in answers for note in found.notes)),
        kinds=tuple(found.kind for found, _ in rows.values()),
        outcomes=tuple(outcome for _, outcome in rows.values()),
    )


@click.command(cls=GroupedCommand)
@source_options("SOURCE TEXT...")
@click.option("--topic", help="Look in this topic only; without it every topic is searched.")
@stored_options(("--begin", "--end"))
@limit_option("List at most N messages of each TEXT.", earlier=["--max"], default=MOST_FOUND)
@click.option("--full", is_flag=True, help="Show each message whole: all fields, properties and the body.")
@click.option("--copies", is_flag=True, help="List all copies of a message, which else share a row.")
@body_option
@charset_option
@format_options
@timezone_option
@verbose_option
@gathered(wanted=FindArguments)
@plain_errors
def find(source: SourceArguments, wanted: FindArguments, output_format: str) -> None:
    """Find the messages that each TEXT names, whatever it is, in SOURCE: a directory, a URL, or a server's HOST:PORT.

    TEXT may be an offset message id, a physical offset, a unique key, a key or a tag: all are tried, in every topic,
    retries and dead letters among them, and for each it is printed on stderr how many messages it names. Keys and tags
    are compared whole, and case counts. --since and --until do not apply to ids.

    Copies of a message, which wait, are retried or were given up, share a row, that of the last one; `rocketlens life`
    shows what happened to it. Programs get a row each.

    Exit code 0 if each TEXT named a message, 1 if not.
    """
    check_body_options(wanted.body, output_format, wanted.charset)
    if not source.rest or not all(source.rest):
        raise click.UsageError(f"{EXPECTED}, and behind it a TEXT")
    check_stored(wanted.begin, wanted.end)
    if wanted.body is not None:
        logs = source.store_arguments.commit_log_directories or ()
        check_outside((*source.directories, *logs), file_of(wanted.body))
    write = found_writer(output_format, wanted.charset, lists_copies=wanted.copies)
    with source.open() as opened:
        answers = {text: wanted.ask(opened, text) for text in source.rest}
    for text, found in answers.items():
        _say_readings(found, f"{text} as" if len(answers) > 1 else "as")
        say_notes(found, verbose=wanted.verbose)
        if not found:
            say(HINT)
    all_found = next(iter(answers.values())) if len(answers) == 1 else together(list(answers.values()))
    if wanted.body is not None:
        if all_found:
            write_body(all_found, wanted.body)
    elif wanted.full and output_format == "table":
        writer(output_format, detailed=True, charset=wanted.charset)(all_found)
    else:
        write(all_found)
    sys.exit(FOUND if all(answers.values()) else NOT_FOUND)


def _say_readings(found: FoundMessages, taken: str) -> None:
    """Print what the text was taken for, one reading a line, and the topics that are named so."""
    for reading in found.readings if found else ():
        count = counted(reading.found, "message") if reading.found else "none"
        say(f"{taken} {reading.kind}: {count}{f' ({reading.note})' if reading.note else ''}")
    if found.topics:
        more = len(found.topics) - MOST_TOPICS
        say(f"topics named so: {', '.join(found.topics[:MOST_TOPICS])}{f' and {more:,} more' if more > 0 else ''}")
