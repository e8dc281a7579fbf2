"""`rocketlens space`: what takes the disk, and until when there is room."""

import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from protocol.printable import printable
from rocketlens.cli.command_options import engine_options_where
from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors, say, store_in_question
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import SourceArguments, each_store, source_options
from rocketlens.cli.options import DIRECTORY, gathered
from rocketlens.cli.output import format_options, print_table, time_text, write_maps
from rocketlens.cli.search_progress import SearchProgress
from rocketlens.cli.time_options import check_stored, stored_options, timezone_option
from spark_jobs.run.engine import EngineOptions
from storage.amounts import bytes_text, count_text, counted, rate_text, share_text
from storage.space.breakdown import COUNTED_BY, count_fields

if TYPE_CHECKING:
    from rocketlens.source import Source
    from storage.space.breakdown import NameCount
    from storage.space.forecast import Forecast
    from storage.space.whole import Space

KINDS: Final = (*COUNTED_BY, "largest")
"""What messages can be counted by; the largest ones are listed one by one."""

HEADINGS: Final = {
    "topic": ("TOPIC",),
    "queue": ("TOPIC", "QUEUE ID"),
    "tag": ("TOPIC", "TAG"),
    "host": ("SENT FROM",),
    "hour": ("HOUR",),
}
DEFAULT_TOP: Final = 10


class SpaceOptions(EngineOptions, frozen=True, kw_only=True):
    """Options of what is shown, and how it is counted."""

    kinds: tuple[str, ...]
    top: int
    broker_config: Path | None
    begin: int | None
    end: int | None


class SpaceProgress(msgspec.Struct, frozen=True):
    """How much of the log is counted, in bytes and seconds."""

    done: int
    total: int
    seconds: float

    def sentence(self) -> str:
        """It all, for people."""
        rate = rate_text(self.done / self.seconds, "bytes") if self.seconds > 0 else ""
        return f"counted {share_text(self.done, self.total, 'bytes')}, {rate}"


@click.command(cls=GroupedCommand)
@click.option(
    "--by",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    help="What to show; repeatable. [default: all of it]",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    default=DEFAULT_TOP,
    show_default=True,
    metavar="N",
    help="Show the N that take most of the disk; of hours the N newest, of the largest messages 100 at most.",
)
@click.option(
    "--broker-config",
    type=DIRECTORY,
    metavar="FILE",
    help="The broker.conf of the store's broker, for fileReservedTime and diskMaxUsedSpaceRatio. Without it 72 hours "
    "and 75 % are assumed, a broker's defaults.",
)
@stored_options(is_optional=True)
@engine_options_where("without an engine, by threads of this process")
@format_options
@timezone_option
@source_options()
@gathered(options=SpaceOptions)
@plain_errors
def space(source: SourceArguments, options: SpaceOptions, output_format: str) -> None:
    """Show what takes the disk in SOURCE: bytes and messages by topic, queue, tag, sender and hour.

    Also the largest messages, how the log grows, and what comes first: that the disk is full, or that the broker
    deletes the oldest messages. The whole log is read once, without the bodies. Bytes are those of whole records. With
    --since or --until there is no forecast, which follows from all of the log.

    Exit code 0 if there are messages, 1 if there are none.
    """
    source.refuse_rest()
    check_stored(options.begin, options.end)
    with source.open(options) as opened:
        messages = sum(_space_of(each, options, output_format) for each in each_store(opened, output_format))
    sys.exit(FOUND if messages else NOT_FOUND)


def _space_of(opened: "Source", options: SpaceOptions, output_format: str) -> int:
    """Show what takes the disk of one store; return how many messages there are."""
    found = _counted(opened, options)
    kinds = [kind for kind in options.kinds or KINDS if kind == "largest" or found.counts_by(kind)]
    if output_format == "table":
        _show(opened, found, kinds, options.top)
    else:
        write_maps(output_format, _maps(opened, found, kinds, options.top))
    for problem in found.notes:
        say(problem)
    return found.messages


def _counted(opened: "Source", options: SpaceOptions) -> "Space":
    """Count, and show on a terminal how far that is."""
    with SearchProgress() as progress:
        ask = partial(opened.space, begin=options.begin, end=options.end, broker_config=options.broker_config)
        if not progress.is_shown:
            return ask()
        started, log = time.monotonic(), opened.info()

        def report(done: int) -> None:
            progress.show(SpaceProgress(done, log.end_offset - log.min_offset, time.monotonic() - started))

        return ask(report=report)


def _show(opened: "Source", found: "Space", kinds: Sequence[str], top: int) -> None:
    first, last = found.oldest_timestamp, found.newest_timestamp
    times = "" if first is None or last is None else f", stored {time_text(first)} to {time_text(last)}"
    store = store_in_question()
    where = "" if store is None else f"{printable(store)}: "
    click.echo(f"{where}{counted(found.messages, 'message')}, {bytes_text(found.size)}{times}")
    for kind in KINDS:
        if kind not in kinds:
            continue
        click.echo("")
        if kind == "largest":
            print_table(("BYTES", "PHYSICAL", "TOPIC", "MESSAGE ID", "STORED"), _largest_rows(opened, found, top))
            continue
        rows = found.counts_by(kind)
        heading = (*HEADINGS[kind], "BYTES", "SHARE", "MESSAGES")
        print_table(heading, [_cells(kind, row, found) for row in rows[:top]])
        if len(rows) > top:
            click.echo(f"… and {count_text(len(rows) - top)} more")
    if found.forecast is not None:
        click.echo("")
        for line in _forecast_lines(found.forecast):
            click.echo(line)


def _cells(kind: str, row: "NameCount", found: "Space") -> tuple[str | int, ...]:
    shown = (time_text(int(name)) if kind == "hour" and name is not None else name for name in row.names)
    share = f"{100 * row.size / found.size:.1f} %"
    return (*("-" if name is None else name for name in shown), bytes_text(row.size), share, count_text(row.messages))


def _largest_rows(opened: "Source", found: "Space", top: int) -> Iterator[tuple[str | int, ...]]:
    for each in _largest(opened, found, top):
        stored = "" if each["storeTimestamp"] is None else time_text(each["storeTimestamp"])
        size = bytes_text(each["bytes"])
        yield size, each["physicalOffset"], each["topic"] or "(damaged)", each["messageId"] or "", stored


def _largest(opened: "Source", found: "Space", top: int) -> Iterator[dict[str, Any]]:
    for size, offset in found.largest[:top]:
        message = next(iter(opened.view(offset)), None)
        yield {
            "bytes": size,
            "physicalOffset": offset,
            "topic": None if message is None else message.topic,
            "messageId": None if message is None else message.message_id,
            "storeTimestamp": None if message is None else message.store_timestamp,
        }


def _forecast_lines(forecast: "Forecast") -> Iterator[str]:
    used = 100 * forecast.disk_used / max(forecast.disk_size, 1)
    free = bytes_text(forecast.disk_free)
    disk = f"disk of {forecast.disk}: {bytes_text(forecast.disk_size)}, {used:.1f} % used, {free} free"
    settings = forecast.settings
    kept = f"{settings.reserved_hours} h{' (assumed)' if 'fileReservedTime' in settings.assumed else ''}"
    most = f"{settings.most_used} %{' (assumed)' if 'diskMaxUsedSpaceRatio' in settings.assumed else ''}"
    if forecast.growth is None:
        yield "growth: the log's messages that were counted are of too short a time to say, or not all that it needs"
        yield disk
    else:
        hours = f"{forecast.growth_hours:.1f} h"
        yield f"growth: {bytes_text(forecast.growth)} a day, in the {hours} before the last message"
        full = "" if forecast.full_timestamp is None else f"; full {time_text(forecast.full_timestamp)} at this growth"
        yield disk + full
        if forecast.crowded_timestamp is not None:
            since = time_text(forecast.crowded_timestamp)
            yield f"{most} of the disk are used from {since} on: then the broker deletes the oldest segments at any age"
    if forecast.expiry_timestamp is not None:
        yield f"retention of {kept}: the oldest segment may be deleted from {time_text(forecast.expiry_timestamp)} on"
    if forecast.kept_size is not None:
        first = "the disk is full before that" if forecast.is_full_first else "the disk has room for that"
        yield f"a log of {kept} takes {bytes_text(forecast.kept_size)} at this growth: {first}"


def _maps(opened: "Source", found: "Space", kinds: Sequence[str], top: int) -> Iterator[dict[str, Any]]:
    """One map of the whole, one for each name, for each of the largest messages, and one of a forecast."""
    yield {
        "kind": "total",
        "messages": found.messages,
        "bytes": found.size,
        "oldestTimestamp": found.oldest_timestamp,
        "newestTimestamp": found.newest_timestamp,
        "damagedPlaces": found.damaged_places,
        "damagedBytes": found.damaged_bytes,
    }
    for kind in kinds:
        if kind == "largest":
            yield from ({"kind": "largest", **each} for each in _largest(opened, found, top))
            continue
        yield from ({"kind": kind, **count_fields(kind, row)} for row in found.counts_by(kind)[:top])
    if found.forecast is not None:
        yield {"kind": "forecast", **found.forecast.fields()}
