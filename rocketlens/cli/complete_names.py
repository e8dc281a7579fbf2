"""What shells complete besides commands and options: directories, and the topics and groups of the source typed so far.

A shell asks while somebody types: a source that cannot be opened, or not in time, completes nothing and says nothing.
Names come from a store or a server, and bash inserts what it is given as it is: a name that holds anything that a
shell could take for more than a character of a word is left out, and is typed by hand, in quotes.
"""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from rocketlens.source import Source

HARMLESS: Final = re.compile(r"[A-Za-z0-9_%.+][A-Za-z0-9_%.+-]*")
"""Names that every shell takes as they are, and that cannot be options."""

SECONDS: Final = 5.0
"""How long somebody waits for completions at most."""


def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the value of one of the parameters in `COMPLETED`."""
    if parameter.name != "words":
        return _items(context, COMPLETED[parameter.name or ""], incomplete)
    typed = (*context.params.get("stores", ()), *context.params.get("words", ()))
    metavar = str(parameter.metavar)
    if not typed:
        return [CompletionItem(incomplete, type="dir")]
    names = next((names for word, names in _BEHIND.items() if word in metavar), None)
    return [] if names is None else _items(context, names, incomplete)


def _topics(source: "Source") -> list[str]:
    return [topic.name for topic in source.topics()]


def _groups(source: "Source") -> list[str]:
    return [group.name for group in source.groups()]


Names = Callable[["Source"], list[str]]

COMPLETED: Final[Mapping[str, Names]] = {
    "topic": _topics,
    "topics": _topics,
    "trace_topics": _topics,
    "group": _groups,
    "dead_letters_of": _groups,
    "words": _topics,
}
"""Parameters whose values are completed, by their names in commands: what they name of a source."""

_BEHIND: Final[Mapping[str, Names]] = {"TOPIC": _topics, "GROUP": _groups}
"""What stands behind SOURCE, as help calls it."""


def _items(context: click.Context, names: Names, incomplete: str) -> list[CompletionItem]:
    """The names that begin so; none where there is no source, or none that answers in time."""
    try:
        with _in_time(), _opened(context) as source:
            found = names(source)
    except Exception:  # noqa: BLE001, RUF100 - whatever it is, it is not for the line that somebody is typing
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete) and HARMLESS.fullmatch(name)]


def _opened(context: click.Context) -> "Source":
    """The source that is typed so far: a directory, or the address of a server. Raises an error for others."""
    import rocketlens  # only who completes a name opens anything

    typed = context.params
    # Where the last word is an option that lacks its value, click leaves the others in `args`.
    places = (*(typed.get("stores") or ()), *(typed.get("words") or ()), typed.get("store"), *context.args)
    place = str(next(filter(None, places)))
    if not os.path.exists(place):
        return rocketlens.connect(place, timeout_seconds=SECONDS, connect_timeout_seconds=SECONDS)
    logs, tier = typed.get("commit_log_directories"), typed.get("tier")
    return rocketlens.open(place, commit_log_directories=logs, tier=tier)


@contextmanager
def _in_time() -> Iterator[None]:
    """Raise TimeoutError in what takes longer than somebody waits for."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
