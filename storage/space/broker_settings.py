"""What a broker's configuration says about when it deletes segments; lines of Java properties.

A name ends at the first `=`, `:` or white space; escapes and lines that go on are not known.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import ConfigError, quote
from storage.files.mapped_file import read_piece

RESERVED: Final = "fileReservedTime"
MOST_USED: Final = "diskMaxUsedSpaceRatio"
DEFAULT_RESERVED_HOURS: Final = 72
DEFAULT_MOST_USED: Final = 75
LONGEST_FILE: Final = 1 << 20
_PROPERTY: Final = re.compile(r"([^=:\s]*)(\s*[=:]\s*|\s*)(.*)", re.DOTALL)
_LONGEST: Final = {RESERVED: 1_000_000, MOST_USED: 100}


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Segments older than `reserved_hours` are deleted, and the oldest ones while more of the disk is used than a
    `most_used` share, in percent. Those that are `assumed` were not said.
    """

    reserved_hours: int = DEFAULT_RESERVED_HOURS
    most_used: int = DEFAULT_MOST_USED
    assumed: frozenset[str] = frozenset(_LONGEST)

    @property
    def said(self) -> dict[str, int]:
        """The settings that are not assumed, by their names in a broker.conf."""
        values = {RESERVED: self.reserved_hours, MOST_USED: self.most_used}
        return {name: value for name, value in values.items() if name not in self.assumed}


def settings_of(said: Mapping[str, int]) -> BrokerSettings:
    """What a broker makes of the settings that are said; it counts a share below 10 % as 10 %, one above 95 % as 95 %.

    Raises ConfigError for a number that is too large.
    """
    for name, value in said.items():
        if not 0 <= value <= _LONGEST[name]:
            raise ConfigError(f"{name} is {value}, expected a number up to {_LONGEST[name]}")
    most_used = min(max(said.get(MOST_USED, DEFAULT_MOST_USED), 10), 95)
    reserved = said.get(RESERVED, DEFAULT_RESERVED_HOURS)
    return BrokerSettings(reserved, most_used, frozenset(_LONGEST) - said.keys())


def read_broker_settings(path: Path) -> BrokerSettings:
    """The settings in a broker.conf; what it does not say is a broker's default.

    Raises ConfigError for a value that is no number, and StoreError where the file cannot be read.
    """
    text = read_piece(path, 0, LONGEST_FILE).decode("utf-8", "replace")
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, separator, value = _PROPERTY.fullmatch(line.strip()).groups()  # type: ignore[union-attr]  # any line
        if not separator or name.startswith(("#", "!")) or name not in _LONGEST:
            continue
        if not value.isascii() or not value.isdigit() or len(value) > 9 or int(value) > _LONGEST[name]:
            raise ConfigError(f"{path}: {name} is {quote(value)}, expected a number up to {_LONGEST[name]}")
        found[name] = int(value)
    return settings_of(found)
