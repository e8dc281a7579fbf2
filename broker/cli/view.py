"""`rocketlens view`: show messages by their ids."""

import sys
from pathlib import Path

import click
import msgspec

from broker.cli.errors import FOUND, NOT_FOUND, plain_errors
from broker.cli.opening import open_store, refuse_store_options
from broker.cli.options import endpoint, gathered, is_typed, store_options, verbose_option
from broker.cli.output import format_options, say_notes, writer
from broker.cli.server_options import ServerArguments, server_options
from broker.endpoint import Endpoint
from rocketlens.opening import StoreArguments


class ViewArguments(msgspec.Struct, frozen=True):
    """The options of this command alone: where ids are looked up, and what is shown."""

    from_id: bool
    topic: str | None
    damaged: bool
    verbose: bool


@click.command()
@click.argument("arguments", nargs=-1, required=True, metavar="[STORE] ID...")
@click.option("--server", type=endpoint, metavar="HOST:PORT", help="Ask this broker instead of opening a store.")
@click.option("--from-id", is_flag=True, help="Ask the broker whose address is in each id, as RocketMQ's clients do.")
@click.option("--topic", help="Topic of unique keys; without it every topic is searched.")
@click.option("--damaged", is_flag=True, help="Also show records whose CRC is wrong.")
@format_options
@verbose_option
@server_options
@store_options
@gathered(wanted=ViewArguments)
@plain_errors
def view(
    arguments: tuple[str, ...],
    server: Endpoint | None,
    wanted: ViewArguments,
    output_format: str,
    server_arguments: ServerArguments,
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
    if _means_store(arguments, server, wanted):
        if len(arguments) < 2:
            raise click.UsageError("expected STORE and at least one ID (or --server, or --from-id)")
        server_arguments.refuse()
        with open_store(Path(arguments[0]), store_arguments) as store:
            answers = [store.view(text, topic=wanted.topic, damaged=wanted.damaged) for text in arguments[1:]]
    else:
        server = _server(server, wanted)
        server_arguments.check()
        with server_arguments.connect(server) as remote:
            answers = [remote.view(text, topic=wanted.topic) for text in arguments]
    for found in answers:
        say_notes(found, verbose=wanted.verbose)
    write(message for found in answers for message in found)
    sys.exit(FOUND if all(answers) else NOT_FOUND)


def _means_store(arguments: tuple[str, ...], server: Endpoint | None, wanted: ViewArguments) -> bool:
    """Whether the first argument is a STORE: also where the environment names a server, if it is a directory."""
    if server is None and not wanted.from_id:
        return True
    return not is_typed("server", "from_id") and len(arguments) > 1 and Path(arguments[0]).is_dir()


def _server(server: Endpoint | None, wanted: ViewArguments) -> Endpoint | None:
    """The server to ask, None for the one in each id; raises a usage error for options that contradict asking one."""
    if is_typed("damaged"):
        raise click.UsageError("--damaged needs a STORE: brokers do not return damaged records")
    refuse_store_options()
    if server is None or not wanted.from_id:
        return server
    if is_typed("server") == is_typed("from_id"):
        raise click.UsageError("--server and --from-id exclude each other")
    return server if is_typed("server") else None
