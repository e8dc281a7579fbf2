"""A group of commands that are imported when they run, not to be listed; all end when the output pipe is closed."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from rocketlens.cli.errors import ending_with_the_reader, refuse_small_limits, say

VARIABLES: Final = "ROCKETLENS"
"""What the names of environment variables begin with that give options."""


class Later(NamedTuple):
    """A command that is not imported yet."""

    where: str
    """``package.module:attribute``."""
    summary: str
    """Its line in the list of commands."""
    now: str = ""
    """How a command is typed now of which this is an earlier name, which is not listed and goes with the next release.
    """


class LazyGroup(click.Group):
    """A group whose commands are named by `later`; to list them none is imported."""

    def __init__(self, *arguments: Any, later: Mapping[str, Later], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._later = dict(later)

    def list_commands(self, context: click.Context) -> list[str]:
        """All names, in order."""
        return sorted(name for name, command in self._later.items() if not command.now)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of a name, None if there is none."""
        if name in self._later and name not in self.commands:
            module, attribute = self._later[name].where.split(":")
            self.add_command(getattr(importlib.import_module(module), attribute), name)
        command = super().get_command(context, name)
        if command is not None:
            _name_variables(command, context, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is typed; of an earlier name or spelling the new line is printed, and a slip is answered."""
        name, *typed = args
        command = self.get_command(ctx, name)
        if command is not None and not ctx.resilient_parsing:
            self._say_line_of_now(ctx, name, command, typed)
        elif not name.startswith("-") and not ctx.resilient_parsing:
            from storage.names import did_you_mean, similar_names  # only where a name is wrong

            proposed = did_you_mean(similar_names(name, self.list_commands(ctx)))
            ctx.fail(f"No such command {name!r}{f': {proposed}' if proposed else '.'}")
        return super().resolve_command(ctx, args)

    def _say_line_of_now(self, context: click.Context, name: str, command: click.Command, typed: list[str]) -> None:
        """Print how a call is typed now that bears an earlier name or spelling."""
        from rocketlens.cli.earlier import line_of_now, spellings

        now = self._later[name].now if name in self._later else ""
        earlier = spellings(command).intersection(word.partition("=")[0] for word in typed)
        if now or earlier:
            path = f"{context.command_path} ".partition(" ")[2]
            line = line_of_now(name, command, typed, f"{path}{now or name}")
            what = name if now else ", ".join(sorted(earlier))
            say(f"`{what}` will go with the next release, type: rocketlens {line}")

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
    """Let every option of a command be given in the environment, by its longest spelling behind the command's name.

    The last line of its help says so by an example.
    """
    path = [name]
    above: click.Context | None = context
    while above is not None and above.parent is not None:
        path.insert(0, above.info_name or "")
        above = above.parent
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar is None:
            spellings = [max(option.opts, key=len), *getattr(option, "earlier", ())]
            variables = [_variable(path, spelling) for spelling in spellings]
            option.envvar, option.show_envvar = variables if variables[1:] else variables[0], True
            if not option.hidden:
                named = f"In the environment {spellings[0]} is {variables[0]}, and so on."
                command.epilog = command.epilog or named


def _variable(path: Sequence[str], spelling: str) -> str:
    return "_".join((VARIABLES, *path, spelling.lstrip("-"))).replace("-", "_").replace(" ", "_").upper()
