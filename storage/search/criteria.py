"""What a search looks for: conditions on a message that must all hold."""

import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from storage.files.mapped_file import LARGEST_OFFSET


class SearchPlace(Enum):
    """Where bytes and regular expressions are looked for."""

    BODY = "body"
    """The body, decompressed."""
    PROPERTIES = "properties"
    """The values of the properties, keys and tag among them; not their names."""
    ANY = "any"
    """Both."""


EARLIEST: Final = -LARGEST_OFFSET - 1
"""Before all times, those of damaged records too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """Conditions that must all hold; those that are None, or as wide as by default, hold for every message.

    ``topic`` is the one that a message is stored under. ``begin_timestamp`` ≤ store time ≤ ``end_timestamp`` in ms.
    ``contains`` are bytes (of a text its UTF-8), ``regex`` a Python regular expression over the text of a body or of
    one property value, bytes that are no UTF-8 being U+FFFD; ``place`` says where both are looked for. ``json_path``
    is ``EXPR=VALUE`` (:mod:`storage.search.json_path`), ``where`` SQL92 over the properties. ``tag`` is compared
    whole; ``key`` is one of the business keys or the unique key, ``key_prefix`` the start of one. ``born_host`` is an
    address, with a port or without, or a network (``10.1.0.0/16``). Sizes are bytes of the decompressed body.
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

    @property
    def digest(self) -> bytes:
        """Tells these criteria from others, in eight bytes: a cursor belongs to one search."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).digest()[:8]
