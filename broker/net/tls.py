"""TLS contexts made of certificate files: that of the port, and that of a client of ours."""

import ssl
from dataclasses import replace
from pathlib import Path

from broker.config import TlsOptions
from broker.security.watched_files import Watched
from protocol.errors import ConfigError

FIRST_BYTE = 0x16
"""The first byte of a TLS handshake; that of a frame within any limit is 0."""


def watched_context(options: TlsOptions) -> Watched[ssl.SSLContext]:
    """The context of these options, made anew when a file changes. Raises `ConfigError`."""
    files = (options.certificate, options.key, options.key_password_file, options.client_ca)
    return Watched("TLS certificate", [path for path in files if path is not None], lambda: load_context(options))


def watched_http_context(options: TlsOptions) -> Watched[ssl.SSLContext]:
    """The context of the HTTP port, whose clients present no certificates; else as `watched_context`."""
    return watched_context(http_options(options))


def http_options(options: TlsOptions) -> TlsOptions:
    """The options of TLS on the HTTP port: with the same certificate, without those of clients."""
    return replace(options, client_ca=None, client_auth="none")


def load_context(options: TlsOptions) -> ssl.SSLContext:
    """A server's context of TLS 1.2 and later. Raises `ConfigError` naming the file that cannot be used."""
    assert options.certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _present(context, options.certificate, options.key, options.key_password_file)
    if options.client_ca is not None:
        _trust(context, options.client_ca)
        is_required = options.client_auth == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def client_context(
    authorities: Path | None = None,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    key_password_file: Path | None = None,
    verify: bool = True,
) -> ssl.SSLContext:
    """A client's context of TLS 1.2 and later. Raises `ConfigError` naming the file that cannot be used.

    The server's certificate must be signed by one of `authorities`, by default those that this machine trusts, and be
    valid for the server's name; without `verify` any certificate will do. `certificate` is the client's own.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authorities is None:
        context.load_default_certs()
    else:
        _trust(context, authorities)
    if certificate is not None:
        _present(context, certificate, key, key_password_file)
    return context


def _present(context: ssl.SSLContext, certificate: Path, key: Path | None, key_password_file: Path | None) -> None:
    """Give a context its own certificate and key."""
    password = _password(key_password_file)
    try:
        # A password is always given: without one OpenSSL would ask for it on the terminal.
        context.load_cert_chain(certificate, key, lambda: password)
    except (OSError, ValueError) as error:
        names = " and ".join(str(path) for path in (certificate, key) if path is not None)
        raise ConfigError(f"TLS: {names} cannot be used: {_reason(error)}") from None


def _trust(context: ssl.SSLContext, authorities: Path) -> None:
    """Have a context accept certificates that these authorities signed."""
    try:
        context.load_verify_locations(authorities)
    except (OSError, ValueError) as error:
        raise ConfigError(f"TLS: {authorities} cannot be used: {_reason(error)}") from error


def _password(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text().rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise ConfigError(f"TLS: {path} cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Why, in the words of the library, without the place in its own source."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not text"
