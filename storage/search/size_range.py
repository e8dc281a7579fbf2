"""Sizes as people write them: ``512``, ``1k..64k``, ``..2M``, ``100..``."""

import re
from typing import Final

from protocol.errors import ConfigError

_SIZE: Final = re.compile(r"([0-9]{1,15})([kKMG]?)")
_UNITS: Final = {"": 1, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size_range(text: str) -> tuple[int, int | None]:
    """Smallest and largest number of bytes, None for no largest; raises ConfigError for what is no range."""
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
