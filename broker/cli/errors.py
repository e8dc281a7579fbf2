"""How a command ends: its exit code, and one line on stderr when something is wrong."""

import functools
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

import click

from protocol.errors import ConfigError, RocketLensError
from protocol.printable import one_line

FOUND = 0
NOT_FOUND = 1
USAGE = 2
STORE_ERROR = 3

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def say(text: str) -> None:
    """Tell the person at the terminal something beside the answer, as one line on stderr."""
    click.echo(f"rocketlens: {one_line(text)}", err=True)


def fail(text: str, code: int) -> NoReturn:
    """End with one line on stderr."""
    say(text)
    sys.exit(code)


def plain_errors(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Turn the errors raised on purpose into one line and an exit code; any other is a bug and keeps its trace."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return command(*args, **kwargs)
        except ConfigError as error:
            fail(str(error), USAGE)
        except RocketLensError as error:
            fail(str(error), STORE_ERROR)

    return run
