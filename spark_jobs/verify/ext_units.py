"""The extension units of one queue beside the messages that they belong to (store-format §5.7).

Bitmaps follow from the filters that were registered once, not from the log; all else of a unit is checked.
"""

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from spark_jobs.verify.unit_files import UnitFiles, Units
from storage.build.queue_ext_builder import END_MARKER
from storage.queue.consume_queue_ext import ADDRESS_BASE, HEAD, HEAD_DTYPE

BYTE_DTYPE: Final = np.dtype([("byte", "u1")])
ADDRESS: Final = "address"
UNIT_FIELD: Final = "unit"
FIELD_PLACES: Final = {UNIT_FIELD: 0, "size": 0, "tags_code": 2, "store_timestamp": 10}
WINDOW: Final = 1 << 22
FARTHEST: Final = 1 << 62

Numbers = npt.NDArray[np.int64]


class WrongExt(NamedTuple):
    """One thing that is wrong: `number` of the message among those asked about, and where the field lies.

    The field ADDRESS is the plain unit's: its extension unit is there, elsewhere; expected and found are tags codes.
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

    def check(self, addresses: Numbers, tags_codes: Numbers, timestamps: Numbers) -> list[WrongExt]:
        """Hold units, by their addresses (tags codes of plain units), against what they should say."""
        positions = np.minimum(addresses - ADDRESS_BASE, FARTHEST)
        expected = np.zeros(len(positions), HEAD_DTYPE)
        expected["tags_code"], expected["store_timestamp"] = tags_codes, timestamps
        wrong: list[WrongExt] = []
        start = 0
        while start < len(positions):
            stop = start + self._span(positions[start:])
            wrong += self._check_span(start, positions[start:stop], expected[start:stop])
            start = stop
        return wrong

    def _span(self, positions: Numbers) -> int:
        """How many of the units, in their order, lie within one window."""
        far = np.flatnonzero((positions < positions[0]) | (positions >= positions[0] + WINDOW))
        return int(far[0]) if far.size else len(positions)

    def _check_span(self, number: int, positions: Numbers, expected: Units) -> list[WrongExt]:
        first = int(positions[0])
        data = self.files.read(first, int(positions.max()) - first + HEAD.size).view(np.uint8)
        heads = np.ascontiguousarray(data[(positions - first)[:, None] + np.arange(HEAD.size)])
        heads = heads.view(HEAD_DTYPE).reshape(-1)
        sizes = HEAD.size + np.maximum(heads["bitmap_size"].astype(np.int64), 0)
        wrong_fields = {
            "size": heads["size"] != sizes,
            "tags_code": heads["tags_code"] != expected["tags_code"],
            "store_timestamp": heads["store_timestamp"] != expected["store_timestamp"],
        }
        ends = positions + sizes
        follow = first == self._next and bool((positions[1:] == ends[:-1]).all())
        if follow and not np.any(list(wrong_fields.values())):
            self._next = int(ends[-1])
            return []
        wrong: list[WrongExt] = []
        for i, position in enumerate(positions.tolist()):
            fields = [name for name, flags in wrong_fields.items() if flags[i]]
            if not fields and position == self._next:
                self._next = position + int(sizes[i])
            else:
                wrong += self._judge(number + i, position, fields, expected[i], heads[i])
        return wrong

    def _judge(self, number: int, position: int, fields: list[str], expected: np.void, head: np.void) -> list[WrongExt]:
        """Judge a unit that does not follow the one before it, or has other fields than it should."""
        behind = self.files.next_start(self._next)
        for place in (self._next, *([behind] if behind is not None else [])):
            if fields and place != position and self._fits(place, expected):
                self._next = place + self._size_at(place)
                codes = ADDRESS_BASE + place, ADDRESS_BASE + position
                return [WrongExt(number, ADDRESS, self.files.directory, -1, *codes)]
        wrong = self._check_end(number, position, behind)
        if len(fields) == len(FIELD_PLACES) - 1 or (len(fields) > 1 and head["size"] < HEAD.size):
            return [*wrong, self._wrong(number, UNIT_FIELD, position, 1, 0)]
        if not fields or "size" not in fields:
            self._next = position + int(head["size"])
        elif position == self._next:
            self._next = position + HEAD.size + max(int(head["bitmap_size"]), 0)
        size = HEAD.size + max(int(head["bitmap_size"]), 0)
        should = {"size": size, "tags_code": int(expected["tags_code"])}
        should["store_timestamp"] = int(expected["store_timestamp"])
        return wrong + [self._wrong(number, name, position, should[name], int(head[name])) for name in fields]

    def _fits(self, position: int, expected: np.void) -> bool:
        """Whether the unit at a position is that of a message."""
        head = self.files.read(position, HEAD.size).view(np.uint8).view(HEAD_DTYPE)[0]
        is_unit = head["size"] == HEAD.size + max(int(head["bitmap_size"]), 0)
        same = head["tags_code"] == expected["tags_code"] and head["store_timestamp"] == expected["store_timestamp"]
        return bool(is_unit and same)

    def _size_at(self, position: int) -> int:
        return int(self.files.read(position, HEAD.size).view(np.uint8).view(HEAD_DTYPE)[0]["size"])

    def _check_end(self, number: int, position: int, behind: int | None) -> list[WrongExt]:
        """Behind the last unit of a file stands the end marker."""
        end = self._next
        marker = bytes(self.files.read(end, len(END_MARKER)).view(np.uint8))
        if position != behind or marker == END_MARKER:
            return []
        return [self._wrong(number, "end marker before it", end, -1, int.from_bytes(marker, "big", signed=True))]

    def _wrong(self, number: int, field: str, position: int, expected: int, found: int) -> WrongExt:
        path, at = self.files.where(position + FIELD_PLACES.get(field, 0))
        return WrongExt(number, field, path, at, expected, found)
