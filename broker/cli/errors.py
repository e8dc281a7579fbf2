"""How a command ends: its exit code, and one line on stderr when something is wrong."""

import contextlib
import functools
import os
import resource
import select
import sys
from collections.abc import Callable, Iterator
from typing import IO, NoReturn, ParamSpec, TypeVar

import click

from protocol.errors import ConfigError, RocketLensError, is_out_of_room
from protocol.printable import one_line

FOUND = 0
NOT_FOUND = 1
USAGE = 2
STORE_ERROR = 3
STOPPED = 130
"""As shells tell a command that Ctrl-C ended."""
NOBODY_READS = 141
"""As shells tell of a command that SIGPIPE ended: who reads its output has gone, as `head` does when it has enough."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


SMALLEST_ADDRESS_SPACE = 640 * 1024 * 1024
"""Bytes below which libraries end the process with words of their own, before there is a store to read."""
FEWEST_DESCRIPTORS = 64
"""Fewer do not do for our own files and libraries, and the store's."""


def refuse_small_limits() -> None:
    """End with a line where the process may not have what every command needs."""
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= space < SMALLEST_ADDRESS_SPACE:
        least = SMALLEST_ADDRESS_SPACE >> 20
        fail(f"the limit of {space >> 20} MiB of address space is too low: {least} plus the size of the store "
             "are needed (ulimit -v)", USAGE)  # fmt: skip
    descriptors, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= descriptors < FEWEST_DESCRIPTORS:
        if 0 <= most < FEWEST_DESCRIPTORS:
            fail(f"the limit of {most} open files is too low: {FEWEST_DESCRIPTORS} are needed, and one for each file "
                 "of the log and the index (ulimit -n)", USAGE)  # fmt: skip
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEWEST_DESCRIPTORS, most))


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
            fail(str(error), USAGE if is_out_of_room(error) else STORE_ERROR)

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
    except MemoryError:
        fail("there is not enough memory (ulimit -v, or the limit of the container)", USAGE)
    except OSError as error:
        if not is_out_of_room(error):
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
