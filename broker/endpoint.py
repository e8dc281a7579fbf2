"""Where a server listens or is asked: a host and a TCP port."""

import ipaddress
from typing import NamedTuple

from protocol.errors import ConfigError

DEFAULT_PORT = 10911
"""The port of a RocketMQ broker."""


class Endpoint(NamedTuple):
    """A host name or IP address, and a TCP port; `str()` is `host:port`, an IPv6 host in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Read `host:port` or `[IPv6]:port`; the host must be there (no other address is bound), port 0 is allowed.

        Raises `ConfigError` naming what is wrong.
        """
        host, colon, port = text.strip().rpartition(":")
        if not colon or not host:
            raise ConfigError(f"address {text!r}: expected HOST:PORT, for example 127.0.0.1:{DEFAULT_PORT}")
        if not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
            raise ConfigError(f"address {text!r}: port {port!r} is not a number from 0 to 65535")
        return cls(_parse_host(text, host), int(port))

    def resolved(self) -> "Endpoint":
        """Return the same with the host as an IP address; asks the resolver, so not on the event loop."""
        import socket  # not where addresses are only read

        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConfigError(f"address {self}: {self.host!r} has no IP address ({error.strerror})") from error
        return Endpoint.of_socket(found[0][4])

    @classmethod
    def of_socket(cls, name: object) -> "Endpoint":
        """Read what `getsockname` or `getpeername` answered; an IPv4 address mapped into IPv6 becomes IPv4 again."""
        if not isinstance(name, tuple) or len(name) < 2:
            return cls("0.0.0.0", 0)
        host = str(name[0]).partition("%")[0]
        if host.startswith("::ffff:") and "." in host:
            host = host.removeprefix("::ffff:")
        return cls(host, int(name[1]))


def _parse_host(text: str, host: str) -> str:
    """Return the host without brackets; an IPv6 address must have them, else its last group reads as a port."""
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError as error:
            raise ConfigError(f"address {text!r}: {host[1:-1]!r} is not an IPv6 address") from error
    if ":" in host:
        raise ConfigError(f"address {text!r}: write an IPv6 address in brackets, for example [::1]:{DEFAULT_PORT}")
    if not host.isprintable() or any(character in " /[]@" for character in host):
        raise ConfigError(f"address {text!r}: {host!r} is not a host")
    return host
