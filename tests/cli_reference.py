"""Writes `docs/cli.md` from the commands' own help, so that the two cannot drift; `make docs` calls it.

A test compares the file with what this module says.
"""

import click

from broker.cli.main import main

HEADER = """\
# The command line

`rocketlens` and each of its commands, as `--help` says it. Written by `make docs` from the commands themselves.

Exit codes: 0 found (or stopped as asked), 1 not found, 2 usage, 3 store error.
"""
WIDTH = 100


def command_line_reference() -> str:
    """The whole page: the program's help, then each command's, subcommands after their group."""
    return "\n".join([HEADER, *(_section(path, command) for path, command in _walk(("rocketlens",), main))])


def _walk(path: tuple[str, ...], command: click.Command) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            found += _walk((*path, name), command.commands[name])
    return found


def _section(path: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(
        command, info_name=" ".join(path), terminal_width=WIDTH, max_content_width=WIDTH, color=False
    )
    return f"## {' '.join(path)}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"


if __name__ == "__main__":
    print(command_line_reference(), end="")
