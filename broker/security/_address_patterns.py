"""IP addresses as white lists of RocketMQ's plain_acl.yml write them.

`192.168.0.1`, several joined by commas, `192.168.0.{1,2,3}` for the last part, `192.168.*.*` and `192.168.1-9.*` for
any part, IPv6 addresses with all their eight parts likewise, `*` for everybody. A network like `10.0.0.0/8` is taken
too. Source: RemoteAddressStrategyFactory of rocketmq-acl 4.9.8, whose answers are the test's.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import TypeAlias

from protocol.errors import ConfigError

Matches: TypeAlias = "Callable[[str], bool]"

EVERYBODY = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")


def parse_address_pattern(text: str) -> Matches:
    """Return a function that says whether an IP address is in the pattern; a blank pattern matches nothing.

    Raises `ConfigError`, so that a mistake in a white list is seen and opens no door.
    """
    text = text.strip()
    if not text:
        return lambda _host: False
    if text in EVERYBODY:
        return lambda _host: True
    try:
        return _parse(text)
    except ValueError as error:
        raise ConfigError(f"white list: {text!r} is not an IP address or a pattern of addresses ({error})") from error


def _parse(text: str) -> Matches:
    if text.endswith("}"):
        front, brace, last = text[:-1].rpartition("{")
        if not brace or not front.endswith((".", ":")):
            raise ValueError("braces are possible only in the last part")
        return _one_of([front + part.strip() for part in last.split(",")])
    if "," in text:
        return _one_of([part.strip() for part in text.split(",")])
    if "/" in text:
        network = ipaddress.ip_network(text)
        return lambda host: ipaddress.ip_address(host) in network
    if "*" in text or "-" in text:
        return _ranges(text)
    return _one_of([text])


def _one_of(texts: list[str]) -> Matches:
    addresses = frozenset(map(ipaddress.ip_address, texts))
    return lambda host: ipaddress.ip_address(host) in addresses


def _ranges(text: str) -> Matches:
    """A range for each part of an address: all of it, one value, or a lowest and a highest."""
    separator, count, base = (":", 8, 16) if ":" in text else (".", 4, 10)
    parts = text.split(separator)
    if len(parts) != count:
        raise ValueError(f"expected {count} parts")
    limits = [_range(part, base) for part in parts]

    def matches(host: str) -> bool:
        address = ipaddress.ip_address(host)
        if address.version != (6 if base == 16 else 4):
            return False
        values = address.exploded.split(separator)
        return all(low <= int(value, base) <= high for value, (low, high) in zip(values, limits, strict=True))

    return matches


def _range(part: str, base: int) -> tuple[int, int]:
    largest = 255 if base == 10 else 0xFFFF
    if part == "*":
        return 0, largest
    found = re.fullmatch(r"([0-9a-fA-F]{1,4})(?:-([0-9a-fA-F]{1,4}))?", part)
    if found is None:
        raise ValueError(f"part {part!r}")
    low = int(found[1], base)
    high = int(found[2], base) if found[2] else low
    if not low <= high <= largest:
        raise ValueError(f"part {part!r}")
    return low, high
