"""Options of `serve` that say who may speak to it, and how."""

import ipaddress
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from broker.config import TLS_CLIENT_AUTH, TLS_MODES, TlsOptions
from rocketlens.cli.options import gathered

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

FILE = click.Path(path_type=Path, dir_okay=False)


def network(text: str) -> Network:
    """Read an IP address or a network like 10.0.0.0/8; a wrong one is a usage error."""
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not an IP address or a network like 10.0.0.0/8 ({error})") from error


class PortArguments(msgspec.Struct, frozen=True):
    """The values of these options."""

    tls_mode: str
    tls_cert: Path | None
    tls_key: Path | None
    tls_key_password_file: Path | None
    tls_client_ca: Path | None
    tls_client_auth: str
    proxies: tuple[Network, ...]
    acl: Path | None
    acl_admin_has_all: bool
    audit_log: Path | None

    @property
    def tls(self) -> TlsOptions:
        """The options of TLS, as the server has them."""
        return TlsOptions(
            mode=self.tls_mode,
            certificate=self.tls_cert,
            key=self.tls_key,
            key_password_file=self.tls_key_password_file,
            client_ca=self.tls_client_ca,
            client_auth=self.tls_client_auth,
        )


_PORT_OPTIONS = (
    click.option(
        "--tls-mode",
        type=click.Choice(TLS_MODES),
        default=TLS_MODES[0],
        show_default=True,
        help="TLS on the same port: none, TLS beside plain connections, or only TLS.",
    ),
    click.option(
        "--tls-cert", type=FILE, metavar="PEM", help="Certificate, followed by those that lead to its authority."
    ),
    click.option("--tls-key", type=FILE, metavar="PEM", help="Its private key. [default: in the certificate's file]"),
    click.option("--tls-key-password-file", type=FILE, metavar="FILE", help="File with the key's password."),
    click.option("--tls-client-ca", type=FILE, metavar="PEM", help="Authorities of client certificates."),
    click.option(
        "--tls-client-auth",
        type=click.Choice(TLS_CLIENT_AUTH),
        default=TLS_CLIENT_AUTH[0],
        show_default=True,
        help="Whether clients may, or must, present a certificate.",
    ),
    click.option(
        "--proxy-protocol-from",
        "proxies",
        type=network,
        metavar="IP|NETWORK",
        multiple=True,
        help="Proxies whose connections begin with a PROXY header (v1 or v2); repeatable.",
    ),
    click.option(
        "--acl",
        type=FILE,
        metavar="YAML",
        help="Accounts by which requests must be signed, as in RocketMQ's plain_acl.yml.",
    ),
    click.option(
        "--acl-admin-has-all",
        is_flag=True,
        help="Give all rights to an account with admin: true and neither topicPerms nor groupPerms, as a broker 4.9.",
    ),
    click.option(
        "--audit-log",
        type=FILE,
        metavar="FILE",
        help="Append a line of JSON each time that messages are read: who read which, from where.",
    ),
)


def port_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets their values as `port`."""
    command = gathered(port=PortArguments)(command)
    for option in reversed(_PORT_OPTIONS):
        command = option(command)
    return command
