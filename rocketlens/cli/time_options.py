"""How commands read times, and the time zone in which a command reads and shows them."""

from collections.abc import Callable
from datetime import tzinfo
from typing import Any, Final, TypeVar

import click

from protocol.errors import ConfigError
from rocketlens.cli.options import RenamedOption
from storage.times import LARGEST, parse_time, parse_zone

Command = TypeVar("Command", bound=Callable[..., Any])

FORMS: Final = "milliseconds, ISO 8601, -1h, yesterday 14:00"
"""What a help text says of the forms of a time."""

TIMEZONE_VARIABLE: Final = "ROCKETLENS_TIMEZONE"

_ZONE: Final = "rocketlens.zone"


def timestamp(text: str) -> int:
    """Read a time as `parse_time` does, in the zone of `--timezone`; a wrong one is a usage error."""
    try:
        return parse_time(text, chosen_zone())
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def chosen_zone() -> tzinfo | None:
    """The zone that the command which runs was given by `--timezone`; None is this machine's."""
    context = click.get_current_context(silent=True)
    zone: tzinfo | None = None if context is None else context.meta.get(_ZONE)
    return zone


def timezone_option(command: Command) -> Command:
    """Add `--timezone`, which is read before all times; the command gets it by `chosen_zone`."""
    return click.option(
        "--timezone",
        is_eager=True,
        expose_value=False,
        callback=_choose,
        envvar=TIMEZONE_VARIABLE,
        show_envvar=True,
        metavar="ZONE",
        help="Time zone of the times that are given and shown: Asia/Shanghai, +08:00, UTC. [default: this machine's]",
    )(command)


def stored_options(*earlier: tuple[str, str], is_optional: bool = False) -> Callable[[Command], Command]:
    """Add `--since` and `--until`, between which a message was stored, both included: `begin` and `end`, milliseconds.

    Without them all times, or with `is_optional` None. `earlier` are the spellings of both in earlier releases.
    """

    def decorate(command: Command) -> Command:
        for name, spelling, text, default, number in reversed(
            (
                ("begin", "--since", f"Stored at or after this: {FORMS}.", "0", 0),
                ("end", "--until", "Stored at or before this.", str(LARGEST), 1),
            )
        ):
            command = click.option(
                spelling,
                name,
                cls=RenamedOption,
                earlier=[each[number] for each in earlier if each[number]],
                type=timestamp,
                metavar="TIME",
                default=None if is_optional else default,
                help=text,
            )(command)
        return command

    return decorate


def check_stored(begin: int | None, end: int | None) -> None:
    """Raise a usage error for values of `stored_options` between which nothing can be."""
    if begin is not None and end is not None and begin > end:
        raise click.UsageError(f"--since {begin} is after --until {end}")


def _choose(context: click.Context, _parameter: click.Parameter, text: str | None) -> None:
    if text is None:
        return
    try:
        context.meta[_ZONE] = parse_zone(text)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error
