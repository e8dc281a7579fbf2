"""TLS on the port: its options, and the context made of certificate files.

Modes are a RocketMQ server's (remoting-protocol §1.9): *disabled* knows no TLS, *permissive* takes TLS and plain
clients, *enforcing* TLS alone.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker.security.watched_files import Watched
from protocol.errors import ConfigError

if TYPE_CHECKING:
    import ssl

MODES = ("disabled", "permissive", "enforcing")
CLIENT_AUTH = ("none", "optional", "required")

FIRST_BYTE = 0x16
"""The first byte of a TLS handshake; that of a frame within any limit is 0."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """`certificate` is a PEM file with the chain, `key` one with its key, by default the same file.

    `client_ca`: PEM file of the authorities that sign client certificates, looked at as `client_auth` says.
    """

    mode: str = "disabled"
    certificate: Path | None = None
    key: Path | None = None
    key_password_file: Path | None = None
    client_ca: Path | None = None
    client_auth: str = "none"

    @property
    def is_on(self) -> bool:
        """Whether a client may speak TLS."""
        return self.mode != "disabled"

    def check(self) -> "TlsOptions":
        """Return itself, or raise `ConfigError` for options that contradict each other."""
        if not self.is_on:
            if self.certificate or self.key or self.client_ca:
                raise ConfigError("TLS files without effect: give --tls-mode permissive or enforcing too")
        elif self.certificate is None:
            raise ConfigError(f"--tls-mode {self.mode} needs a certificate: give --tls-cert")
        if (self.client_auth != "none") != (self.client_ca is not None):
            raise ConfigError("--tls-client-auth and --tls-client-ca are given together or not at all")
        return self


NO_TLS = TlsOptions()


def watched_context(options: TlsOptions) -> "Watched[ssl.SSLContext]":
    """The context of these options, made anew when a file changes. Raises `ConfigError`."""
    files = (options.certificate, options.key, options.key_password_file, options.client_ca)
    return Watched("TLS certificate", [path for path in files if path is not None], lambda: load_context(options))


def load_context(options: TlsOptions) -> "ssl.SSLContext":
    """A server's context of TLS 1.2 and later. Raises `ConfigError` naming the file that cannot be used."""
    import ssl

    assert options.certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    password = _password(options.key_password_file)
    try:
        # A password is always given: without one OpenSSL would ask for it on the terminal.
        context.load_cert_chain(options.certificate, options.key, lambda: password)
    except (OSError, ValueError) as error:
        names = " and ".join(str(path) for path in (options.certificate, options.key) if path is not None)
        raise ConfigError(f"TLS: {names} cannot be used: {_reason(error)}") from None
    if options.client_ca is not None:
        try:
            context.load_verify_locations(options.client_ca)
        except (OSError, ValueError) as error:
            raise ConfigError(f"TLS: {options.client_ca} cannot be used: {_reason(error)}") from error
        is_required = options.client_auth == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def _password(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text().rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise ConfigError(f"TLS: {path} cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Why, in the words of the library, without the place in its own source."""
    import ssl

    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return error.strerror or str(error) if isinstance(error, OSError) else "it is no text"
