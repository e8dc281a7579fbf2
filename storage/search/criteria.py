"""What a search looks for: conditions on a message that must all hold."""

import hashlib
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from protocol.errors import ConfigError
from storage.files.mapped_file import LARGEST_OFFSET


class SearchPlace(Enum):
    """Where bytes and regular expressions are looked for."""

    BODY = "body"
    """The body, decompressed."""
    PROPERTIES = "properties"
    """The values of the properties, keys and tag among them; not their names."""
    ANY = "any"
    """Both."""


_SIZE: Final = re.compile(r"([0-9]{1,15})([kKMG]?)")
_UNITS: Final = {"": 1, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

EARLIEST: Final = -LARGEST_OFFSET - 1
"""Before all times, those of damaged records too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """Conditions that must all hold; those that are None, or as wide as by default, hold for every message.

    ``topic`` is the one that a message is stored under, or a light one that it is in. ``begin_timestamp`` ≤ store time
    ≤ ``end_timestamp`` in ms.
    ``contains`` are bytes (of a text its UTF-8), ``regex`` a Python regular expression over the text of a body or of
    one property value, bytes that are no UTF-8 being U+FFFD; ``place`` says where both are looked for. ``json_path`` is
    ``EXPR=VALUE`` (:mod:`storage.patterns._json_path`), ``where`` SQL92 over the properties. ``tag`` is a tag
    subscription (``TagA || TagB``), of which tags are compared whole; ``key`` is one of the business keys or the unique
    key, ``key_prefix`` the start of one. ``born_host`` is an address, with a port or without, or a network
    (``10.1.0.0/16``). Sizes are bytes of the decompressed body.

    A body that an application has packed (:mod:`protocol.body_content`) is looked into both as it is and unpacked; its
    size is that of the packed one. ``charset`` is that of the bodies' text, None for UTF-8.

    ``masked`` are rules of what is hidden (:mod:`protocol.mask`): messages are found by what is left, and come so.
    """

    topic: str | None = None
    begin_timestamp: int = EARLIEST
    end_timestamp: int = LARGEST_OFFSET
    contains: bytes | None = None
    place: SearchPlace = SearchPlace.BODY
    regex: str | None = None
    json_path: str | None = None
    where: str | None = None
    tag: str | None = None
    key: str | None = None
    key_prefix: str | None = None
    born_host: str | None = None
    minimum_size: int = 0
    maximum_size: int | None = None
    charset: str | None = None
    masked: tuple[str, ...] = ()

    @property
    def digest(self) -> bytes:
        """Eight bytes that distinguish these criteria from others: a cursor belongs to one search."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).digest()[:8]


def parse_size_range(text: str) -> tuple[int, int | None]:
    """Smallest and largest number of bytes in ``512``, ``1k..64k``, ``..2M`` or ``100..``, None for no largest.

    Raises ConfigError for what is no range.
    """
    first, dots, last = text.partition("..")
    if not dots:
        return _size(text), _size(text)
    if not first and not last:
        raise ConfigError(f"{text!r} has no size on either side")
    smallest, largest = _size(first) if first else 0, _size(last) if last else None
    if largest is not None and largest < smallest:
        raise ConfigError(f"{text!r}: the first size is above the last")
    return smallest, largest


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text!r} is no size: expected bytes, k, M or G, as in 512, 1k..64k, ..2M or 100..")
    return int(found[1]) * _UNITS[found[2]]
