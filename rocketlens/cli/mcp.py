"""`rocketlens mcp`: answer an assistant, which starts this command and speaks MCP over stdin and stdout."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from broker.config import installed_version
from rocketlens.cli.errors import FOUND, plain_errors
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import EXPECTED, SourceArguments, source_options

if TYPE_CHECKING:
    from rocketlens.source import Source


@click.command(cls=GroupedCommand)
@source_options("SOURCE...")
@plain_errors
def mcp(source: SourceArguments) -> None:
    """Answer an assistant about SOURCE in the Model Context Protocol (MCP), over stdin and stdout.

    An assistant starts this command; docs/mcp.md shows what is written into its configuration. It gets tools that
    read: find, message, story, search, topics, groups, messages, pending and health. Several SOURCEs are directories,
    which are asked together, or one of them by its name. What a tool answers leaves this machine: hide parts of
    messages with --mask. `serve --http --mcp` answers many assistants over HTTP, with accounts.

    Exit code 0 when the assistant closes stdin.
    """
    opened, named = _opened(source)
    # What opens stores is loaded by now; what the tools need is loaded when they are first asked for.
    from rocketlens.mcp.server import McpServer
    from rocketlens.mcp.stdio import OpenedSources, StdioServer

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="rocketlens: %(message)s")
    sources = OpenedSources(opened, named)
    StdioServer(McpServer(installed_version()), sources, sys.stdin.buffer, sys.stdout.buffer).run()
    sys.exit(FOUND)


def _opened(source: SourceArguments) -> "tuple[Source, dict[str, Source]]":
    """What is named, as a whole, and each store by its name."""
    words = source.words
    if len(words) > 1:
        for each in words:
            if not os.path.isdir(each):
                raise click.UsageError(f"{EXPECTED}, or several directories; {each} is none")
        source = msgspec.structs.replace(source, words=(), stores=tuple(map(Path, words)))
    opened = source.open()
    from rocketlens.several_stores import SeveralStores  # after what it is made of

    if isinstance(opened, SeveralStores):
        return opened, dict(opened.stores)
    place = words[0] if words else str(next(iter(source.directories), source.server or ""))
    return opened, {place: opened}
