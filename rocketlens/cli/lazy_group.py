"""A group of commands that are imported when they run, not to be listed; all end when the output pipe is closed."""

import importlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from rocketlens.cli.errors import ending_with_the_reader, refuse_small_limits

VARIABLES: Final = "ROCKETLENS"
"""What the names of environment variables begin with that give options."""


class Later(NamedTuple):
    """A command that is not imported yet."""

    where: str
    """``package.module:attribute``."""
    summary: str
    """Its line in the list of commands."""
    is_hidden: bool = False
    """Whether it is an earlier name, which is not listed."""


class LazyGroup(click.Group):
    """A group whose commands are named by `later`; to list them none is imported."""

    def __init__(self, *arguments: Any, later: Mapping[str, Later], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._later = dict(later)

    def list_commands(self, context: click.Context) -> list[str]:
        """All names, in order."""
        return sorted(name for name, command in self._later.items() if not command.is_hidden)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of a name, None if there is none."""
        if name in self._later and name not in self.commands:
            module, attribute = self._later[name].where.split(":")
            self.add_command(getattr(importlib.import_module(module), attribute), name)
        command = super().get_command(context, name)
        if command is not None:
            _name_variables(command, context, name)
        return command

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names that begin so, with their summaries; no command is imported for it."""
        names = [name for name in self.list_commands(context) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self._later[name].summary) for name in names]
        return [*items, *click.Command.shell_complete(self, context, incomplete)]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their summaries."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._later[name].summary) for name in self.list_commands(context)])

    def invoke(self, context: click.Context) -> Any:
        """Run a command until it ends, or until its output pipe is closed."""
        with ending_with_the_reader():
            refuse_small_limits()
            return super().invoke(context)


def _name_variables(command: click.Command, context: click.Context, name: str) -> None:
    """Let every option of a command be given in the environment, by its longest spelling behind the command's name."""
    path = [name]
    above: click.Context | None = context
    while above is not None and above.parent is not None:
        path.insert(0, above.info_name or "")
        above = above.parent
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar is None and not option.hidden:
            spelling = max(option.opts, key=len).lstrip("-")
            option.envvar = "_".join((VARIABLES, *path, spelling)).replace("-", "_").replace(" ", "_").upper()
            option.show_envvar = True
