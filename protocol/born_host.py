"""The sender of a message: an address or a host name, with its port or without, or a network of addresses.

Behind a proxy the born host of a record is the proxy's; the client's own address or host name is in the property
`__BORNHOST`, as the client or the proxy wrote it (store-format §2.11). Both are looked at: who asks for the proxy finds
what came through it.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from protocol.errors import ConfigError
from protocol.host_address import HostAddress
from protocol.message import Message
from protocol.properties import BORN_HOST

_NAME: Final = re.compile(r"(?=[^a-z]*[a-z])[a-z0-9_]([a-z0-9_.-]{0,252}[a-z0-9_])?", re.ASCII)
"""A host name in lower case; one letter at least, so that no slip in an address is taken for a name."""

_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class BornHost:
    """A network, which may be of one address, or the name of a host; and a port, None for any."""

    network: IPv4Network | IPv6Network | None
    port: int | None = None
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> "BornHost":
        """Read ``10.1.2.3``, ``10.1.2.3:5678``, ``10.1.0.0/16``, ``::1``, ``[::1]:5678``, ``host`` or ``host:5678``.

        Raises ConfigError.
        """
        address, port = text, None
        bracketed = text.startswith("[")
        if bracketed or text.count(":") == 1:
            address, _, digits = text.rpartition(":") if not text.endswith("]") else (text, "", "")
            address = address.strip("[]") if bracketed else address
            if digits or not text.endswith("]"):
                if not (digits.isascii() and digits.isdigit() and len(digits) < 6 and int(digits) < 1 << 16):
                    raise ConfigError(f"{text!r} has no port behind its last colon")
                port = int(digits)
        try:
            return cls(ip_network(address, strict=False), port)
        except ValueError as error:
            name = address.lower()
            if not bracketed and _NAME.fullmatch(name):
                return cls(None, port, name)
            raise ConfigError(
                f"{text!r} is no address, no address and port, no network and no host name: {error}"
            ) from error

    def holds(self, message: Message) -> bool:
        """Whether a message was sent from here, directly or through a proxy, or came through a proxy that is here."""
        return self.holds_address(message.born_host) or self.holds_sender(message)

    def holds_address(self, address: HostAddress) -> bool:
        """Whether the born host of a record is meant."""
        network = self.network
        if network is None or address.is_ipv6 != (network.version == 6) or self.port not in (None, address.port):
            return False
        return int.from_bytes(address.raw_ip) & int(network.netmask) == int(network.network_address)

    def holds_sender(self, message: Message) -> bool:
        """Whether the client is meant that a proxy names as the sender of a message."""
        sender = sender_behind_proxy(message.properties.get(BORN_HOST))
        if sender is None or self.port not in (None, sender.port):
            return False
        if self.network is None or sender.network is None:
            return self.name is not None and self.name == sender.name
        first, last = int(self.network.network_address), int(self.network.broadcast_address)
        return sender.network.version == self.network.version and first <= int(sender.network.network_address) <= last

    def is_proxy_of(self, message: Message) -> bool:
        """Whether a message came through a proxy that is here, from a client that is not."""
        is_direct = sender_behind_proxy(message.properties.get(BORN_HOST)) is None
        return not is_direct and self.holds_address(message.born_host) and not self.holds_sender(message)


@lru_cache(_KEPT)
def sender_behind_proxy(value: str | None) -> BornHost | None:
    """What the property `__BORNHOST` names, None for a message that came directly, and for what names no host."""
    if not value:
        return None
    try:
        sender = BornHost.parse(value)
    except ConfigError:
        return None
    network = sender.network
    return sender if network is None or network.prefixlen == network.max_prefixlen else None
