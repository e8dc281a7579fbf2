"""`rocketlens groups`: how far consumer groups have come."""

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import click

import rocketlens
from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import SourceArguments, absence_of, each_store, source_options
from rocketlens.cli.output import format_options, print_table, say_what_lacks, write_maps
from storage.amounts import counted
from storage.names import did_you_mean, similar_names
from storage.store.group_progress import QueueProgress, TopicProgress, topic_progress

if TYPE_CHECKING:  # most commands start without it
    from rocketlens.source import Source

GROUP_HEADINGS: Final = ("GROUP", "TOPIC", "QUEUES", "BEHIND")
QUEUE_HEADINGS: Final = ("GROUP", "TOPIC", "QUEUE", "NEXT OFFSET", "END OFFSET", "BEHIND")
POPPED_HEADING: Final = "POPPED"
"""Behind the others where a group has messages that it popped and did not acknowledge."""


@click.command(cls=GroupedCommand)
@click.option("--group", help="Only this group, queue by queue.")
@click.option("--topic", help="Only what groups consume of this topic.")
@format_options
@source_options("SOURCE [GROUP]")
@plain_errors
def groups(group: str | None, topic: str | None, output_format: str, source: SourceArguments) -> None:
    """List the consumer groups of SOURCE, and how far they are behind.

    For each group and topic: in how many queues it has committed offsets, and how many messages of these queues it has
    not consumed. With a GROUP queue by queue: the offset that it reads next, and the offset behind the last message. In
    the store of a broker that runs or crashed, the last offsets may not have been written yet. A group that is ahead of
    a queue is named on stderr, and how far it is behind is unknown. A group that pops is not behind with messages that
    it has popped and not acknowledged: POPPED counts those, of a store or a RocketLens server, if the
    broker noted them in its log.

    Exit code 0 if there are any, 1 if not.
    """
    group = source.one_of(group)
    with source.open() as opened:
        found = [_groups_in(each, group, topic, output_format) for each in each_store(opened, output_format)]
    sys.exit(FOUND if any(found) else NOT_FOUND)


def _groups_in(opened: "Source", group: str | None, topic: str | None, output_format: str) -> bool:
    """List the groups of one store or broker; return whether there are any."""
    found = opened.groups()
    names = [each.name for each in found]
    known_topics = {name for each in found for name in each.offsets}
    listed = [each for each in found if group in (None, each.name)]
    ends: dict[str, Mapping[int, int]] = {}
    rows = [
        _progress(opened, each, name, ends) for each in listed for name in sorted(each.offsets) if topic in (None, name)
    ]
    absence = "" if rows or not listed else absence_of(opened, topic)
    rows += [TopicProgress(each.name, None) for each in listed if not each.offsets and topic is None]
    rows.sort(key=lambda each: (each.group, each.topic or ""))
    if not rows:
        say(absence or _nothing(group, topic, names, known_topics))
        return False
    say_what_lacks(found)
    for row in rows:
        if row.popped:
            what, them = counted(row.popped, "message"), "it" if row.popped == 1 else "them"
            say(
                f"group {row.group} has popped {what} of topic {row.topic} and not acknowledged {them}: BEHIND counts "
                f"{them} as consumed"
            )
        for queue in row.queues:
            if queue.is_ahead:
                say(
                    f"group {row.group} is ahead of queue {queue.queue_id} of topic {row.topic}: it reads "
                    f"{queue.next_offset} next, and the queue ends at {queue.end_offset}; files of it may be lost"
                )
    if output_format != "table":
        write_maps(output_format, (row.as_map() for row in rows))
    elif group is None:
        _print(GROUP_HEADINGS, ((_row(row), row.popped) for row in rows))
    else:
        _print(QUEUE_HEADINGS, ((_queue_row(row, each), each.popped) for row in rows for each in row.queues))
    return True


def _progress(
    opened: "Source",
    group: rocketlens.Group,
    topic: str,
    ends: dict[str, Mapping[int, int]],
) -> TopicProgress:
    """How far a group has come in a topic; `ends` keeps where the queues of each topic end."""
    if topic not in ends:
        try:
            ends[topic] = {each.queue_id: each.max_offset for each in opened.queues(topic) if not each.problem}
        except rocketlens.Error:  # the offsets are known even so
            ends[topic] = {}
    popped = None if group.popped is None else group.popped.get(topic, {})
    return topic_progress(group.name, topic, group.offsets[topic], ends[topic], popped)


def _nothing(group: str | None, topic: str | None, names: list[str], topics: set[str]) -> str:
    """Why nothing is listed, with what may be meant."""
    if group is not None and group not in names:
        what, meant = f"there is no consumer group {group}", did_you_mean(similar_names(group, names))
    elif topic is not None:
        whose = "no group has committed an" if group is None else f"group {group} has committed no"
        what = f"{whose} offset in topic {topic}"
        meant = did_you_mean([] if topic in topics else similar_names(topic, sorted(topics)))
    else:
        what, meant = "there are no consumer groups", ""
    return "; ".join(filter(None, (what, meant)))


def _print(headings: tuple[str, ...], rows: Iterable[tuple[tuple[str | int, ...], int | None]]) -> None:
    """Write a table, with the counts of popped messages where there are any."""
    listed = list(rows)
    if any(popped for _, popped in listed):
        print_table((*headings, POPPED_HEADING), ((*row, _number(popped)) for row, popped in listed))
    else:
        print_table(headings, (row for row, _ in listed))


def _queue_row(progress: TopicProgress, queue: QueueProgress) -> tuple[str | int, ...]:
    numbers = queue.queue_id, queue.next_offset, _number(queue.end_offset), _number(queue.lag)
    return progress.group, progress.topic or "", *numbers


def _row(progress: TopicProgress) -> tuple[str | int, ...]:
    if progress.topic is None:
        return progress.group, "", 0, ""
    return progress.group, progress.topic, len(progress.queues), _number(progress.lag)


def _number(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"
