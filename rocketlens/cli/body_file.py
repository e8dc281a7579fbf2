"""The body of one message, as it is, in a file or on stdout: what `--body` asks for."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from protocol.errors import ConfigError, StoreError
from protocol.message import Message
from rocketlens.cli.errors import say
from storage.amounts import counted

MOST_NAMED: Final = 5
"""Messages that are named where one is expected."""

body_option = click.option(
    "--body",
    metavar="FILE",
    help="Write the body alone, as consumers get it, into this new file, or to stdout for -.",
)


def check_body_options(body: str | None, output_format: str, charset: str | None) -> None:
    """Raise a usage error for options that contradict `--body`, which writes the bytes as they are."""
    if body is not None and output_format != "table":
        raise click.UsageError("--body writes the bytes of a body: --format and --json do not apply")
    if body is not None and charset is not None:
        raise click.UsageError("--body writes the bytes of a body as they are: --charset does not apply")


def file_of(body: str) -> dict[str, Path | None]:
    """The file that `--body` names, by the option; none for stdout."""
    return {"--body": None if body == "-" else Path(body)}


def write_body(messages: Sequence[Message], to: str) -> None:
    """Write the body of the one message into a new file or to stdout; raises ConfigError where there are several."""
    if len(messages) > 1:
        places = ", ".join(str(message.physical_offset) for message in messages[:MOST_NAMED])
        raise ConfigError(
            f"--body: expected one message, found {len(messages)}; name one by its physical offset: {places}"
        )
    (message,) = messages
    try:
        body = message.decoded_body()
    except StoreError as error:
        say(f"the body is written as it is stored: {error}")
        body = message.stored_body
    if to == "-":
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return
    from storage.files.own_directories import HeldDirectory, new_file  # few write a file

    try:
        with HeldDirectory.open(Path(to).parent) as held, new_file(held.path / Path(to).name) as file:
            file.write(body)
    except FileExistsError as error:
        raise ConfigError(f"--body: {to} exists already: choose another name") from error
    say(f"{counted(len(body), 'byte')} written to {to}")
