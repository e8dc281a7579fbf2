"""The header that a proxy puts before a connection, with the client's address (HAProxy PROXY protocol, 1 and 2).

VERSION_2
offset  size  type   field      meaning
0       12    bytes  signature  fixed bytes that no other protocol begins with
12      1     u8     command    2 in the high four bits; 0 the proxy's own connection, 1 a client's
13      1     u8     family     0x11 TCP over IPv4, 0x21 TCP over IPv6, others have no address
14      2     u16    length     bytes that follow: two addresses, two ports, then extensions

IPV4_PORTS
offset  size  type   field             meaning
0       4     bytes  source            16 bytes over IPv6
4       4     bytes  destination       likewise
8       2     u16    source_port
10      2     u16    destination_port

Version 1 is one line, `PROXY TCP4 source destination source-port destination-port`. Source: the specification of 2020,
https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt, and remoting-protocol §1.10.
"""

import ipaddress
from struct import Struct
from typing import Final, NamedTuple

from broker.endpoint import Endpoint
from protocol.errors import ProtocolError

VERSION_2: Final = Struct(">12sBBH")
SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
VERSION_1_START: Final = b"PROXY "
LONGEST_LINE: Final = 107
LONGEST_VERSION_2: Final = 4096
IPV4_PORTS: Final = Struct(">4s4sHH")
IPV6_PORTS: Final = Struct(">16s16sHH")


class BadProxyHeader(ProtocolError):
    """A connection that must begin with a PROXY header does not."""


class ProxyHeader(NamedTuple):
    """A whole header: its length in bytes, and the two ends of the client's connection if it has them."""

    length: int
    source: Endpoint | None = None
    destination: Endpoint | None = None


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header at the front of `data`, None while it is not whole. Raises `BadProxyHeader`."""
    if data[:1] == b"P":
        return _parse_line(data)
    if data[: len(SIGNATURE)] == SIGNATURE[: len(data)]:
        return _parse_version_2(data)
    raise BadProxyHeader(f"no PROXY header: it begins with {data[:16]!r}")


def _parse_line(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, LONGEST_LINE)
    if data[: len(VERSION_1_START)] != VERSION_1_START[: len(data)] or (end < 0 and len(data) >= LONGEST_LINE):
        raise BadProxyHeader(f"no PROXY header: it begins with {data[:16]!r}")
    if end < 0:
        return None
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return ProxyHeader(end + 2)
    try:
        _, family, source, destination, source_port, destination_port = (word.decode("ascii") for word in words)
        kind = {"TCP4": ipaddress.IPv4Address, "TCP6": ipaddress.IPv6Address}[family]
        ends = [
            Endpoint(str(kind(host)), _port(port))
            for host, port in ((source, source_port), (destination, destination_port))
        ]
    except (ValueError, KeyError) as error:
        raise BadProxyHeader(f"a PROXY header without addresses: {data[:end]!r}") from error
    return ProxyHeader(end + 2, *ends)


def _port(digits: str) -> int:
    if not digits.isdigit() or len(digits) > 5 or int(digits) > 65535:
        raise ValueError(digits)
    return int(digits)


def _parse_version_2(data: bytes) -> ProxyHeader | None:
    if len(data) < VERSION_2.size:
        return None
    _, command, family, length = VERSION_2.unpack_from(data)
    if command not in (0x20, 0x21) or length > LONGEST_VERSION_2:
        raise BadProxyHeader(f"a PROXY header of command {command:#x} and {length} bytes")
    whole = VERSION_2.size + length
    layout = {0x11: IPV4_PORTS, 0x21: IPV6_PORTS}.get(family)
    if command == 0x20 or layout is None:
        return ProxyHeader(whole) if len(data) >= whole else None
    if length < layout.size:
        raise BadProxyHeader(f"a PROXY header of {length} bytes, too short for its addresses")
    if len(data) < whole:
        return None
    source, destination, source_port, destination_port = layout.unpack_from(data, VERSION_2.size)
    return ProxyHeader(
        whole,
        Endpoint(str(ipaddress.ip_address(source)), source_port),
        Endpoint(str(ipaddress.ip_address(destination)), destination_port),
    )
