"""Options of commands that ask a running server: TLS, and the keys that sign requests."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

import rocketlens
from broker.endpoint import Endpoint
from protocol.errors import ConfigError
from rocketlens.cli.options import endpoint, gathered, is_typed

if TYPE_CHECKING:
    import ssl

FILE = click.Path(path_type=Path, dir_okay=False)

server_option = click.option("--server", type=endpoint, metavar="HOST:PORT", hidden=True)
"""How a server was named before it could be typed as SOURCE; it goes with the next release."""

ACCESS_KEY_VARIABLE: Final = "ROCKETLENS_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETLENS_SECRET_KEY"


class ServerArguments(msgspec.Struct, frozen=True):
    """The values of these options."""

    tls: bool = False
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_key_password_file: Path | None = None
    tls_no_verify: bool = False
    credentials: Path | None = None

    def check(self) -> None:
        """Raise a usage error for options that contradict each other."""
        if self.tls_no_verify and self.tls_ca is not None:
            raise click.UsageError("--tls-ca and --tls-no-verify exclude each other")
        if self.tls_cert is None and (self.tls_key, self.tls_key_password_file) != (None, None):
            raise click.UsageError("--tls-key and --tls-key-password-file need --tls-cert")

    def refuse(self) -> None:
        """Raise a usage error if one was typed, because no server is asked; the environment's do not count then."""
        if is_typed(*self.__struct_fields__):
            raise click.UsageError("--credentials and the options of TLS are for a server, not for a STORE")

    def connect(self, server: Endpoint | None) -> "rocketlens.RemoteStore":
        """Connect as the options say; without a server, to the one in each message id. Raises `ConfigError`."""
        access_key, secret_key = self.keys()
        return rocketlens.connect(
            None if server is None else str(server),
            access_key=access_key,
            secret_key=secret_key,
            tls=self.context(),
        )

    def keys(self) -> tuple[str | None, str | None]:
        """Access key and secret key, of the file or the environment; raises `ConfigError`."""
        if self.credentials is not None:
            from broker.security.accounts import load_credentials

            try:
                return load_credentials(self.credentials)
            except ConfigError as error:
                raise ConfigError(f"--credentials {error}") from None
        # An empty variable is as good as none: that is how service managers and shells clear one.
        keys = os.environ.get(ACCESS_KEY_VARIABLE) or None, os.environ.get(SECRET_KEY_VARIABLE) or None
        if keys.count(None) == 1:
            raise ConfigError(f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}: set both or neither")
        return keys

    def context(self) -> "bool | ssl.SSLContext":
        """What connections with TLS are made with; False for none. Raises `ConfigError`."""
        if msgspec.structs.replace(self, credentials=None) == NO_SERVER_ARGUMENTS:
            return False
        # Imported here: commands that ask in plain text start without it.
        from broker.net.tls import client_context

        return client_context(
            self.tls_ca,
            certificate=self.tls_cert,
            key=self.tls_key,
            key_password_file=self.tls_key_password_file,
            verify=not self.tls_no_verify,
        )


NO_SERVER_ARGUMENTS: Final = ServerArguments()

_OPTIONS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("tls", {"is_flag": True, "help": "Connect with TLS; the others imply this."}),
    ("tls-ca", {"type": FILE, "metavar": "PEM", "help": "Authorities. [default: this machine's]"}),
    ("tls-cert", {"type": FILE, "metavar": "PEM", "help": "Certificate to present to the server."}),
    ("tls-key", {"type": FILE, "metavar": "PEM", "help": "Its private key. [default: in --tls-cert]"}),
    ("tls-key-password-file", {"type": FILE, "metavar": "FILE", "help": "File with the key's password."}),
    ("tls-no-verify", {"is_flag": True, "help": "Accept any certificate and name of the server."}),
    (
        "credentials",
        {
            "type": FILE,
            "metavar": "YAML",
            "help": "File with accessKey and secretKey, as RocketMQ's conf/tools.yml. "
            f"[default: {ACCESS_KEY_VARIABLE}, {SECRET_KEY_VARIABLE}]",
        },
    ),
)
"""The options, without the dashes before them, and what click is told of each."""


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what a command that asks a server takes; it gets them as `server_arguments`."""
    command = gathered(server_arguments=ServerArguments)(command)
    for name, said in reversed(_OPTIONS):
        command = click.option(f"--{name}", **said)(command)
    return command
