"""`rocketlens view`: show messages by their ids."""

import sys
from pathlib import Path

import click
import msgspec

from broker.endpoint import Endpoint
from rocketlens.cli.body_file import body_option, check_body_options, file_of, write_body
from rocketlens.cli.errors import FOUND, NOT_FOUND, plain_errors
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import open_store, refuse_store_options
from rocketlens.cli.options import charset_option, gathered, is_typed, store_options, verbose_option
from rocketlens.cli.output import format_options, say_notes, writer
from rocketlens.cli.server_options import ServerArguments, server_option, server_options
from rocketlens.cli.time_options import timezone_option
from rocketlens.opening import StoreArguments
from storage.files.write_guard import check_outside


class ViewArguments(msgspec.Struct, frozen=True):
    """The options of this command alone: where ids are looked up, and what is shown."""

    from_id: bool
    topic: str | None
    damaged: bool
    verbose: bool
    charset: str | None
    body: str | None


@click.command(cls=GroupedCommand)
@click.argument("arguments", nargs=-1, required=True, metavar="[STORE] ID...")
@server_option
@click.option("--from-id", is_flag=True, help="Ask the broker whose address is in each id, as RocketMQ's clients do.")
@click.option("--topic", help="Topic of the messages; without it every topic is searched.")
@click.option("--damaged", is_flag=True, help="Also show records whose CRC is wrong.")
@charset_option
@body_option
@format_options
@timezone_option
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

    Bodies that an application packed with gzip or zstd are shown unpacked; on a terminal JSON is indented.

    Exit code 0 if all messages were found, 1 if not. The reason is printed on stderr.
    """
    check_body_options(wanted.body, output_format, wanted.charset)
    write = writer(output_format, detailed=True, charset=wanted.charset)
    if not all(arguments):
        raise click.UsageError("an ID is empty")
    if _means_store(arguments, server, wanted):
        if len(arguments) < 2:
            raise click.UsageError("expected STORE and at least one ID (or --server, or --from-id)")
        server_arguments.refuse()
        if wanted.body is not None:
            check_outside((Path(arguments[0]), *(store_arguments.commit_log_directories or ())), file_of(wanted.body))
        with open_store(Path(arguments[0]), store_arguments) as store:
            answers = [store.view(text, topic=wanted.topic, damaged=wanted.damaged) for text in arguments[1:]]
    else:
        server = _server(server, wanted, store_arguments)
        server_arguments.check()
        with server_arguments.connect(server) as remote:
            answers = [remote.view(text, topic=wanted.topic) for text in arguments]
    for found in answers:
        say_notes(found, verbose=wanted.verbose)
    messages = [message for found in answers for message in found]
    if wanted.body is None:
        write(messages)
    elif messages:
        write_body(messages, wanted.body)
    sys.exit(FOUND if all(answers) else NOT_FOUND)


def _means_store(arguments: tuple[str, ...], server: Endpoint | None, wanted: ViewArguments) -> bool:
    """Whether the first argument is a STORE: also where the environment names a server, if it is a directory."""
    if server is None and not wanted.from_id:
        return True
    return not is_typed("server", "from_id") and len(arguments) > 1 and Path(arguments[0]).is_dir()


def _server(server: Endpoint | None, wanted: ViewArguments, store_arguments: StoreArguments) -> Endpoint | None:
    """The server to ask, None for the one in each id; raises a usage error for options that contradict asking one."""
    if is_typed("damaged"):
        raise click.UsageError("--damaged needs a STORE: brokers do not return damaged records")
    refuse_store_options(store_arguments)
    if server is None or not wanted.from_id:
        return server
    if is_typed("server") == is_typed("from_id"):
        raise click.UsageError("--server and --from-id exclude each other")
    return server if is_typed("server") else None
