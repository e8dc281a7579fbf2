"""`rocketlens view`: show messages by their ids."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from broker.cli.errors import FOUND, NOT_FOUND, plain_errors, say
from broker.cli.finding import Finding, find_in_store, find_surely
from broker.cli.opening import NO_ARGUMENTS, StoreArguments, open_store
from broker.cli.options import endpoint, store_options
from broker.cli.output import format_options, writer
from broker.endpoint import Endpoint
from storage.layout.store_layout import recognise_store


@click.command()
@click.argument("arguments", nargs=-1, required=True, metavar="[STORE] ID...")
@click.option("--server", type=endpoint, metavar="HOST:PORT", help="Ask this broker instead of opening a store.")
@click.option(
    "--from-id", is_flag=True, help="Ask the broker whose address stands in each id, as RocketMQ's clients do."
)
@click.option("--topic", help="Topic of unique keys; without it every topic is searched.")
@click.option("--damaged", is_flag=True, help="Show a record whose CRC is wrong too.")
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

    An ID is an offset message id (32 or 56 hex digits, whatever host it names), a physical offset in decimal, or a
    unique key.

    Exit code 0 when all were found, 1 when one was not; the reason stands on stderr.
    """
    write = writer(output_format, detailed=True)
    if not all(arguments):
        raise click.UsageError("an ID is empty")
    if server is None and not from_id:
        if len(arguments) < 2:
            raise click.UsageError("expected STORE and at least one ID (or --server, or --from-id)")
        findings = _find_in_store(Path(arguments[0]), arguments[1:], topic, damaged, store_arguments)
    else:
        _check_remote(server, from_id, damaged, store_arguments)
        from broker.cli.asking import ask_for_ids

        findings = ask_for_ids(server, arguments, topic)
    for finding in findings:
        for text in filter(None, (finding.note, finding.reason)):
            say(text)
    write(message for finding in findings for message in finding.messages)
    sys.exit(FOUND if all(finding.messages for finding in findings) else NOT_FOUND)


def _find_in_store(
    path: Path, ids: Sequence[str], topic: str | None, damaged: bool, store_arguments: StoreArguments
) -> list[Finding]:
    """Find messages without opening the store where a few pages of its files do; opening it may mean a gigabyte."""
    store_arguments.check(path)
    layout = recognise_store(path, store_arguments.commit_log_directories or ())
    sure = [find_surely(layout, text) for text in ids]
    if all(sure):
        return list(filter(None, sure))
    # Offsets need no keys: the index is checked, and what it lacks scanned, when a unique key is asked for.
    store = open_store(path, store_arguments, scan_budget=0, check_budget=0)
    return [find_in_store(store, text, topic=topic, damaged=damaged) for text in ids]


def _check_remote(server: Endpoint | None, from_id: bool, damaged: bool, store_arguments: StoreArguments) -> None:
    """Refuse options that contradict asking a server."""
    if server is not None and from_id:
        raise click.UsageError("--server and --from-id exclude each other")
    if damaged:
        raise click.UsageError("--damaged needs a STORE: no broker answers with a damaged record")
    if store_arguments != NO_ARGUMENTS:
        raise click.UsageError("options of a STORE make no sense when a server is asked")
