"""`rocketlens diff`: which messages two stores do not have in common."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from protocol.errors import ConfigError
from protocol.printable import printable
from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import refuse_servers
from rocketlens.cli.options import DIRECTORY
from rocketlens.cli.output import print_table
from storage.amounts import counted
from storage.files.own_directories import is_writable
from storage.files.write_guard import check_outside

if TYPE_CHECKING:
    from storage.diff.compare import Difference

HEADINGS = ("WHAT", "TOPIC", "QUEUE", "FROM", "TO", "MESSAGES", "PHYSICAL")
MOST_LISTED = 50
"""Ranges and places of damage that are printed for people; a program gets all that are listed."""


@click.command(cls=GroupedCommand)
@click.argument("a", type=DIRECTORY)
@click.argument("b", type=DIRECTORY)
@click.option(
    "--work",
    type=DIRECTORY,
    metavar="DIR",
    help="Directory for temporary files, up to a tenth of the size of both logs. [default: the machine's "
    "temporary directory]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with all listed ranges.")
@plain_errors
def diff(a: Path, b: Path, work: Path | None, as_json: bool) -> None:
    """Compare the messages of the stores in A and B: a master and its slave, or one store before and after.

    `missing` are messages that only A has, `extra` those that only B has, by topic, queue and queue offset; `different`
    are those at the same queue offset with different contents. Messages may be at another place in the other log; but
    if one log is a copy of the other, every byte of their records counts. Damaged records are not compared, but
    reported.

    Exit code 0: both stores hold the same messages. 1: they do not.
    """
    refuse_servers(str(a), str(b))
    check_outside((a, b), {"--work": work})
    if work is not None and not is_writable(work):
        raise ConfigError(f"--work {work}: cannot be written to")
    from storage.diff.compare import compare_stores

    found = compare_stores(a, b, work=work)
    if as_json:
        sys.stdout.buffer.write(_json(found) + b"\n")
    else:
        _print(found)
    sys.exit(FOUND if found.is_none else NOT_FOUND)


def _json(found: "Difference") -> bytes:
    first = found.first
    return msgspec.json.encode(
        {
            "equal": found.is_none,
            "a": {"minimum": found.a_range[0], "end": found.a_range[1], "damage": found.damage["a"]},
            "b": {"minimum": found.b_range[0], "end": found.b_range[1], "damage": found.damage["b"]},
            "firstDifferentByte": found.first_byte,
            "first": None if first is None else _fields(first),
            **found.counts,
            "ranges": [_fields(each) for each in found.ranges],
            "moreRanges": found.more_ranges,
        }
    )


def _fields(each: object) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(each)
    fields["queueId"], fields["physicalOffset"] = fields.pop("queue_id"), fields.pop("physical_offset")
    return fields


def _print(found: "Difference") -> None:
    """Print the outcome for people."""
    for name in ("a", "b"):
        damage = found.damage[name]
        for text in damage[:MOST_LISTED]:
            say(f"{name.upper()}: {text}")
        if len(damage) > MOST_LISTED:
            say(f"{name.upper()}: {counted(len(damage) - MOST_LISTED, 'more place is', 'more places are')} damaged")
    if found.ranges:
        print_table(
            HEADINGS,
            (
                (
                    each.kind,
                    each.topic,
                    each.queue_id,
                    *_bounds(each.first, each.last),
                    each.count,
                    each.physical_offset,
                )
                for each in found.ranges[:MOST_LISTED]
            ),
        )
    for text in _sentences(found):
        click.echo(printable(text))


def _bounds(first: int, last: int) -> tuple[str | int, str | int]:
    return ("not queued", "") if first < 0 else (first, last)


def _sentences(found: "Difference") -> list[str]:
    """The outcome in words."""
    counts = found.counts
    hidden = max(len(found.ranges) - MOST_LISTED, 0) + found.more_ranges
    texts = [counted(hidden, "more range")] if hidden else []
    if found.is_none:
        texts.append("both hold the same messages")
        if found.first_byte is not None or found.a_range != found.b_range:
            texts.append(
                f"their logs differ: A is [{found.a_range[0]}, {found.a_range[1]}), B [{found.b_range[0]}, "
                f"{found.b_range[1]})"
            )
        return texts
    texts.append(
        f"{counted(counts['missing'], 'message is', 'messages are')} missing in B, {counts['extra']} extra, "
        f"{counts['different']} different"
    )
    first = found.first
    if first is not None:
        place = f"queue {first.queue_id}" + (f" offset {first.first}" if first.first >= 0 else "")
        texts.append(f"first: {first.kind}, {first.topic} {place}, at physical offset {first.physical_offset}")
    return texts
