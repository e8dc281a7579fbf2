"""`rocketlens tail`: the newest messages of a topic, and those that come."""

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import click
import msgspec

from protocol.errors import FilterSyntaxError
from protocol.message import Message
from protocol.printable import printable
from protocol.question import Answer
from protocol.system_topics import queue_offset_in
from rocketlens.absent_properties import note_of_properties
from rocketlens.arguments import MOST_PULLED
from rocketlens.cli.errors import FOUND, NOT_FOUND, USAGE, about_store, plain_errors, say, store_in_question
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import SourceArguments, absence_of, each_store, source_options
from rocketlens.cli.options import RenamedOption, charset_option, gathered, where_option
from rocketlens.cli.output import Writer, format_options, growing_writer, say_what_lacks
from rocketlens.cli.time_options import check_stored, stored_options, timezone_option
from storage.amounts import count_text, counted
from storage.times import LARGEST

if TYPE_CHECKING:  # most commands start without it
    from rocketlens.source import Source

DEFAULT_COUNT: Final = 20

LOOK_BACK: Final = 65_536
"""Messages at the end of a queue among which those that pass a filter are looked for."""


class TailArguments(msgspec.Struct, frozen=True):
    """What the options say: which messages, how many, and whether to go on."""

    topic: str
    tag: str | None
    sql: str | None
    count: int
    follow: bool
    begin: int
    end: int

    @property
    def is_narrowed(self) -> bool:
        """Whether messages are left out because of when they were stored."""
        return self.begin > 0 or self.end < LARGEST

    def check(self) -> None:
        """Raise a usage error for options that contradict each other."""
        check_stored(self.begin, self.end)
        if self.follow and self.end < LARGEST:
            raise click.UsageError("--follow goes on with what will be stored: --until does not apply")


@click.command(cls=GroupedCommand)
@click.option("--topic", default="", help="Topic of the messages, if it is not typed behind SOURCE.")
@click.option("--tag", metavar="EXPRESSION", help="Only messages of a tag subscription: 'TagA || TagB'.")
@where_option("Only messages of a SQL92 subscription", earlier=["--sql"])
@click.option(
    "-n",
    "--limit",
    "count",
    cls=RenamedOption,
    earlier=["--count"],
    type=click.IntRange(0),
    default=DEFAULT_COUNT,
    show_default=True,
    metavar="N",
    help="Begin with the N newest messages.",
)
@stored_options()
@click.option("-f", "--follow", is_flag=True, help="Go on with messages as they are stored, until Ctrl-C.")
@charset_option
@format_options
@timezone_option
@source_options("SOURCE TOPIC")
@gathered(wanted=TailArguments)
@plain_errors
def tail(wanted: TailArguments, output_format: str, charset: str | None, source: SourceArguments) -> None:
    """List the newest messages of a topic, those stored last at the end, and with --follow those that come after them.

    SOURCE is a store, on which a broker may be running, or a server. Nothing is committed, and no
    consumer group is made. With a filter, --since or --until the last 65,536 messages of each queue are looked at.

    Exit code 0 if messages were listed, 1 if not; 130 when --follow is ended with Ctrl-C.
    """
    topic = source.one_of(wanted.topic or None)
    if topic is None:
        raise click.UsageError("expected SOURCE and TOPIC")
    wanted = msgspec.structs.replace(wanted, topic=topic)
    wanted.check()
    write = growing_writer(output_format, charset)
    try:
        with source.open() as opened:
            newest, places = _newest(opened, wanted)
            for where, messages in groupby(newest, itemgetter(0)):
                _show(where, [message for _, message in messages], write)
            if not wanted.follow:
                sys.exit(FOUND if newest else NOT_FOUND)
            for where, piece in _coming(opened, wanted, places):
                _show(where, piece, write)
    except FilterSyntaxError as error:
        click.echo(f"rocketlens: {printable(str(error))}", err=True)
        sys.exit(USAGE)


def _show(where: str, messages: Sequence[Message], write: Writer) -> None:
    """Write messages of one of several stores, or of a source, now: who reads along waits for each."""
    if messages:
        with about_store(where):
            write(messages)
        sys.stdout.flush()


def _coming(
    opened: "Source", wanted: TailArguments, places: dict[str, dict[int, int]]
) -> "Iterator[tuple[str, list[Message]]]":
    """What comes to a topic, each piece with the one of several stores that it comes from."""
    from rocketlens.several_stores import SeveralStores  # few have several

    if isinstance(opened, SeveralStores):
        return opened.follow_each(wanted.topic, places, tag=wanted.tag, sql=wanted.sql)
    return (("", piece) for piece in opened.follow(wanted.topic, places[""], tag=wanted.tag, sql=wanted.sql))


def _newest(opened: "Source", wanted: TailArguments) -> tuple[list[tuple[str, Message]], dict[str, dict[int, int]]]:
    """The newest messages of a topic, oldest first, and the queue offsets behind them by queue id.

    Both by the one of several stores that they are in. Ends the command where there is no such topic.
    """
    found: list[tuple[str, Message]] = []
    places: dict[str, dict[int, int]] = {}
    is_cut = False
    for each in each_store(opened):
        queues = each.queues(wanted.topic)
        if not queues:
            continue
        where = store_in_question() or ""
        places[where] = {queue.queue_id: queue.max_offset for queue in queues}
        say_what_lacks(queues)
        for queue in queues:
            if queue.problem:
                say(f"queue {queue.queue_id}: {queue.problem}")
            begin = max(queue.min_offset, queue.max_offset - LOOK_BACK)
            of_queue, reached = _newest_of_queue(each, wanted, queue.queue_id, (begin, queue.max_offset))
            is_cut = is_cut or (reached == begin > queue.min_offset and len(of_queue) < wanted.count)
            found += ((where, message) for message in of_queue)
    if not places:
        say(absence_of(opened, wanted.topic) or f"topic {wanted.topic} has no queue")
        sys.exit(NOT_FOUND)
    found.sort(key=lambda row: (row[1].store_timestamp, row[1].physical_offset))
    newest = found[-wanted.count :] if wanted.count else []
    if is_cut and len(newest) < wanted.count:
        say(f"only the last {count_text(LOOK_BACK)} messages of each queue were looked at")
    if not wanted.count and not wanted.follow:
        say("--limit 0 lists no message: with --follow those that are stored from now on")
    if not found and wanted.count:
        what = "passes the filter" if wanted.tag is not None or wanted.sql is not None else "is there"
        say(f"no message of topic {wanted.topic} {what}{' and was stored in this time' if wanted.is_narrowed else ''}")
        if wanted.sql is not None and (note := note_of_properties(opened, wanted.topic, wanted.sql)):
            say(note)
    return newest, places


def _newest_of_queue(
    opened: "Source", wanted: TailArguments, queue_id: int, extent: tuple[int, int]
) -> tuple[list[Message], int]:
    """The newest messages of a queue between two queue offsets, and the offset down to which it was read.

    A piece at its end is read, then ever longer ones, down to one of which all was stored before what is asked for.
    """
    begin, end = extent
    found: list[Message] = []
    notes: dict[str, None] = {}
    length = max(wanted.count, MOST_PULLED)
    while len(found) < wanted.count and begin < end:
        start = max(begin, end - length)
        piece: list[Message] = []
        place = start
        while place < end:
            got = opened.pull(wanted.topic, queue_id, place, tag=wanted.tag, sql=wanted.sql)
            notes.update(dict.fromkeys(got.notes or _skipped(got, wanted, place)))
            piece += [message for message in got if queue_offset_in(message, wanted.topic) < end]
            if got.next_offset <= place:
                break
            place = got.next_offset
        found = [each for each in piece if wanted.begin <= each.store_timestamp <= wanted.end] + found
        end, length = start, length * 4
        if piece and all(each.store_timestamp < wanted.begin for each in piece):
            break
    for note in notes:
        say(f"queue {queue_id}: {note}")
    return found[-wanted.count :] if wanted.count else [], end


def _skipped(got: Answer, wanted: TailArguments, place: int) -> Iterator[str]:
    """Say which queue offsets a pull from `place` on has passed over without a message; a filter passes over many."""
    if wanted.tag is not None or wanted.sql is not None:
        return
    offsets = {queue_offset_in(message, wanted.topic) for message in got}
    if skipped := sorted(set(range(place, got.next_offset)) - offsets):
        are = "message is" if len(skipped) == 1 else "messages are"
        where = f"{skipped[0]}" if len(skipped) == 1 else f"{skipped[0]} to {skipped[-1]}"
        yield f"{counted(len(skipped), are, are)} left out at queue offset {where}: damaged, or no longer in the log"
