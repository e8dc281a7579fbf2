"""How a command ends: its exit code, and one line on stderr when something is wrong."""

import contextlib
import errno
import functools
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import IO, NoReturn, ParamSpec, TypeVar

import click

from protocol.errors import ConfigError, RocketLensError
from protocol.printable import one_line

FOUND = 0
NOT_FOUND = 1
USAGE = 2
STORE_ERROR = 3
STOPPED = 130
"""As shells tell a command that Ctrl-C ended."""
NOBODY_READS = 141
"""As shells tell of a command that SIGPIPE ended: who reads its output has gone, as `head` does when it has enough."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk says that takes no more."""

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


@contextlib.contextmanager
def ending_with_the_reader() -> Iterator[None]:
    """End without a word where nobody reads our output any more, and with a line where there is no room for it,
    or where Ctrl-C was pressed.

    What there is to clean up is cleaned up first.
    """
    _open_streams()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:  # click would end with 1, which says that nothing was found
        fail("stopped", STOPPED)
    except BrokenPipeError:
        unread = [stream for stream in (sys.stdout, sys.stderr) if _is_unread(stream)]
        if not unread:  # it was some other connection that broke
            raise
        for stream in unread:
            _forget(stream)
        sys.exit(NOBODY_READS)
    except OSError as error:
        if error.errno not in FULL:
            raise
        try:
            sys.stdout.flush()
        except OSError:
            _forget(sys.stdout)
        fail(f"{error.filename or 'the output'} cannot be written: {error.strerror}", USAGE)


def _open_streams() -> None:
    """Let who closed our output get none: Python has no stream then, and a file of ours would get its number."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process


def _forget(stream: IO[str]) -> None:
    """Let go of what a stream could not write: the interpreter flushes once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _is_unread(stream: IO[str]) -> bool:
    """Whether a stream is a pipe or a connection that nobody will read any more."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    except (OSError, ValueError):  # of a stream that is no file
        return False
