"""The address of a producer or a broker as records and message ids carry it: raw IP, then an i32 port.

V4_HOST
offset  size  type   field
0       4     bytes  ip
4       4     i32    port

V6_HOST
offset  size  type   field
0       16    bytes  ip
16      4     i32    port

Source: store-format §2.2, fields 10 and 12.
"""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from struct import Struct
from typing import Final, Self

V4_HOST: Final = Struct(">4si")
V6_HOST: Final = Struct(">16si")
V4_IP_SIZE: Final = 4
HIDDEN: Final = "***"
KEPT: Final = 4096
"""Addresses whose other form is remembered: messages of a store come from few hosts."""


@dataclass(frozen=True, slots=True)
class HostAddress:
    """An IP address in its usual text form and a port; a damaged record may hold any i32 as port."""

    ip: str
    port: int

    @classmethod
    def from_raw(cls, ip: bytes, port: int) -> Self:
        """The address of 4 or 16 raw address bytes."""
        return cls(_ip_text(ip), port)

    @classmethod
    def unpack(cls, packed: bytes | memoryview) -> Self:
        """The address of 8 (IPv4) or 20 (IPv6) bytes, port included."""
        return cls.from_raw(*(V4_HOST if len(packed) == V4_HOST.size else V6_HOST).unpack(packed))

    @property
    def is_ipv6(self) -> bool:
        """Whether the packed form takes 20 bytes instead of 8."""
        return ":" in self.ip

    @property
    def raw_ip(self) -> bytes:
        """The 4 or 16 address bytes. Raises `ValueError` when `ip` is no address (a host name, say)."""
        return _raw_ip(self.ip)

    def pack(self) -> bytes:
        """The 8 or 20 bytes of the address, as a record holds them."""
        return (V6_HOST if self.is_ipv6 else V4_HOST).pack(self.raw_ip, self.port)

    @property
    def is_hidden(self) -> bool:
        """Whether it is masked, and shown as asterisks."""
        return self.ip == HIDDEN

    def __str__(self) -> str:
        if self.is_hidden:
            return HIDDEN
        return f"[{self.ip}]:{self.port}" if self.is_ipv6 else f"{self.ip}:{self.port}"


HIDDEN_HOST: Final = HostAddress(HIDDEN, 0)
"""Stands for an address that is masked."""


@lru_cache(KEPT)
def _raw_ip(ip: str) -> bytes:
    try:
        return IPv6Address(ip).packed if ":" in ip else IPv4Address(ip).packed
    except AddressValueError as error:
        raise ValueError(f"{ip!r} is no IP address: {error}") from error


@lru_cache(KEPT)
def _ip_text(raw: bytes) -> str:
    return ".".join(map(str, raw)) if len(raw) == V4_IP_SIZE else str(IPv6Address(raw))
