"""How a call with an earlier name of a command, or earlier spellings of options, is typed now: it goes with both."""

import shlex
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

import click

SECRETS: Final = ("storage", "out_storage", "settings")
"""Parameters whose values may hold keys, which are not printed."""

AS: Final = {"key": "key", "unique_key": "unique-key", "tag": "tag"}
"""What `query` was asked by, and how `find` is told to take it."""

MORE: Final = {"view": ["--full"], "verify": ["--deep"]}
"""Options that make the command of now do what the earlier one did."""

SUPERFLUOUS: Final = {"damaged", "lookup auto", "lookup ndjson"}
"""Options, and values of some, for what is done without them."""


def spellings(command: click.Command) -> set[str]:
    """All earlier spellings of options that a command takes."""
    return {
        spelling
        for option in command.params
        if isinstance(option, click.Option)
        for spelling in (*getattr(option, "earlier", ()), *(option.opts if option.hidden else ()))
    }


def line_of_now(name: str, command: click.Command, arguments: Sequence[str], now: str) -> str:
    """What does the same as a command with some arguments; the pattern `now` where they are none that it takes.

    `now` begins with the name that the command has now.
    """
    try:
        parser = command.make_parser(click.Context(command, info_name=name))
        values, _, order = parser.parse_args(list(arguments))
    except click.UsageError:
        return now
    words: list[str] = []
    last: list[str] = []
    options: list[str] = list(MORE.get(name, ()))
    for parameter in dict.fromkeys(order):
        value = values[parameter.name or ""]
        if isinstance(parameter, click.Argument):
            words += [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
        elif parameter.name == "server":
            words.insert(0, value)
        elif name == "query" and parameter.name in AS:
            last.append(value)
            options += ["--as", AS[parameter.name]]
        elif name == "life" and parameter.name == "unique_key":
            last.append(value)
        elif isinstance(parameter, click.Option) and not {parameter.name, f"{name} {value}"} & SUPERFLUOUS:
            options += _typed(parameter, value)
    if name == "lookup" and words:
        words.insert(-1, "-f")
    return shlex.join([*takewhile(_is_name, now.split()), *words, *last, *options])


def _is_name(word: str) -> bool:
    return word.islower() and not word.startswith("-")


def _typed(option: click.Option, value: Any) -> list[str]:
    """An option by its longest spelling, with its value; one that is repeatable with each."""
    spelling = max(option.opts if value or not option.secondary_opts else option.secondary_opts, key=len)
    if option.is_flag:
        return [spelling]
    shown = option.metavar or "VALUE" if option.name in SECRETS else None
    return [part for each in (value if option.multiple else [value]) for part in (spelling, shown or str(each))]
