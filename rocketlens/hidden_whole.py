"""Say of one answer how much of it a mask hid whole, because a pattern did not come to an end: in a warning."""

import warnings

from storage.patterns.mask import BoundedMask, hidden_sentence


class Hiding:
    """The mask of one answer, and what is said of it."""

    def __init__(self, mask: BoundedMask, *, warns: bool) -> None:
        """Without `warns` somebody else says it, as a command does of all that it shows."""
        self.mask = mask.for_one_run()
        self._warns, self._said = warns, 0

    def warn(self, level: int = 3) -> None:
        """Warn of what was hidden since the last time; the warning names the line `level` calls up from here."""
        count = self.mask.hidden_whole - self._said
        self._said += count
        if count and self._warns:
            warnings.warn(hidden_sentence(count), stacklevel=level)
