"""A group of commands, some of them imported only when they are asked for; all end where nobody reads on."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

from broker.cli.errors import ending_with_the_reader, refuse_small_limits


class LazyGroup(click.Group):
    """`later` gives names of subcommands and where they are, as ``package.module:attribute``."""

    def __init__(self, *arguments: Any, later: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._later = dict(later or {})

    def list_commands(self, context: click.Context) -> list[str]:
        """All names, in order."""
        return sorted({*super().list_commands(context), *self._later})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of a name, None if there is none."""
        if name in self._later:
            module, attribute = self._later[name].split(":")
            self.add_command(getattr(importlib.import_module(module), attribute), name)
        return super().get_command(context, name)

    def invoke(self, context: click.Context) -> Any:
        """Run a command until it ends, or until nobody reads what it writes."""
        with ending_with_the_reader():
            refuse_small_limits()
            return super().invoke(context)
