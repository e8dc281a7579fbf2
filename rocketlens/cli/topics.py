"""`rocketlens topics`: the topics of a store or a broker, or the queues of one of them."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

import rocketlens
from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import SourceArguments, absence_of, each_store, source_options
from rocketlens.cli.output import format_options, optional_time, print_table, say_what_lacks, write_maps
from rocketlens.cli.time_options import timezone_option
from storage.names import names_holding

if TYPE_CHECKING:
    from rocketlens.answers import Topic
    from rocketlens.source import Source
    from storage.store.extents import QueueExtent

TOPIC_HEADINGS: Final = ("TOPIC", "KIND", "QUEUES", "MESSAGES", "LAST STORED")
QUEUE_HEADINGS: Final = ("QUEUE", "FIRST OFFSET", "END OFFSET", "MESSAGES", "FIRST STORED", "LAST STORED", "PROBLEM")


@click.command(cls=GroupedCommand)
@click.option("--topic", help="List the queues of this topic.")
@click.option("--contains", metavar="TEXT", default="", help="Only topics whose name holds this, case does not count.")
@format_options
@timezone_option
@source_options("SOURCE [TOPIC]")
@plain_errors
def topics(topic: str | None, contains: str, output_format: str, source: SourceArguments) -> None:
    """List the topics of SOURCE: queues, messages, and when the last was stored.

    With a TOPIC the queues of it: the offset of the first message, the offset behind the last one, and the times
    of both. Messages that the broker has deleted do not count. A broker does not say when a queue's first message was
    stored. How many bytes the messages of each topic take is shown by the command `space`.

    Exit code 0 if there are any, 1 if not.
    """
    topic = source.one_of(topic)
    if topic is not None and contains:
        raise click.UsageError("--topic and --contains exclude each other")
    with source.open() as opened:
        found = [
            _list_topics(each, contains, output_format) if topic is None else _list_queues(each, topic, output_format)
            for each in each_store(opened, output_format)
        ]
    sys.exit(FOUND if any(found) else NOT_FOUND)


def _list_topics(opened: "Source", contains: str, output_format: str) -> bool:
    """Write the topics of one store or server whose names hold a text; return whether there are any."""
    known = opened.topics()
    wanted = set(names_holding((each.name for each in known), contains))
    rows = [(each, _queues(opened, each.name)) for each in known if each.name in wanted]
    say_what_lacks(known)
    if not rows:
        say(f"no topic holds {contains} in its name" if contains else "there are no topics")
    elif output_format == "table":
        print_table(TOPIC_HEADINGS, (_topic_row(*row) for row in rows))
    else:
        write_maps(output_format, (_topic_map(*row) for row in rows))
    return bool(rows)


def _list_queues(opened: "Source", topic: str, output_format: str) -> bool:
    """Write the queues of a topic; return whether it has any."""
    queues = opened.queues(topic)
    say_what_lacks(queues)
    if not queues:
        say(absence_of(opened, topic) or f"topic {topic} has no queue")
    elif output_format == "table":
        print_table(QUEUE_HEADINGS, map(_queue_row, queues))
    else:
        write_maps(output_format, ({"topic": topic, **_queue_map(each)} for each in queues))
    return bool(queues)


def _queues(opened: "Source", topic: str) -> "Sequence[QueueExtent] | None":
    """The queues of a topic, None where they cannot be listed."""
    try:
        return opened.queues(topic)
    except (rocketlens.StoreError, rocketlens.ConfigError):
        return None


def _totals(queues: "Sequence[QueueExtent] | None") -> tuple[int | None, int | None]:
    """How many messages queues have together, and when the last was stored; None where that is not known."""
    if queues is None or any(each.problem for each in queues):
        return None, None
    times = [each.last_timestamp for each in queues if each.last_timestamp is not None]
    return sum(each.messages for each in queues), max(times, default=None)


def _topic_row(topic: "Topic", queues: "Sequence[QueueExtent] | None") -> Iterator[str]:
    from protocol.system_topics import kind_of

    messages, last = _totals(queues)
    yield from (topic.name, kind_of(topic.name), "" if topic.read_queues is None else f"{topic.read_queues}")
    yield from ("unknown" if messages is None else f"{messages:,}", optional_time(last))


def _topic_map(topic: "Topic", queues: "Sequence[QueueExtent] | None") -> dict[str, Any]:
    from protocol.system_topics import kind_of

    messages, last = _totals(queues)
    return {
        "topic": topic.name,
        "kind": kind_of(topic.name),
        "readQueues": topic.read_queues,
        "writeQueues": topic.write_queues,
        "messages": messages,
        "lastTimestamp": last,
    }


def _queue_row(queue: "QueueExtent") -> tuple[str | int, ...]:
    times = optional_time(queue.first_timestamp), optional_time(queue.last_timestamp)
    return queue.queue_id, queue.min_offset, queue.max_offset, f"{queue.messages:,}", *times, queue.problem


def _queue_map(queue: "QueueExtent") -> dict[str, Any]:
    return {
        "queueId": queue.queue_id,
        "minOffset": queue.min_offset,
        "maxOffset": queue.max_offset,
        "messages": queue.messages,
        "firstTimestamp": queue.first_timestamp,
        "lastTimestamp": queue.last_timestamp,
        "problem": queue.problem or None,
    }
