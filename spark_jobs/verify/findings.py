"""What a verification finds: which place of which file, what should be there, and what is."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

RECORD: Final = "record"
"""Bytes of the log that hold no intact record, or no file at all."""
QUEUE_OFFSET: Final = "queue-offset"
"""A record's queue offset does not follow those of the records before it in its queue."""
FILE: Final = "file"
"""A file that is not what lies at such a place: unreadable, or of the wrong length."""
UNIT: Final = "unit"
"""A queue unit whose bytes are not those of the message in its place."""
MISSING_UNIT: Final = "missing-unit"
STRAY_UNIT: Final = "stray-unit"
"""A queue unit that points to no message of its queue."""
SHIFTED_UNIT: Final = "shifted-unit"
"""From this unit on, units do not stand at the queue offsets of their messages."""
EXT_UNIT: Final = "ext-unit"
"""A ConsumeQueueExt unit that is none, or not that of its message."""
HEADER: Final = "header"
SLOT: Final = "slot"
ENTRY: Final = "entry"
MISSING_ENTRY: Final = "missing-entry"
"""Keys of the log that no index file has, or not the one that holds the entries around them."""
REPEATED_ENTRY: Final = "repeated-entry"

LIMIT: Final = 10_000
"""Discrepancies of one kind that are listed of one file; more are counted."""

TOTAL_LIMIT: Final = 100_000
"""Discrepancies that are listed in all."""

FINDINGS: Final = "findings"
"""The kind of file in which a task leaves what it found."""


class Discrepancy(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that is wrong. `place` names it inside `path`, `position` is its byte there, −1 for none.

    `physical_offset` is that of the record in question, −1 where none is known. One finding may stand for `count`
    neighbouring things.
    """

    kind: str
    path: str
    place: str
    position: int
    physical_offset: int
    expected: str
    found: str
    count: int = 1

    def sentence(self) -> str:
        """For a person."""
        where = f"{self.path}, {self.place}" if self.place else self.path
        if self.position >= 0:
            where += f" (byte {self.position})"
        if self.physical_offset >= 0:
            where += f", physical offset {self.physical_offset}"
        return f"{where}: expected {self.expected}, found {self.found}"


class FoundAt(NamedTuple):
    """The fields of a finding that say where it is."""

    path: str | Path
    place: str = ""
    position: int = -1
    physical_offset: int = -1


def field_position(dtype: np.dtype[Any], field: str) -> int:
    """Where a field begins in a record, or with no name the record itself."""
    return int(dtype.fields[field][1]) if field and dtype.fields else 0


class Discrepancies:
    """Discrepancies as they come: listed up to a limit for each kind and file, counted beyond."""

    def __init__(self, limit: int = LIMIT, named: Callable[[str], str] = str) -> None:
        """Nothing is found yet; in texts that `named` gives, copies of files bear the names of the files themselves."""
        self._named = named
        self.listed: list[Discrepancy] = []
        self.counts: Counter[str] = Counter()
        self.limit = limit
        self._of_file: Counter[tuple[str, str]] = Counter()

    def add(self, kind: str, at: FoundAt, expected: object, found: object, count: int = 1) -> None:
        """Note what was found at a place."""
        place = self._named(str(at.path)), at.place, at.position, at.physical_offset
        finding = Discrepancy(kind, *place, self._named(str(expected)), self._named(str(found)), count)
        self.counts[kind] += 1
        self._of_file[kind, finding.path] += 1
        if self._of_file[kind, finding.path] <= self.limit:
            self.listed.append(finding)

    def more(self, kind: str, count: int) -> None:
        """Count some that are not listed."""
        self.counts[kind] += count

    def save(self, path: Path) -> dict[str, int]:
        """Write them to a file of the work directory; their numbers by kind."""
        path.write_bytes(msgspec.msgpack.encode(self.listed))
        return dict(self.counts)


def load_findings(path: Path) -> list[Discrepancy]:
    """Load what :meth:`Discrepancies.save` wrote."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Discrepancy])
