"""Options of `serve` that say which name servers are told of it, and as what."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from broker.cli.options import endpoint
from broker.config import REPLICA_ID, RegisterOptions
from broker.endpoint import Endpoint

Command = TypeVar("Command", bound=Callable[..., Any])


def name_servers(text: str) -> tuple[Endpoint, ...]:
    """Read addresses separated by semicolons, as mqadmin's -n takes them."""
    return tuple(endpoint(piece) for piece in text.split(";") if piece.strip())


_OPTIONS = (
    click.option(
        "--register",
        "name_servers",
        type=name_servers,
        metavar="HOST:PORT;...",
        default="",
        help="Register with these name servers, so that clients of a running cluster find this server.",
    ),
    click.option(
        "--register-as",
        type=click.Choice(["replica", "broker"]),
        default="replica",
        show_default=True,
        help="Register as one more replica of the store's own broker, which consumers use when its master is "
        "gone; or as a broker of its own (--broker-name), whose queues consumers of a topic read in "
        "addition to those of the others.",
    ),
    click.option(
        "--register-id",
        type=int,
        default=REPLICA_ID,
        show_default=True,
        metavar="N",
        help="Broker id of the replica.",
    ),
)


def register_options(command: Command) -> Command:
    """Add them; `register_arguments` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def register_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """What the options say, taken out of a command's `arguments`, as arguments of `ServeOptions`."""
    return {
        "register": RegisterOptions(
            arguments.pop("name_servers"), arguments.pop("register_as") == "replica", arguments.pop("register_id")
        )
    }
