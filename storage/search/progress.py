"""How far a search has come."""

from dataclasses import dataclass

from storage.amounts import clock_text, duration_text, rate_text, share_text


@dataclass(frozen=True, slots=True)
class ProgressReport:
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
        """Estimate how long the rest will take, None before the rate is known."""
        rate = self.rate
        return (self.total_bytes - self.searched_bytes) / rate if rate > 0 else None

    def and_then(self, other: "ProgressReport") -> "ProgressReport":
        """How far this search and one that followed it have come together."""
        return ProgressReport(
            self.searched_bytes + other.searched_bytes,
            self.total_bytes + other.total_bytes,
            self.found + other.found,
            self.seconds + other.seconds,
            self.before_bytes + other.before_bytes,
        )

    def sentence(self) -> str:
        """For people, as one clause."""
        share = 100 * self.searched_bytes // self.total_bytes if self.total_bytes else 100
        text = f"searched {share_text(self.searched_bytes, self.total_bytes, 'bytes')} ({share} %), {self.found} found"
        remaining = self.remaining_seconds
        if remaining is None:
            return text
        is_done = self.searched_bytes >= self.total_bytes
        rest = f"in {duration_text(self.seconds)}" if is_done else f"{clock_text(remaining)} left"
        return f"{text}, {rate_text(self.rate, 'bytes')}, {rest}"
