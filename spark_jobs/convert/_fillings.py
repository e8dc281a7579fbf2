"""Fillings: what copies of a store give to fill holes of its log, and the reasons why others do not fit."""

from collections.abc import Iterator

import msgspec

from spark_jobs.convert._first_shown import MOST_SHOWN, first_shown
from storage.amounts import bytes_text, counted
from storage.build.existing_queue import ReadableLog


class FilledHole(msgspec.Struct, frozen=True, rename="camel"):
    """A hole of the log whose bytes are in a copy, and how many messages they are."""

    physical_offset: int
    length: int
    messages: int
    copy: str

    def sentence(self) -> str:
        """For a person."""
        return (
            f"{bytes_text(self.length)} at physical offset {self.physical_offset}, "
            f"{counted(self.messages, 'message')}, from {self.copy}"
        )


class OpenHole(msgspec.Struct, frozen=True, rename="camel"):
    """A hole of the log for which no copy has bytes that fit, and why."""

    physical_offset: int
    length: int
    reasons: tuple[str, ...]

    def sentence(self) -> str:
        """For a person."""
        return f"{bytes_text(self.length)} at physical offset {self.physical_offset}: {'; '.join(self.reasons)}"


class Fillings(msgspec.Struct, frozen=True, rename="camel"):
    """What copies filled and what they did not, in the log's order; `unlisted` places of damage were not tried."""

    filled: tuple[FilledHole, ...] = ()
    open: tuple[OpenHole, ...] = ()
    unlisted: int = 0

    def sentences(self) -> Iterator[str]:
        """For a person; of many the first."""
        for what, holes in (("filled", self.filled), ("not filled", self.open)):
            yield from first_shown(what, [hole.sentence() for hole in holes], len(holes) - MOST_SHOWN, "place")
        if self.unlisted:
            yield f"not filled: {counted(self.unlisted, 'place')} more, beyond those that are listed"

    def left_of(self, log: ReadableLog) -> ReadableLog:
        """A log without the holes that were filled."""
        filled = {hole.physical_offset + hole.length for hole in self.filled}  # their starts may be earlier
        return ReadableLog(log.minimum, log.end, tuple(hole for hole in log.lost if hole[1] not in filled))
