"""PROXY headers of both versions, over any split, and what is none."""

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.endpoint import Endpoint
from broker.net._proxy_protocol import LONGEST_VERSION_2, SIGNATURE, BadProxyHeader, parse_proxy_header


def version_2(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(rest)) + rest


V4 = ipaddress.ip_address("192.0.2.7").packed + ipaddress.ip_address("198.51.100.1").packed
V6 = ipaddress.ip_address("2001:db8::7").packed + ipaddress.ip_address("2001:db8::1").packed
PORTS = struct.pack(">HH", 56324, 10911)
TLV = bytes([3, 0, 4]) + b"crc!"

HEADERS = [
    (b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 10911\r\n", ("192.0.2.7", 56324), ("198.51.100.1", 10911)),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 10911\r\n", ("2001:db8::7", 56324), ("2001:db8::1", 10911)),
    (b"PROXY UNKNOWN\r\n", None, None),
    (b"PROXY UNKNOWN ffff:f...f ffff 65535 65535\r\n", None, None),
    (version_2(0x21, 0x11, V4 + PORTS), ("192.0.2.7", 56324), ("198.51.100.1", 10911)),
    (version_2(0x21, 0x11, V4 + PORTS + TLV), ("192.0.2.7", 56324), ("198.51.100.1", 10911)),
    (version_2(0x21, 0x21, V6 + PORTS), ("2001:db8::7", 56324), ("2001:db8::1", 10911)),
    (version_2(0x20, 0x00, b""), None, None),
    (version_2(0x20, 0x11, V4 + PORTS), None, None),
    (version_2(0x21, 0x31, bytes(216)), None, None),
    (version_2(0x21, 0x31, bytes(LONGEST_VERSION_2)), None, None),
]


@pytest.mark.parametrize(("header", "source", "destination"), HEADERS)
def test_a_header_is_read_to_its_end_and_no_further(
    header: bytes, source: tuple[str, int] | None, destination: tuple[str, int] | None
) -> None:
    expected = (len(header), source and Endpoint(*source), destination and Endpoint(*destination))
    for behind in (b"", b"\0\0\1\2", b"\x16\x03\x01", b"PROXY TCP4"):
        assert parse_proxy_header(header + behind) == expected
    for length in range(1, len(header)):
        assert parse_proxy_header(header[:length]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\1\2",
        b"\x16\x03\x01",
        b"POST / HTTP/1.1\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 109111\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 10911\r\n",
        b"PROXY TCP4 2001:db8::7 198.51.100.1 56324 10911\r\n",
        b"PROXY TCP5 192.0.2.7 198.51.100.1 56324 10911\r\n",
        b"PROXY \xff\r\n",
        b"PROXY " + b"x" * 200,
        b"\r\n\r\nx",
        SIGNATURE + b"\x11\x11\0\x0c" + V4 + PORTS,
        version_2(0x22, 0x11, V4 + PORTS),
        version_2(0x21, 0x11, b"short"),
        version_2(0x21, 0x31, bytes(LONGEST_VERSION_2 + 1)),
    ],
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(BadProxyHeader):
        parse_proxy_header(data)


@given(st.binary(max_size=300), st.sampled_from([b"", b"PROXY ", SIGNATURE, SIGNATURE + b"\x21\x11"]))
def test_any_bytes_are_a_header_or_its_beginning_or_refused(data: bytes, front: bytes) -> None:
    try:
        header = parse_proxy_header(front + data) if front + data else None
    except BadProxyHeader:
        return
    assert header is None or 0 < header.length <= len(front + data)
