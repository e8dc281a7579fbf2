"""Writes `docs/cli.md` from the commands' own help, so that the two cannot drift; `make docs` calls it.

A test compares the file with what this module says.
"""

import click

from broker.cli.main import main

HEADER = """\
# The command line

`rocketlens` and each of its commands, as `--help` says it. Written by `make docs` from the commands themselves.
"""
WIDTH = 100


def command_line_reference() -> str:
    """The whole page: the program's help, then each command's, subcommands after their group."""
    program = click.Context(
        main, info_name="rocketlens", terminal_width=WIDTH, max_content_width=WIDTH, **main.context_settings
    )
    return "\n".join([HEADER, *_sections(program)])


def _sections(context: click.Context) -> list[str]:
    sections = [f"## {context.command_path}\n\n```text\n{context.get_help().rstrip()}\n```\n"]
    if isinstance(context.command, click.Group):
        for name, command in sorted(context.command.commands.items()):
            sections += _sections(click.Context(command, parent=context, info_name=name))
    return sections


if __name__ == "__main__":
    print(command_line_reference(), end="")
