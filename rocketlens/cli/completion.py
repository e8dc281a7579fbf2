"""`rocketlens completion`: what a shell reads to complete commands and options."""

import click
from click.shell_completion import ShellComplete, get_completion_class

from rocketlens.cli.grouped_command import GroupedCommand

SHELLS = ("bash", "zsh", "fish")

VARIABLE = "_ROCKETLENS_COMPLETE"
"""The environment variable by which a shell asks the command itself for completions."""


@click.command(cls=GroupedCommand)
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--program", default="rocketlens", show_default=True, metavar="NAME", help="The name that is typed.")
@click.pass_context
def completion(context: click.Context, shell: str, program: str) -> None:
    """Print what SHELL reads to complete commands, options and their values when Tab is pressed.

    \b
    bash: add this line to ~/.bashrc
        eval "$(rocketlens completion bash)"
    zsh: add this line to ~/.zshrc, below compinit
        eval "$(rocketlens completion zsh)"
    fish: type this once
        rocketlens completion fish > ~/.config/fish/completions/rocketlens.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    # Not `kind.source`: for bash it starts one to ask for its version.
    click.echo(ShellComplete.source(kind(context.find_root().command, {}, program, VARIABLE)))
