"""All commands, and the help of each as a part of a page (made_parts.py)."""

from functools import cache

import click

from rocketlens.cli.main import main

WIDTH = 100


@cache
def command_line_reference() -> str:
    return "\n".join(["", *_sections(_program())])


def commands(context: click.Context | None = None) -> dict[str, click.Command]:
    """All commands by what is typed behind the program's name ("serve", "rebuild index"), groups among them."""
    context = context or _program()
    found: dict[str, click.Command] = {}
    for name, command in _subcommands(context):
        below = commands(click.Context(command, parent=context, info_name=name))
        found |= {name: command} | {f"{name} {rest}": each for rest, each in below.items()}
    return found


def _program() -> click.Context:
    sizes = {"terminal_width": WIDTH, "max_content_width": WIDTH}
    return click.Context(main, info_name="rocketlens", **sizes, **main.context_settings)


def _subcommands(context: click.Context) -> list[tuple[str, click.Command]]:
    if not isinstance(context.command, click.Group):
        return []
    names = context.command.list_commands(context)
    return [(name, command) for name in names if (command := context.command.get_command(context, name))]


def _sections(context: click.Context) -> list[str]:
    sections = [f"## {context.command_path}\n\n```text\n{context.get_help().rstrip()}\n```\n"]
    for name, command in _subcommands(context):
        sections += _sections(click.Context(command, parent=context, info_name=name))
    return sections
