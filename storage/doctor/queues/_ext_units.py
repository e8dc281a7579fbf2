"""The extension units of one queue beside the messages that they belong to (store-format §5.7).

Bitmaps follow from the filters that were registered once, not from the log; all else of a unit is checked.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from storage.build.queue_ext_builder import END_MARKER
from storage.doctor.log.scanned_log import Numbers
from storage.doctor.queues.unit_files import UnitFiles, Units
from storage.doctor.words import field_position
from storage.queue.consume_queue_ext import ADDRESS_BASE, HEAD, HEAD_DTYPE

BYTE_DTYPE: Final = np.dtype([("byte", "u1")])
FIELDS: Final = ("size", "tags_code", "store_timestamp")
"""Of a unit's head, what follows from the message, its size apart from the bitmap's."""
AT_ONCE: Final = 1 << 12
WINDOW: Final = 1 << 22
FARTHEST: Final = 1 << 62


class WrongExt(NamedTuple):
    """One thing that is wrong: `number` of the message among those asked about, and where the field lies.

    Without a field it is the tags code of the plain unit: its extension unit is there, elsewhere.
    """

    number: int
    field: str
    path: Path
    position: int
    expected: int
    found: int


class ExtUnits:
    """The extension files of a queue's directory, asked about in the order of the queue."""

    def __init__(self, directory: Path) -> None:
        """List the files; a missing directory has none."""
        self.files = UnitFiles(directory, BYTE_DTYPE, "bytes")
        self._next = self.files.first

    def check(self, addresses: Numbers, tags_codes: Numbers, timestamps: Numbers) -> Iterator[WrongExt]:
        """Compare units, found by their addresses (tags codes of plain units), with what they should hold."""
        for start in range(0, len(addresses), AT_ONCE):
            chosen = slice(start, start + AT_ONCE)
            positions = np.minimum(addresses[chosen] - ADDRESS_BASE, FARTHEST)
            yield from self._check_some(start, positions, tags_codes[chosen], timestamps[chosen])

    def _check_some(
        self, start: int, positions: Numbers, tags_codes: Numbers, timestamps: Numbers
    ) -> Iterator[WrongExt]:
        heads = self._heads(positions)
        should = dict(zip(FIELDS, (_sizes(heads), tags_codes, timestamps), strict=True))
        wrong = {field: heads[field] != values for field, values in should.items()}
        ends = positions + should["size"]
        follows = positions == np.concatenate([[self._next], ends[:-1]])
        judged = -1
        for i in np.flatnonzero(~follows | np.logical_or.reduce(list(wrong.values()))).tolist():
            # Behind a unit whose true place is another one, others follow that.
            at = self._next if i in (0, judged + 1) else int(ends[i - 1])
            fields = {field: int(should[field][i]) for field, flags in wrong.items() if flags[i]}
            self._next, judged = int(ends[i]), i
            yield from self._check(start + i, int(positions[i]), at, fields, heads[i], (tags_codes[i], timestamps[i]))
        if judged + 1 < len(positions):
            self._next = int(ends[-1])

    def _check(
        self, number: int, position: int, at: int, fields: dict[str, int], head: np.void, wanted: tuple[int, int]
    ) -> Iterator[WrongExt]:
        """Check a unit that does not stand where the one before it ends (`at`), or has other fields than it should."""
        behind = self.files.next_start(at)
        for place in (at, behind) if fields else ():
            if place is not None and place != position:
                there = self._heads(np.array([place]))
                size = int(_sizes(there)[0])
                if there.tolist()[0][:3] == (size, *wanted):
                    self._next = place + size
                    yield WrongExt(number, "", self.files.directory, -1, ADDRESS_BASE + place, ADDRESS_BASE + position)
                    return
        marker = bytes(self.files.read(at, len(END_MARKER)).view(np.uint8)) if position == behind else END_MARKER
        if marker != END_MARKER:
            path, byte = self.files.where(at)
            found = int.from_bytes(marker, "big", signed=True)
            yield WrongExt(number, "end marker before it", path, byte, -1, found)
        if len(fields) == len(FIELDS) or (len(fields) > 1 and head["size"] < HEAD.size):
            yield WrongExt(number, "unit", *self.files.where(position), 1, 0)
            return
        for field, expected in fields.items():
            path, byte = self.files.where(position + field_position(HEAD_DTYPE, field))
            yield WrongExt(number, field, path, byte, expected, int(head[field]))

    def _heads(self, positions: Numbers) -> Units:
        """The heads of units; those that lie together are read at once."""
        first, last = int(positions.min()), int(positions.max())
        if last - first > WINDOW:
            return np.concatenate([self._heads(positions[i : i + 1]) for i in range(len(positions))])
        data = self.files.read(first, last - first + HEAD.size).view(np.uint8)
        heads = np.ascontiguousarray(data[(positions - first)[:, None] + np.arange(HEAD.size)])
        found: Units = heads.view(HEAD_DTYPE).reshape(-1)
        return found


def _sizes(heads: Units) -> Numbers:
    """Sizes of units as those of their bitmaps imply."""
    sizes: Numbers = HEAD.size + np.maximum(heads["bitmap_size"].astype(np.int64), 0)
    return sizes
