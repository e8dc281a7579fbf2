"""`rocketlens view`: show messages by their ids."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import rocketlens
from broker.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from broker.cli.opening import open_store
from broker.cli.options import endpoint, store_options
from broker.cli.output import format_options, writer
from broker.endpoint import Endpoint
from rocketlens.opening import NO_ARGUMENTS, StoreArguments

if TYPE_CHECKING:
    from rocketlens.answers import Messages


@click.command()
@click.argument("arguments", nargs=-1, required=True, metavar="[STORE] ID...")
@click.option("--server", type=endpoint, metavar="HOST:PORT", help="Ask this broker instead of opening a store.")
@click.option("--from-id", is_flag=True, help="Ask the broker whose address is in each id, as RocketMQ's clients do.")
@click.option("--topic", help="Topic of unique keys; without it every topic is searched.")
@click.option("--damaged", is_flag=True, help="Also show records whose CRC is wrong.")
@format_options
@store_options
@plain_errors
def view(
    arguments: tuple[str, ...],
    server: Endpoint | None,
    from_id: bool,
    topic: str | None,
    damaged: bool,
    output_format: str,
    store_arguments: StoreArguments,
) -> None:
    """Show the messages that the IDs name, from the store in STORE or from a running broker.

    An ID is an offset message id (32 or 56 hex digits; the host in it is ignored), a physical offset in decimal, or a
    unique key.

    Exit code 0 if all messages were found, 1 if not. The reason is printed on stderr.
    """
    write = writer(output_format, detailed=True)
    if not all(arguments):
        raise click.UsageError("an ID is empty")
    if server is None and not from_id:
        if len(arguments) < 2:
            raise click.UsageError("expected STORE and at least one ID (or --server, or --from-id)")
        with open_store(Path(arguments[0]), store_arguments) as store:
            answers = [store.view(text, topic=topic, damaged=damaged) for text in arguments[1:]]
    else:
        _check_remote(server, from_id, damaged, store_arguments)
        answers = _ask(server, arguments, topic)
    for found in answers:
        for text in (*found.notes, *filter(None, (found.reason,))):
            say(text)
    write(message for found in answers for message in found)
    sys.exit(FOUND if all(answers) else NOT_FOUND)


def _ask(server: Endpoint | None, ids: Sequence[str], topic: str | None) -> "list[Messages]":
    with rocketlens.connect(None if server is None else str(server)) as remote:
        return [remote.view(text, topic=topic) for text in ids]


def _check_remote(server: Endpoint | None, from_id: bool, damaged: bool, store_arguments: StoreArguments) -> None:
    """Refuse options that contradict asking a server."""
    if server is not None and from_id:
        raise click.UsageError("--server and --from-id exclude each other")
    if damaged:
        raise click.UsageError("--damaged needs a STORE: brokers do not return damaged records")
    if store_arguments != NO_ARGUMENTS:
        raise click.UsageError("options of a STORE cannot be used with a server")
