"""How a command ends: its exit code, and one line on stderr when something is wrong."""

import contextlib
import functools
import os
import re
import resource
import select
import sys
from collections.abc import Callable, Iterator
from typing import IO, Final, NoReturn, ParamSpec, TypeVar

import click

from protocol.errors import ConfigError, NoSuchTopic, RocketLensError, is_out_of_room
from protocol.printable import one_line

FOUND = 0
NOT_FOUND = 1
USAGE = 2
STORE_ERROR = 3
STOPPED = 130
"""The exit code that shells report for a command that Ctrl-C ended."""
NOBODY_READS = 141
"""The exit code that shells report for a command that SIGPIPE ended: the reader of its output has closed the pipe, as
`head` does when it has enough."""

TYPED: Final = {"damaged": "`find`", "look_up": "`find -f`"}
"""What sentences of the public face name in Python, and what is typed for it, beside the options of the command."""

_NAMED: Final = re.compile(r"(?<=[Ww]ith )`\w+`|`\w+`(?=: | shows )")
"""How these sentences name an argument or a method; in backquotes elsewhere stands a name out of a store, as it is."""

_STORE = "rocketlens.store"

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


SMALLEST_ADDRESS_SPACE = 640 * 1024 * 1024
"""Bytes below which libraries end the process with messages of their own, before a store is opened."""
FEWEST_DESCRIPTORS = 64
"""The least number of open files with which our libraries load and a small store is opened."""


def refuse_small_limits() -> None:
    """End with one line on stderr if the limits of the process are too low for any command."""
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


def store_in_question() -> str | None:
    """Which of several stores is asked at the moment; None where one source is."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_STORE) or None


@contextlib.contextmanager
def about_store(where: str) -> Iterator[None]:
    """Have what the block prints be about one of several stores; "" where there is one source."""
    meta = click.get_current_context().meta
    meta[_STORE] = where
    try:
        yield
    finally:
        del meta[_STORE]


def say(text: str) -> None:
    """Print something besides the answer, as one line on stderr; of several stores behind the name of the one."""
    store = store_in_question()
    text = typed(text)
    click.echo(f"rocketlens: {one_line(text if store is None else f'{store}: {text}')}", err=True)


def typed(text: str) -> str:
    """A sentence with each argument that it names as the command that runs calls it: `maximum` is --limit."""
    context = click.get_current_context(silent=True)
    parameters = [] if context is None else context.command.params
    options = {each.name: max(each.opts, key=len) for each in parameters if isinstance(each, click.Option)}
    spelled = {f"`{name}`": typed for name, typed in {**TYPED, **options}.items()}
    return _NAMED.sub(lambda named: spelled.get(named[0], named[0]), text)


def fail(text: str, code: int) -> NoReturn:
    """End with one line on stderr."""
    say(text)
    sys.exit(code)


def plain_errors(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Turn the errors raised on purpose into one line and an exit code; any other is a bug and keeps its trace."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        before = _hidden_whole()
        try:
            return command(*args, **kwargs)
        except ConfigError as error:
            fail(str(error), USAGE)
        except NoSuchTopic as error:
            fail(str(error), NOT_FOUND)
        except RocketLensError as error:
            fail(str(error) + hint_of_rights(error), USAGE if is_out_of_room(error) else STORE_ERROR)
        finally:
            if count := _hidden_whole() - before:
                say(sys.modules["storage.patterns.mask"].hidden_sentence(count))

    return run


def _hidden_whole() -> int:
    """How much masks of this process have hidden whole so far."""
    masks = sys.modules.get("storage.patterns.mask")  # which most commands need not load
    return 0 if masks is None else masks.hidden_whole()


def hint_of_rights(error: BaseException) -> str:
    """What to do about files that this process may not read, "" for an error of another kind."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, PermissionError):
        cause = cause.__cause__
    if cause is None:
        return ""
    user = os.geteuid()
    return (
        f"; this process runs as UID {user}, which may not read {cause.filename or 'it'}: run it as the files' owner "
        f"(docker run --user, runAsUser), or give it the right to read (setfacl -R -m u:{user}:rX STORE)"
    )


@contextlib.contextmanager
def ending_with_the_reader() -> Iterator[None]:
    """End silently when the output pipe is closed, and with one line on stderr when the disk is full or Ctrl-C was
    pressed.

    The commands' own cleaning up comes first.
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
    """Open /dev/null for an output that is closed: else one of our files would get its descriptor."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process


def _forget(stream: IO[str]) -> None:
    """Discard what a stream could not write: the interpreter flushes it once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _is_unread(stream: IO[str]) -> bool:
    """Whether a stream is a pipe or a connection whose other end is closed."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    except (OSError, ValueError):  # the stream is no file
        return False
