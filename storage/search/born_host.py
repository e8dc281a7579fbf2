"""The address that a message was born at: one host, with its port or without, or a network."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

from protocol.errors import ConfigError
from protocol.host_address import HostAddress


@dataclass(frozen=True, slots=True)
class BornHost:
    """A network, which may be of one address, and a port; None for any."""

    network: IPv4Network | IPv6Network
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> "BornHost":
        """Read ``10.1.2.3``, ``10.1.2.3:5678``, ``10.1.0.0/16``, ``::1`` or ``[::1]:5678``; raises ConfigError."""
        address, port = text, None
        bracketed = text.startswith("[")
        if bracketed or text.count(":") == 1:
            address, _, digits = text.rpartition(":") if not text.endswith("]") else (text, "", "")
            address = address.strip("[]") if bracketed else address
            if digits or not text.endswith("]"):
                if not (digits.isascii() and digits.isdigit() and int(digits) < 1 << 16):
                    raise ConfigError(f"{text!r} has no port behind its last colon")
                port = int(digits)
        try:
            return cls(ip_network(address, strict=False), port)
        except ValueError as error:
            raise ConfigError(f"{text!r} is no address, no address and port, and no network: {error}") from error

    def holds(self, address: HostAddress) -> bool:
        """Whether a message's born host is meant."""
        if address.is_ipv6 != (self.network.version == 6) or self.port not in (None, address.port):
            return False
        return int.from_bytes(address.raw_ip) & int(self.network.netmask) == int(self.network.network_address)
