"""Delay levels: how long a broker keeps a message of each level, as its `messageDelayLevel` says.

The due time of a message of the schedule topic is in its queue unit, not in the log, so a rebuild needs the text.
"""

import re
from typing import Final

from protocol.errors import ConfigError, quote

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_LEVEL: Final = re.compile(r"([+-]?[0-9]{1,19})([smhd])")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LARGEST_MS: Final = (1 << 63) - 1


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of level 1, level 2 and so on.

    As a broker parses it: a number and a unit (s, m, h, d) for each level, single spaces between them. Raises
    ConfigError, naming the level, for a text with which a broker would not start, or not as was meant.
    """
    # Java's split drops empty pieces at the end only.
    items = text.rstrip(" ").split(" ")
    return tuple(_milliseconds(level, item, text) for level, item in enumerate(items, 1))


def _milliseconds(level: int, item: str, text: str) -> int:
    found = _LEVEL.fullmatch(item)
    milliseconds = int(found[1]) * _UNIT_MS[found[2]] if found else -1
    if not 0 <= milliseconds <= _LARGEST_MS:
        expected = "a number and one of s, m, h, d, such as 30s, single spaces between levels"
        raise ConfigError(f"delay levels {quote(text)}: level {level} is {quote(item)}, expected {expected}")
    return milliseconds
