"""How commands read times, and the time zone in which a command reads and shows them."""

from collections.abc import Callable
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from protocol.errors import ConfigError
from rocketlens.cli.options import RenamedOption
from storage.times import LARGEST, parse_time, parse_zone

if TYPE_CHECKING:
    ParamType: TypeAlias = click.ParamType[int]
else:
    ParamType = click.ParamType

Command = TypeVar("Command", bound=Callable[..., Any])

FORMS: Final = "milliseconds, ISO 8601, 20240531083000, -1h, yesterday 14:00"
"""What a help text says of the forms of a time."""

TIMEZONE_VARIABLE: Final = "ROCKETLENS_TIMEZONE"

_ZONE: Final = "rocketlens.zone"
_TYPED: Final = "rocketlens.typed."


class _Time(ParamType):
    """A time as `parse_time` reads it, in the zone of `--timezone`; a wrong one is a usage error."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a time, and keep how it was typed for `typed_time`."""
        if isinstance(value, int):
            return value
        if ctx is not None and param is not None:
            ctx.meta[f"{_TYPED}{param.name}"] = value
        try:
            return parse_time(value, chosen_zone())
        except ConfigError as error:
            raise click.BadParameter(str(error), ctx, param) from error


timestamp: Final = _Time()
"""The type of options that are times."""


def typed_time(name: str, value: int) -> str:
    """A time as it was typed for the parameter of this name, or its milliseconds where nothing was."""
    context = click.get_current_context(silent=True)
    return str(value if context is None else context.meta.get(f"{_TYPED}{name}", value))


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
        help="Zone of times given and shown: Asia/Shanghai, +08:00, UTC. [default: this machine's]",
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
        raise click.UsageError(f"--since {typed_time('begin', begin)} is after --until {typed_time('end', end)}")


def _choose(context: click.Context, _parameter: click.Parameter, text: str | None) -> None:
    if text is None:
        return
    try:
        context.meta[_ZONE] = parse_zone(text)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error
