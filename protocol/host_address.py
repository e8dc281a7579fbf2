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
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from struct import Struct
from typing import Final, Self

V4_HOST: Final = Struct(">4si")
V6_HOST: Final = Struct(">16si")
V4_IP_SIZE: Final = 4
V6_IP_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class HostAddress:
    """An IP address in its usual text form and a port; a damaged record may hold any i32 as port."""

    ip: str
    port: int

    @classmethod
    def from_raw(cls, ip: bytes, port: int) -> Self:
        """The address of 4 or 16 raw address bytes."""
        if len(ip) == V4_IP_SIZE:
            return cls(".".join(map(str, ip)), port)
        return cls(str(IPv6Address(ip)), port)

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
        try:
            return IPv6Address(self.ip).packed if self.is_ipv6 else IPv4Address(self.ip).packed
        except AddressValueError as error:
            raise ValueError(f"{self.ip!r} is no IP address: {error}") from error

    def pack(self) -> bytes:
        """The 8 or 20 bytes of the address, as a record holds them."""
        return (V6_HOST if self.is_ipv6 else V4_HOST).pack(self.raw_ip, self.port)

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.is_ipv6 else f"{self.ip}:{self.port}"
