"""`rocketlens find`: the messages that texts name, whatever they are; what the page's one box does."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click
import msgspec

from protocol.question import LARGEST, OFFSET_ID, PHYSICAL_OFFSET, Answer, KeyKind, parts_of
from rocketlens.answers import joined
from rocketlens.arguments import MOST_FOUND, forms_in_list, words_of
from rocketlens.cli.body_file import body_option, check_body_options, file_of, write_body
from rocketlens.cli.command_options import optional_engine_options
from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import EXPECTED, SourceArguments, absence_of, say_nothing_is_named, source_options
from rocketlens.cli.options import charset_option, cursor_option, gathered, is_typed, limit_option, verbose_option
from rocketlens.cli.output import format_options_with, found_writer, rows_of, write_details
from rocketlens.cli.time_options import check_stored, stored_options, timezone_option
from spark_jobs.places.file_systems import is_url
from spark_jobs.run.engine import EngineOptions
from storage.amounts import counted
from storage.files.write_guard import check_outside

if TYPE_CHECKING:
    from rocketlens.source import Source

MOST_TOPICS = 20
"""Topics whose names hold the text that are printed."""

AS: Final = {
    "key": KeyKind.KEY.words,
    "unique-key": KeyKind.UNIQUE.words,
    "tag": KeyKind.TAG.words,
    "offset-id": OFFSET_ID,
    "physical-offset": PHYSICAL_OFFSET,
}
"""What a text may be taken for alone, as it is typed, and as answers name it."""


class FindArguments(msgspec.Struct, frozen=True):
    """What the options say: where to look, for what and how many messages, and how they are shown.

    The form of the command line alone: the source that is asked makes a `Question` of it.
    """

    kind: str | None = None
    topic: str | None = None
    begin: int = 0
    end: int = LARGEST
    maximum: int = MOST_FOUND
    cursor: int | None = None
    full: bool = False
    copies: bool = False
    body: str | None = None
    verbose: bool = False
    charset: str | None = None
    from_id: bool = False

    @property
    def is_paged(self) -> bool:
        """Whether a text is looked up in one topic as one part of messages, whose older matches a cursor leads to."""
        return self.topic is not None and self.kind in ("key", "unique-key", "tag")

    def check(self, texts: Sequence[str], output_format: str) -> None:
        """Raise a usage error for options that contradict each other, or the texts."""
        check_body_options(self.body, output_format, self.charset)
        if not texts or not all(texts):
            raise click.UsageError(f"{EXPECTED}, and behind it a TEXT")
        check_stored(self.begin, self.end)
        if self.cursor is not None and not (self.is_paged and len(texts) == 1):
            raise click.UsageError("--cursor needs one TEXT, --topic, and --as key, unique-key or tag")
        if self.from_id and self.kind not in (None, "offset-id"):
            raise click.UsageError("--from-id takes each TEXT for an offset message id: --as does not apply")

    def check_many(self, source: SourceArguments, output_format: str) -> None:
        """Raise a usage error for what does not apply to the lines of a file."""
        if source.rest:
            raise click.UsageError("-f FILE takes the place of TEXT")
        names = ("begin", "end", "maximum", "cursor", "full", "copies", "body", "from_id")
        if is_typed(*names) or (output_format == "table" and is_typed("output_format")):
            raise click.UsageError("-f FILE takes --as, --topic, --charset, and a --format for programs")
        if self.kind == "tag":
            raise click.UsageError("--as tag and -f FILE exclude each other: tags are found one by one")

    def ask(self, source: "Source", text: str) -> Answer:
        """The messages that a text names; where it names none, those that the words in it name."""
        found = self._ask(source, text)
        if found or self.from_id or self.kind not in (None, "key") or self.cursor is not None:
            return found
        return self.ask_by_words(source, text) or found

    def ask_by_words(self, source: "Source", text: str) -> Answer:
        """The messages that the words of a text name, which names none as a whole, or its forms in a list."""
        words = words_of(text)
        is_one = len(words) == 1
        if is_one:
            words = forms_in_list(text)
        else:
            say(f"{text}: RocketMQ splits KEYS at blanks; looked for each of {', '.join(words)}")
        # A list is one of keys: nothing else is asked of what its parts may be, which a server is asked topic by topic.
        asked = msgspec.structs.replace(self, kind="key") if is_one else self
        each = [asked._ask(source, word) for word in words]
        if is_one and any(each):
            stored = ", ".join(word for word, one in zip(words, each, strict=True) if one)
            say(f"{text}: is a key only as {stored}: KEYS was a list, which RocketMQ splits at its blanks")
        return joined(dict(zip(words, each, strict=True)))

    def _ask(self, source: "Source", text: str) -> Answer:
        if self.from_id:
            return _found_by(OFFSET_ID, source.view(text, topic=self.topic))
        kind = None if self.kind is None else AS[self.kind]
        if kind is None or self.topic is None or not self.is_paged:
            return source.find(text, topic=self.topic, begin=self.begin, end=self.end, maximum=self.maximum, kind=kind)
        found = source.query(
            self.topic,
            key=text if self.kind == "key" else None,
            unique_key=text if self.kind == "unique-key" else None,
            tag=text if self.kind == "tag" else None,
            begin=self.begin,
            end=self.end,
            maximum=self.maximum,
            cursor=self.cursor,
            copies=self.copies,
        )
        return _found_by(kind, found)


def _found_by(kind: str, found: Answer) -> Answer:
    """Messages that were looked up in one way, the newest first."""
    return replace(found, messages=found.messages[::-1], kinds=(kind,) * len(found), stores=found.stores[::-1])


from_id_option = click.option(
    "--from-id", is_flag=True, help="No SOURCE: ask the broker whose address is in each id, as RocketMQ's clients do."
)


@click.command(cls=GroupedCommand)
@source_options("SOURCE TEXT...")
@click.option(
    "--as",
    "kind",
    type=click.Choice(list(AS)),
    metavar="KIND",
    help=f"Take each TEXT for this alone: {', '.join(AS)}.",
)
@click.option("--topic", help="Look in this topic only; without it every topic is searched.")
@stored_options(("--begin", "--end"))
@limit_option("List at most N messages of each TEXT.", earlier=["--max"], default=MOST_FOUND)
@cursor_option
@click.option("--full", is_flag=True, help="Show each message whole: all fields, properties and the body.")
@click.option(
    "--copies",
    is_flag=True,
    help="List all copies of a message, which else share a row; with --topic and --as also those under the broker's "
    "own topics.",
)
@body_option
@from_id_option
@click.option(
    "-f",
    "--file",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Look up each line of FILE (- is stdin), a million and more.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="With -f: write to this new file. [default: stdout]",
)
@click.option("--replace", is_flag=True, help="Replace an existing file at --out.")
@charset_option
@optional_engine_options
@format_options_with("parquet", said=", parquet with -f and --out")
@timezone_option
@verbose_option
@gathered(wanted=FindArguments, engine=EngineOptions)
@plain_errors
def find(
    source: SourceArguments,
    wanted: FindArguments,
    engine: EngineOptions,
    file: str | None,
    out: Path | None,
    replace: bool,
    output_format: str,
) -> None:
    """Find the messages that each TEXT names, whatever it is, in SOURCE: a directory, a URL, or a server's HOST:PORT.

    TEXT may be an offset message id, a physical offset, a unique key, a key or a tag: all are tried, in every topic,
    and stderr says how many messages each names. Keys and tags are compared whole, and case counts. --since and --until
    do not apply to ids.

    Copies of a message, which wait, are retried or were given up, share a row, that of the last one; `rocketlens life`
    shows what happened to it. Programs get a row each.

    With -f there is a row for each line of FILE and message, in the order of the log, with the line as `query`, then
    one with `found` false for each line that names nothing. A line is an offset message id of the store, or else a
    unique key or a key, without --as; words of keys and lists are looked for of TEXT alone. The index is read once; a
    server is asked for one line after the other, and rows are in the order of the lines.

    Exit code 0 if each TEXT, or line, named a message, 1 if not.
    """
    if file is None:
        if output_format == "parquet" or is_typed("out", "replace", "engine", "master", "settings"):
            raise click.UsageError("--format parquet, --out, --replace and the options of an engine need -f FILE")
        find_and_show(source, wanted, output_format)
    from rocketlens.cli.find_many import ManyArguments, find_many  # few look up many

    wanted.check_many(source, output_format)
    output_format = "json" if output_format == "table" else output_format
    many = ManyArguments(file, out, replace, output_format, wanted.charset)
    find_many(source, many, engine, wanted.topic, None if wanted.kind is None else AS[wanted.kind])


def find_and_show(
    source: SourceArguments, wanted: FindArguments, output_format: str, texts: Sequence[str] | None = None
) -> NoReturn:
    """Find what each of some texts names, by default of those that were typed, show it, and end."""
    if wanted.from_id and not is_typed("from_id") and source.is_named:  # the environment counts less
        wanted = msgspec.structs.replace(wanted, from_id=False)
    if texts is None:
        texts = source.words if wanted.from_id else source.rest
    wanted.check(texts, output_format)
    if wanted.body is not None:
        logs = source.store_arguments.commit_log_directories or ()
        check_outside((*source.directories, *logs), file_of(wanted.body))
    with source.open_by_ids() if wanted.from_id else source.open() as opened:
        answers = {text: wanted.ask(opened, text) for text in texts}
        absence = "" if any(answers.values()) else absence_of(opened, wanted.topic)
    for text, found in answers.items():
        if wanted.kind is None:
            _say_readings(found, f"{text} as" if len(answers) > 1 else "as")
        for note in found.notes:
            say(note)
        if not found:
            details = found.details if wanted.verbose else ""
            say_nothing_is_named(found.reason, absence, details, hints=wanted.kind is None)
        if found.cursor is not None:
            say(f"there are older matches: continue with --cursor {found.cursor}")
    write = found_writer(output_format, wanted.charset, lists_copies=wanted.copies)
    all_found = next(iter(answers.values())) if len(answers) == 1 else joined(answers)
    if wanted.body is not None:
        if all_found:
            write_body(all_found, wanted.body)
    elif wanted.full and output_format == "table":
        write_details(all_found, wanted.charset, all_found.stores)
    else:
        write(all_found)
        rows = rows_of(all_found, lists_copies=output_format != "table" or wanted.copies)
        row = next((row for row, copies in rows if copies), None)
        if row is not None and not is_url(source.place or ""):  # of which no life is known
            where, key = next(iter(row.store), source.place or "SOURCE"), row.message.unique_key or ""
            say(f"what became of it: rocketlens life {shlex.quote(where)} {shlex.quote(key)}")
    sys.exit(FOUND if all(answers.values()) else NOT_FOUND)


def _say_readings(found: Answer, taken: str) -> None:
    """Print what the text was taken for, one reading a line, and the topics that are named so."""
    rows = rows_of(found, lists_copies=False)
    for reading in found.readings if found else ():
        kinds = {reading.kind, *(kind.words for parts in parts_of(reading.kind) for kind in parts)}
        copies = sum(more for row, more in rows if row.kind in kinds)
        count = counted(reading.found - copies, "message") if reading.found else "none"
        besides = f" and {counted(copies, 'copy', 'copies')}" if copies else ""
        say(f"{taken} {reading.kind}: {count}{besides}{f' ({reading.note})' if reading.note else ''}")
    if found.topics:
        more = len(found.topics) - MOST_TOPICS
        say(f"topics named so: {', '.join(found.topics[:MOST_TOPICS])}{f' and {more:,} more' if more > 0 else ''}")
