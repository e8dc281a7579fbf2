"""What a search could not look at, or did not, collected while it runs and reported at its end."""

from dataclasses import dataclass, field
from typing import Final

from protocol.properties import BORN_HOST
from storage.search.chunk import Part

MOST_REPORTED: Final = 5
"""Places that are named one by one."""


@dataclass(slots=True)
class Remarks:
    """Ranges of damage, joined where they adjoin, and candidates that could not be decided; ascending."""

    damage: list[tuple[int, int]] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    by_proxy: int = 0
    """Messages that were found by the address of the proxy through which they came."""

    def add(self, part: Part) -> None:
        """Add the damage of a piece."""
        for start, stop in part.damage:
            self.add_damage(start, stop)
        self.refused += part.refused
        self.unreadable += part.unreadable

    def add_damage(self, start: int, stop: int) -> None:
        """Note a range without an intact record, behind those before."""
        if start >= stop:
            return
        if self.damage and self.damage[-1][1] >= start:
            self.damage[-1] = (self.damage[-1][0], max(stop, self.damage[-1][1]))
        else:
            self.damage.append((start, stop))

    def sentences(self) -> tuple[str, ...]:
        """One for each kind of thing."""
        texts = []
        if self.damage:
            lost = sum(stop - start for start, stop in self.damage)
            places = [f"{start} to {stop}" for start, stop in self.damage]
            texts.append(f"{lost} bytes of the log are damaged and hold no intact record: {_some(places)}")
        if self.refused:
            places = [str(offset) for offset in self.refused]
            texts.append(f"{_are_left_out('damaged record', 'that may match', len(places))}: {_some(places)}")
        if self.unreadable:
            places = [str(offset) for offset in self.unreadable]
            why = "whose body cannot be decompressed or taken apart, or holds a pattern up without end,"
            texts.append(f"{_are_left_out('record', why, len(places))}: {_some(places)}")
        if self.by_proxy:
            what = "1 message was" if self.by_proxy == 1 else f"{self.by_proxy} messages were"
            texts.append(f"{what} sent by other hosts through a proxy there: their property {BORN_HOST} names them")
        return tuple(texts)


def _are_left_out(one: str, why: str, count: int) -> str:
    return f"1 {one} {why} is left out" if count == 1 else f"{count} {one}s {why} are left out"


def _some(places: list[str]) -> str:
    """Where, at most five times."""
    more = len(places) - MOST_REPORTED
    return ", ".join(places[:MOST_REPORTED]) + (f" and {more} more" if more > 0 else "")
