"""Options of `serve` that say with which name servers it registers, and as what."""

from collections.abc import Callable

import click
import msgspec

from broker.config import REPLICA_ID, RegisterOptions
from broker.endpoint import Endpoint
from rocketlens.cli.options import endpoint, gathered


def name_servers(text: str) -> tuple[Endpoint, ...]:
    """Read addresses separated by semicolons, as mqadmin's -n takes them."""
    return tuple(endpoint(piece) for piece in text.split(";") if piece.strip())


class RegisterArguments(msgspec.Struct, frozen=True):
    """The values of these options."""

    name_servers: tuple[Endpoint, ...]
    register_as: str
    register_id: int

    @property
    def options(self) -> RegisterOptions:
        """The options of the registration as the server takes them."""
        return RegisterOptions(self.name_servers, self.register_as == "replica", self.register_id)


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
        help="Register as one more replica of the store's own broker, which consumers use when its master is gone, or "
        "as a broker of its own (--broker-name), whose queues are read beside those of others.",
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


def register_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets their values as `register`."""
    command = gathered(register=RegisterArguments)(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
