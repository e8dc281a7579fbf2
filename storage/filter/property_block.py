"""The properties of a stored message as a mapping that reads only those it is asked for.

A filter names two or three of the ten properties that a message has; finding those in the block's bytes is several
times faster than splitting and decoding all of them.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, TypeVar, overload

from protocol.java_hash import decode_java
from protocol.properties import NAME_SEPARATOR, PROPERTY_SEPARATOR, parse_properties, property_value

T = TypeVar("T")

MOST_SEARCHES: Final = 8
"""Properties that are searched for one by one; for more, one pass over the block is less work than many searches."""
_KEPT: Final = 256


class PropertyBlock(Mapping[str, str]):
    """Equal to `parse_properties(block)`, which see; `block` is copied. Not to be shared between threads."""

    __slots__ = ("_block", "_parsed", "_searches")

    def __init__(self, block: bytes | memoryview) -> None:
        # The first property, too, stands behind a separator then.
        self._block = PROPERTY_SEPARATOR + block
        self._searches = 0
        self._parsed: dict[str, str] | None = None

    @overload
    def get(self, name: str, /) -> str | None: ...

    @overload
    def get(self, name: str, default: str | T, /) -> str | T: ...

    def get(self, name: str, default: object = None, /) -> object:
        """The value of one property, or `default`."""
        needle = _needle(name)
        if self._parsed is not None or self._searches == MOST_SEARCHES or needle is None:
            return self._all().get(name, default)
        self._searches += 1
        block = self._block
        position = block.rfind(needle)  # the last of equal names wins
        if position < 0:
            return default
        start = position + len(needle)
        end = block.find(PROPERTY_SEPARATOR, start)
        value = block[start:end] if end >= 0 else block[start:]
        if not value:  # dropped, and one before it may count
            return property_value(block, name) or default
        return value.decode() if value.isascii() else decode_java(value)

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"PropertyBlock({self._all()!r})"

    def _all(self) -> dict[str, str]:
        if self._parsed is None:
            self._parsed = parse_properties(self._block)
        return self._parsed


@lru_cache(_KEPT)
def _needle(name: str) -> bytes | None:
    """What stands before a property's value; None for a name that cannot be searched for, or not by these bytes."""
    is_plain = name.isascii() and name.isprintable() and name != ""
    return PROPERTY_SEPARATOR + name.encode() + NAME_SEPARATOR if is_plain else None
