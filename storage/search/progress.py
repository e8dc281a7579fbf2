"""How far a search has come."""

from dataclasses import dataclass
from typing import Final

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Progress:
    """``searched_bytes`` of ``total_bytes`` of log; ``before_bytes`` of them in front of the cursor, by others.

    ``found`` counts the messages of this search, ``seconds`` is how long it has taken so far.
    """

    searched_bytes: int
    total_bytes: int
    found: int
    seconds: float
    before_bytes: int = 0

    @property
    def rate(self) -> float:
        """Bytes a second; 0 before the first are through."""
        return (self.searched_bytes - self.before_bytes) / self.seconds if self.seconds > 0 else 0.0

    @property
    def remaining_seconds(self) -> float | None:
        """How long the rest will take at this rate, None where nothing tells."""
        rate = self.rate
        return (self.total_bytes - self.searched_bytes) / rate if rate > 0 else None

    def sentence(self) -> str:
        """For people, as one clause."""
        share = 100 * self.searched_bytes // self.total_bytes if self.total_bytes else 100
        told = f"searched {size_text(self.searched_bytes)} of {size_text(self.total_bytes)} ({share} %)"
        told += f", {self.found} found"
        remaining = self.remaining_seconds
        if remaining is None:
            return told
        rest = (
            f"in {self.seconds:.1f} s"
            if self.searched_bytes >= self.total_bytes
            else f"{duration_text(remaining)} left"
        )
        return f"{told}, {size_text(self.rate)}/s, {rest}"


def size_text(count: float) -> str:
    """Bytes with a unit of powers of a thousand."""
    number = 0
    while count >= 1000 and number < len(_UNITS) - 1:
        count, number = count / 1000, number + 1
    return f"{count:.0f} {_UNITS[number]}" if number == 0 or count >= 100 else f"{count:.1f} {_UNITS[number]}"


def duration_text(seconds: float) -> str:
    """Seconds, or minutes and seconds, or hours and minutes."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
