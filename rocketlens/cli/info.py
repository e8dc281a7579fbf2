"""`rocketlens info`: which store or broker this is, and how far it reaches."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from rocketlens.cli.errors import plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import SourceArguments, each_store, source_options
from rocketlens.cli.output import format_options, print_fields, time_text, write_maps
from rocketlens.cli.time_options import timezone_option
from storage.amounts import bytes_text, count_text

if TYPE_CHECKING:
    from rocketlens.answers import Info


@click.command(cls=GroupedCommand)
@format_options
@timezone_option
@source_options()
@plain_errors
def info(output_format: str, source: SourceArguments) -> None:
    """Show which store or broker SOURCE is: names, offsets, sizes, times and counts.

    What is missing or damaged in a store is printed on stderr, as far as it is noticed when the store is opened; the
    command `doctor` looks further.
    """
    source.refuse_rest()
    with source.open() as opened:
        for each in each_store(opened, output_format):
            found = each.info()
            if output_format == "table":
                print_fields(_fields(found))
                for problem in found.problems:
                    say(problem)
            else:
                write_maps(output_format, [{camel_case(name): value for name, value in asdict(found).items()}])


def camel_case(name: str) -> str:
    """A field's name in camel case, as programs get it."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _fields(found: "Info") -> Iterator[tuple[str, str]]:
    """Yield names and values of everything that is known."""
    texts = {"where": found.where, "broker": found.broker, "cluster": found.cluster, "state": found.state}
    yield from ((name, text) for name, text in (texts | {"version": found.version}).items() if text is not None)
    size = found.end_offset - found.min_offset
    segments = "" if found.segments is None else f" in {count_text(found.segments)} segments"
    yield "log", f"physical offsets {found.min_offset} to {found.end_offset}, {bytes_text(size)}{segments}"
    for name, timestamp in (("first stored", found.first_timestamp), ("last stored", found.last_timestamp)):
        if timestamp is not None:
            yield name, f"{time_text(timestamp)} ({timestamp})"
    if found.index_files is not None:
        yield "index", f"{count_text(found.index_files)} files, {bytes_text(found.index_bytes or 0)}"
    for name, count in (("topics", found.topics), ("groups", found.groups)):
        if count is not None:
            yield name, count_text(count)
