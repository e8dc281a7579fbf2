"""A group of commands that are imported when they run, not to be listed; all end when the output pipe is closed."""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from broker.cli.errors import ending_with_the_reader, refuse_small_limits


class Later(NamedTuple):
    """A command that is not imported yet."""

    where: str
    """``package.module:attribute``."""
    summary: str
    """Its line in the list of commands."""


class LazyGroup(click.Group):
    """A group whose commands are named by `later`; to list them none is imported."""

    def __init__(self, *arguments: Any, later: Mapping[str, Later], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._later = dict(later)

    def list_commands(self, context: click.Context) -> list[str]:
        """All names, in order."""
        return sorted(self._later)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of a name, None if there is none."""
        if name in self._later and name not in self.commands:
            module, attribute = self._later[name].where.split(":")
            self.add_command(getattr(importlib.import_module(module), attribute), name)
        return super().get_command(context, name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their summaries."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._later[name].summary) for name in self.list_commands(context)])

    def invoke(self, context: click.Context) -> Any:
        """Run a command until it ends, or until its output pipe is closed."""
        with ending_with_the_reader():
            refuse_small_limits()
            return super().invoke(context)
