"""Say of one answer how much of it a mask hid whole, because a pattern did not come to an end: in a warning."""

import sys
import warnings
from types import FrameType
from typing import Final

from rocketlens.own_packages import PACKAGES
from storage.patterns.mask import BoundedMask, hidden_sentence

OURS: Final = {__package__, *PACKAGES}


class Hiding:
    """The mask of one answer, and what is said of it."""

    def __init__(self, mask: BoundedMask, *, warns: bool) -> None:
        """Without `warns` somebody else says it, as a command does of all that it shows."""
        self.mask = mask.for_one_run()
        self._warns, self._said = warns, 0

    def warn(self) -> None:
        """Warn of what was hidden since the last time; the warning names the line that asked this package."""
        count = self.mask.hidden_whole - self._said
        self._said += count
        if count and self._warns:
            warnings.warn(hidden_sentence(count), stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """How many calls up from the one that warns the first is that is none of ours."""
    level = 1
    above: FrameType | None = sys._getframe(1)
    while above is not None and above.f_globals["__name__"].partition(".")[0] in OURS:
        level, above = level + 1, above.f_back
    return level
