"""`rocketlens pending`: the messages that wait for a delay level or for a point in time."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from protocol.errors import ConfigError
from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import SourceArguments, absence_of, each_store, source_options
from rocketlens.cli.options import gathered
from rocketlens.cli.output import format_options, growing_table, print_table, time_text, write_maps
from rocketlens.cli.time_options import FORMS, check_stored, stored_options, timestamp, timezone_option, typed_time
from storage.amounts import bytes_text, count_text, counted
from storage.times import LARGEST

if TYPE_CHECKING:
    from rocketlens.source import Source
    from storage.life.pending import DeliveryState, Pending, PendingMessage, PendingTopic, PendingWindow

TOPIC_HEADINGS: Final = (
    *("TOPIC", "WAITING", "OVERDUE", "CANCELLED", "ROLLED", "POPPED", "BYTES", "NEXT DUE", "LAST DUE"),
)
MESSAGE_HEADINGS: Final = ("DUE", "STATE", "TOPIC", "BY", "MESSAGE ID", "PHYSICAL", "STORED", "TAG", "KEYS")

DEFAULT_LIMIT: Final = 100

ROWS_AT_ONCE: Final = 1000
"""Rows of a table that are laid out together."""


class PendingOptions(msgspec.Struct, frozen=True):
    """Which of the messages are asked for."""

    topic: str | None
    due_after: int | None
    due_before: int | None
    begin: int | None
    end: int | None
    limit: int

    def window(self) -> "PendingWindow":
        """Return the options as the window that the storage layer takes. Raises ConfigError."""
        from storage.life.pending import EARLIEST, PendingWindow

        after, before = self.due_after or 0, LARGEST if self.due_before is None else self.due_before
        if after > before:
            first, last = typed_time("due_after", after), typed_time("due_before", before)
            raise ConfigError(f"--due-after {first} is after --due-before {last}")
        check_stored(self.begin, self.end)
        begin, end = EARLIEST if self.begin is None else self.begin, LARGEST if self.end is None else self.end
        return PendingWindow(self.topic, after, before, begin, end)


@click.command(cls=GroupedCommand)
@source_options("SOURCE [TOPIC]")
@click.option("--topic", help="Only messages that will be delivered to this topic.")
@click.option("--due-after", type=timestamp, metavar="TIME", help=f"Due at this time or after it: {FORMS}.")
@click.option("--due-before", type=timestamp, metavar="TIME", help="Due at this time or before it.")
@stored_options(is_optional=True)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="List at most N messages, those that are due first; with 0 only the counts are shown.",
)
@format_options
@timezone_option
@gathered(options=PendingOptions)
@plain_errors
def pending(source: SourceArguments, options: PendingOptions, output_format: str) -> None:
    """Show the messages of SOURCE that wait: for a delay level, for a point in time, to be retried.

    First how many wait for each topic, then the messages, the next one that is due first. What is delivered already is
    known from the broker's own files (config/delayOffset.json, config/timercheck). Cancelled messages are listed too,
    but not delivered. A message that waits very long is stored again from time to time ("rolled") and counts once. One
    that a group popped and has not acknowledged comes back to the group ("popped").

    Exit code 0 if a message waits, 1 if none does.
    """
    options = msgspec.structs.replace(options, topic=source.one_of(options.topic))
    window = options.window()
    with source.open() as opened:
        total = sum(_pending_in(each, options, window, output_format) for each in each_store(opened, output_format))
    sys.exit(FOUND if total else NOT_FOUND)


def _pending_in(opened: "Source", options: PendingOptions, window: "PendingWindow", output_format: str) -> int:
    """Show what waits in one store; return how many messages do."""
    with opened.pending() as found:
        topics = found.topics(window)
        if output_format == "table":
            _show(found, topics, window, options.limit)
        else:
            write_maps(output_format, _maps(found, topics, window, options.limit))
        total = sum(topic.pending + topic.popped for topic in topics)
        listed = total + sum(topic.cancelled for topic in topics)
        for note in found.as_of.notes:
            say(note)
        if found.incomplete:
            say(f"something may be missing: {found.incomplete}")
        if not total:
            what = f"no message waits{f' for topic {options.topic}' if options.topic else ''}{_when(options)}"
            say(absence_of(opened, options.topic) or what)
        elif output_format == "table":
            say(_as_of(found.as_of))
        if 0 < options.limit < listed:
            say(f"{counted(listed - options.limit, 'message')} more that are due later: use a higher --limit")
    return total


def _when(options: PendingOptions) -> str:
    due = "" if options.due_after is None and options.due_before is None else " that is due in this time"
    stored = " that was stored in this time" if (options.begin, options.end) != (None, None) else ""
    return " and".join(filter(None, (due, stored)))


def _as_of(as_of: "DeliveryState") -> str:
    """Up to when deliveries are known."""
    said = [f"the last message was stored {time_text(as_of.log_timestamp)}"]
    if as_of.timers is not None and as_of.timers_known:
        said.append(f"timer messages that were due before {time_text(as_of.timers)} are delivered")
    return "; ".join(said)


def _show(found: "Pending", topics: Sequence["PendingTopic"], window: "PendingWindow", limit: int) -> None:
    """Write the counts, and the messages in tables of some rows."""
    print_table(TOPIC_HEADINGS, map(_topic_row, topics))
    rows, write_rows = map(_message_row, found.messages(window, limit)), growing_table(MESSAGE_HEADINGS)
    pieces = iter(lambda: list(itertools.islice(rows, ROWS_AT_ONCE)), [])
    for number, piece in enumerate(pieces):
        if not number:
            print("")
        write_rows(piece)


def _topic_row(topic: "PendingTopic") -> tuple[str, ...]:
    counts = (topic.waiting, topic.overdue, topic.cancelled, topic.rolled, topic.popped)
    due = ("" if each is None else time_text(each) for each in (topic.first_due, topic.last_due))
    return (topic.topic, *map(count_text, counts), bytes_text(topic.size), *due)


def _message_row(pending: "PendingMessage") -> tuple[str | int, ...]:
    message = pending.message
    by = "timer" if pending.level is None else f"level {pending.level}"
    if pending.group is not None:
        by = f"popped by {pending.group}: {message.topic}, queue {message.queue_id}, offset {message.queue_offset}"
    if pending.rolls:
        by += f", rolled {counted(pending.rolls, 'time')}"
    return (
        *(time_text(pending.due_timestamp), pending.state.value, pending.topic, by, message.message_id),
        *(message.physical_offset, time_text(message.store_timestamp), message.tags or "", " ".join(message.keys)),
    )


def _maps(
    found: "Pending", topics: Iterable["PendingTopic"], window: "PendingWindow", limit: int
) -> Iterator[dict[str, Any]]:
    """One map that says up to when deliveries are known, one a topic, one a message; times in milliseconds."""
    as_of = found.as_of
    yield {
        "kind": "asOf",
        "logTimestamp": as_of.log_timestamp,
        "timersTimestamp": as_of.timers,
        "timersKnown": as_of.timers_known,
        "levelsKnown": as_of.levels_known,
        "notes": list(as_of.notes),
        "incomplete": found.incomplete,
    }
    for topic in topics:
        yield {
            "kind": "topic",
            "topic": topic.topic,
            "waiting": topic.waiting,
            "overdue": topic.overdue,
            "cancelled": topic.cancelled,
            "rolled": topic.rolled,
            "cancelRequests": topic.cancel_requests,
            "popped": topic.popped,
            "bytes": topic.size,
            "firstDueTimestamp": topic.first_due,
            "lastDueTimestamp": topic.last_due,
        }
    for each in found.messages(window, limit):
        yield {
            "kind": "message",
            "state": each.state.value,
            "dueTimestamp": each.due_timestamp,
            "topic": each.topic,
            "delayLevel": each.level,
            "rolls": each.rolls,
            "group": each.group,
            "message": each.message,
        }
