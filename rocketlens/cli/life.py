"""`rocketlens life`: everything that happened to one message, in order of time."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import msgspec

from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import (
    EXPECTED,
    SourceArguments,
    absence_of,
    each_store,
    say_nothing_is_named,
    source_options,
)
from rocketlens.cli.options import charset_option
from rocketlens.cli.output import format_options, print_table, say_what_lacks, time_text, write_maps
from rocketlens.cli.time_options import timezone_option
from storage.amounts import counted

if TYPE_CHECKING:
    from rocketlens.source import Source
    from storage.life.message_life import Event, MessageLife
    from storage.life.verdicts import GroupVerdict

HEADINGS = ("TIME", "WHAT", "TOPIC", "QUEUE", "OFFSET", "PHYSICAL", "RETRIES", "GROUPS", "NOTE")
VERDICT_HEADINGS = ("GROUP", "THIS MESSAGE")
TRANSACTION_HEADING = "TRANSACTION"
MOST_OTHERS = 5
"""Messages of the same name that are listed beside the one that is shown."""

NUMBER_HEADING = "MESSAGE"
"""Before the others where several messages are named alike."""


@click.command(cls=GroupedCommand)
@source_options("SOURCE TEXT")
@click.option("--unique-key", hidden=True)
@click.option("--topic", help="Topic to which the message was sent; without it every topic is searched.")
@click.option(
    "--trace-topic",
    "trace_topics",
    metavar="TOPIC",
    multiple=True,
    help="Also look for traces under this topic; repeatable.",
)
@charset_option
@format_options
@timezone_option
@plain_errors
def life(
    source: SourceArguments,
    unique_key: str | None,
    topic: str | None,
    trace_topics: tuple[str, ...],
    output_format: str,
    charset: str | None,
) -> None:
    """Show everything that happened to the message that TEXT names, in order of time, from a store or its server.

    TEXT is what `find` takes: a unique key, or else an id, an offset, a key or a tag. Where it names several messages,
    the newest is shown, and the others are named on stderr.

    The list shows where it waited (delay level, timer, half of a transaction), where it was delivered, retried and
    given up, which consumer groups are beyond it by their offsets, and what traced clients reported about it. Below it
    is what all that comes to for each group. Where the id names several messages, each has its number.

    Exit code 0 if something was found, 1 if not.
    """
    text = source.one_of(None)
    if (text is None) == (unique_key is None) or not (text or unique_key):
        raise click.UsageError(f"{EXPECTED}, and behind it one TEXT")
    text = text or unique_key or ""
    with source.open() as opened:
        found = [
            _life_in(each, text, topic, trace_topics, output_format, charset)
            for each in each_store(opened, output_format)
        ]
    sys.exit(FOUND if any(found) else NOT_FOUND)


def _life_in(
    opened: "Source",
    text: str,
    topic: str | None,
    trace_topics: Sequence[str],
    output_format: str,
    charset: str | None,
) -> bool:
    """Show what happened in one store to the message that a text names; return whether anything did."""
    found = opened.life(text, topic=topic, trace_topics=trace_topics)
    if not found.events:
        found = _life_by_words(opened, text, topic, trace_topics) or found
    if found.named:
        say(_named(found.named, text))
    if found.incomplete:
        say(f"something may be missing: {found.incomplete}")
    say_what_lacks(found)
    if not found.events:
        say_nothing_is_named(found.reason, absence_of(opened, topic))
    if len(found.stories) > 1:
        say(_named_alike(found, next(iter(found.named), text)))
    if output_format == "table":
        _show(found)
    else:
        write_maps(output_format, _maps(found), charset)
    return bool(found.events)


def _life_by_words(opened: "Source", text: str, topic: str | None, trace_topics: Sequence[str]) -> "MessageLife | None":
    """What happened to the newest message that the words of a text name, as `find` takes them; None where none is."""
    from rocketlens.cli.find import FindArguments
    from rocketlens.named_life import keys_named, with_reason

    named = FindArguments(topic=topic).ask_by_words(opened, text)
    if not named:
        return None
    keys = keys_named(named)
    life = opened.life(keys[0] if keys else text, topic=topic, trace_topics=trace_topics)
    return replace(life, named=keys) if keys else with_reason(life, named)


def _named(keys: Sequence[str], text: str) -> str:
    """Which message is shown of those that a text names, by their unique keys, and some of the others."""
    others = keys[1 : MOST_OTHERS + 1]
    more = f"; others are {', '.join(others)}{' …' if len(keys) > MOST_OTHERS + 1 else ''}" if others else ""
    return f"{counted(len(keys), 'message is', 'messages are')} named {text}: this is {keys[0]}{more}"


def _named_alike(found: "MessageLife", unique_key: str) -> str:
    """Which messages a unique key names."""
    each = (
        f"message {story.number} was sent to {story.topic or 'a topic that is not known'} and born "
        f"{time_text(story.born_timestamp)}"
        for story in found.stories
    )
    return f"{len(found.stories)} messages are named {unique_key}: {'; '.join(each)}"


def _show(found: "MessageLife") -> None:
    """Write the events and the verdicts for people."""
    are_several = len(found.stories) > 1
    number = (NUMBER_HEADING,) if are_several else ()
    print_table(
        (*number, *HEADINGS),
        ((("" if each.number is None else each.number,) if are_several else ()) + _row(each) for each in found.events),
    )
    reported = [story for story in found.stories if story.transaction]
    if reported:
        print("")
    print_table(
        (*number, TRANSACTION_HEADING),
        (((story.number,) if are_several else ()) + (story.transaction or "",) for story in reported),
    )
    if found.verdicts:
        print("")
    print_table(
        (*number, *VERDICT_HEADINGS),
        (((each.number,) if are_several else ()) + (each.group, _verdict_text(each)) for each in found.verdicts),
    )


def _verdict_text(verdict: "GroupVerdict") -> str:
    return f"{verdict.text}{_comes_back(verdict.until_timestamp)}"


def _comes_back(timestamp: int | None) -> str:
    """When a message comes back that is popped; nothing for others."""
    return "" if timestamp is None else f": comes back {time_text(timestamp)} or later"


def _row(event: "Event") -> tuple[str | int, ...]:
    """One line for people."""
    if event.message is None:
        assert event.trace is not None
        trace = event.trace
        outcome = trace.outcome or {True: "success", False: "failure", None: ""}[trace.success]
        cost = "" if trace.cost_milliseconds is None else f"{trace.cost_milliseconds} ms"
        note = ", ".join(filter(None, (outcome, cost, trace.client_host, event.note)))
        what, retries = f"traced: {trace.kind.name.lower().replace('_', ' ')}", trace.retry_times
        return (
            *(time_text(event.timestamp), what, trace.topic or "", "", "", ""),
            *("" if retries is None else retries, trace.group or "", note),
        )
    message = event.message
    assert event.stage is not None
    groups = ", ".join(f"{each.group} {each.text}{_comes_back(each.until_timestamp)}" for each in event.groups)
    until = "" if event.until_timestamp is None else f"until {time_text(event.until_timestamp)}"
    return (
        *(time_text(event.timestamp), event.stage.value, message.topic, message.queue_id, message.queue_offset),
        *(message.physical_offset, message.reconsume_times, groups, ", ".join(filter(None, (event.note, until)))),
    )


def _maps(found: "MessageLife") -> Iterator[dict[str, Any]]:
    """One map an event, for programs; times in milliseconds.

    Each has the number of its message, and what is known of that message in all.
    """
    stories = {story.number: story for story in found.stories}
    for event in found.events:
        story = None if event.number is None else stories[event.number]
        yield {
            "timestamp": event.timestamp,
            "stage": None if event.stage is None else event.stage.value,
            "note": event.note,
            "untilTimestamp": event.until_timestamp,
            "groups": [
                {
                    "group": each.group,
                    "nextOffset": each.next_offset,
                    "hasPassed": each.has_passed,
                    "passage": each.passage.value,
                    "untilTimestamp": each.until_timestamp,
                }
                for each in event.groups
            ],
            "message": event.message,
            "trace": msgspec.to_builtins(event.trace),
            "messageNumber": event.number,
            "messagesNamedSo": len(found.stories),
            "transaction": None if story is None else story.transaction,
            "verdicts": [] if story is None else [_verdict_map(each) for each in story.verdicts],
        }


def _verdict_map(verdict: "GroupVerdict") -> dict[str, Any]:
    return {
        "group": verdict.group,
        "ending": verdict.ending.value,
        "retries": verdict.retries,
        "text": verdict.text,
        "untilTimestamp": verdict.until_timestamp,
    }
