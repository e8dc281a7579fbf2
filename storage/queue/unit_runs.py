"""Units of many queues that were derived from a stretch of the log, in one file or in memory of the same form.

A run holds the units of all queues that have messages in one stretch of the log, as they are in a queue's own files
(:mod:`storage.queue.unit_struct`), queue by queue. Behind the units stand three tables in the machine's byte order:

* rows: first queue offset, number of units, number of the first unit in the file. The units of a row have consecutive
  queue offsets; the rows of a queue are in the order of the log.
* queues, ascending by key: key, row and number of rows, place of the name. A key is the BLAKE2b of the name, 16 bytes,
  as two numbers; two queues with one key would need as many as 2^64 names that were made for it.
* the names themselves: topics as records have them.

How many of each there are is kept with the file by who keeps it. Runs of neighbouring stretches are merged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from storage.arrays import np, npt
from storage.files.mapped_file import MappedFile
from storage.queue.unit_struct import UNIT

ROW: Final = [("first", "i8"), ("count", "i8"), ("unit", "i8")]
ROW_BYTES: Final = 24
QUEUE: Final = [
    ("high", "u8"),
    ("low", "u8"),
    ("row", "i8"),
    ("rows", "i8"),
    ("name", "i8"),
    ("length", "i4"),
    ("queue_id", "i4"),
]
QUEUE_BYTES: Final = 48
KEY_BYTES: Final = 16
_KEY: Final = [("high", "u8"), ("low", "u8")]

Names = Sequence[tuple[bytes, int]]
"""Topics as records have them, and queue ids."""
Keys: TypeAlias = "npt.NDArray[np.void]"
Rows: TypeAlias = "npt.NDArray[np.void]"


def key_of(topic: bytes, queue_id: int) -> bytes:
    """The key of a queue: `KEY_BYTES`."""
    return blake2b(queue_id.to_bytes(4, "big", signed=True) + topic, digest_size=KEY_BYTES).digest()


class RunCounts(NamedTuple):
    """How many units, rows, queues and bytes of names a run has."""

    units: int
    rows: int
    queues: int
    names: int

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.units * UNIT.size + self.rows * ROW_BYTES + self.queues * QUEUE_BYTES + self.names


class Extent(NamedTuple):
    """Units of one queue with consecutive queue offsets, and where they lie in a run's file (bytes)."""

    first: int
    units: int
    position: int


@dataclass(frozen=True)
class UnitRun:
    """The units of what lies in [start, stop) of the log; ``file`` holds them as the module describes."""

    file: MappedFile
    counts: RunCounts
    start: int
    stop: int

    @classmethod
    def made(cls, parts: Sequence[RunPart], start: int, stop: int) -> UnitRun:
        """Make a run in memory of what was gathered, or of runs, in the order of the log."""
        content, counts = _merged(parts)
        descriptor = os.memfd_create("rocketlens-units", os.MFD_CLOEXEC)
        with open(descriptor, "wb", closefd=False) as file:
            for piece in content:
                file.write(piece)
        return cls(MappedFile(Path("units in memory"), descriptor), counts, start, stop)

    @property
    def part(self) -> RunPart:
        """The run as one part of another one."""
        units = np.frombuffer(self.file.view[: self.counts.units * UNIT.size], np.uint8)
        owners = np.repeat(np.arange(self.counts.queues), self._queues["rows"])
        return RunPart(units, self._rows, owners, self._keys, self.names())

    @property
    def size(self) -> int:
        """Bytes that the run takes."""
        return self.counts.size

    @cached_property
    def _queues(self) -> npt.NDArray[np.void]:
        at = self.counts.units * UNIT.size + self.counts.rows * ROW_BYTES
        return np.frombuffer(self.file.view, QUEUE, self.counts.queues, at)

    @cached_property
    def _rows(self) -> Rows:
        return np.frombuffer(self.file.view, ROW, self.counts.rows, self.counts.units * UNIT.size)

    @property
    def _keys(self) -> Keys:
        keys = np.empty(self.counts.queues, _KEY)
        keys["high"], keys["low"] = self._queues["high"], self._queues["low"]
        return keys

    def extents(self, key: bytes) -> list[Extent]:
        """The units of one queue, in the order of the log; none where the queue has none here."""
        ((high, low),) = np.frombuffer(key, _KEY).tolist()
        highs = self._queues["high"]
        at = int(np.searchsorted(highs, np.uint64(high)))
        while at < highs.size and int(highs[at]) == high:
            if int(self._queues["low"][at]) == low:
                row, rows = int(self._queues["row"][at]), int(self._queues["rows"][at])
                return [Extent(f, c, u * UNIT.size) for f, c, u in self._rows[row : row + rows].tolist()]
            at += 1
        return []

    def names(self) -> list[tuple[bytes, int]]:
        """All queues that have units here, by key."""
        blob = bytes(self.file.view[self.counts.size - self.counts.names : self.counts.size])
        columns = (self._queues[field].tolist() for field in ("name", "length", "queue_id"))
        return [(blob[name : name + length], queue_id) for name, length, queue_id in zip(*columns, strict=True)]

    def ends(self) -> Iterator[tuple[tuple[bytes, int], int]]:
        """Each queue, and the queue offset behind its last unit here."""
        last = self._rows[self._queues["row"] + self._queues["rows"] - 1]
        yield from zip(self.names(), (last["first"] + last["count"]).tolist(), strict=True)

    def is_sound(self) -> bool:
        """Whether tables and sizes fit one another, as far as reading them may not lead astray."""
        if self.file.size != self.counts.size or min(self.counts) < 0:
            return False
        queues, rows = self._queues, self._rows
        fits = (queues["row"] >= 0) & (queues["rows"] > 0) & (queues["row"] + queues["rows"] <= self.counts.rows)
        fits &= (queues["name"] >= 0) & (queues["length"] >= 0)
        fits &= queues["name"] + queues["length"] <= self.counts.names
        in_file = (rows["unit"] >= 0) & (rows["count"] > 0) & (rows["unit"] + rows["count"] <= self.counts.units)
        return bool(fits.all() and in_file.all() and (rows["first"] >= 0).all())


class RunPart(NamedTuple):
    """Units, in any order, with their rows; ``owners`` are the numbers of the rows' queues in `keys` and `names`."""

    units: npt.NDArray[np.uint8]
    rows: Rows
    owners: npt.NDArray[np.int64]
    keys: Keys
    names: Names


def keys_from(keys: Sequence[bytes]) -> Keys:
    """Keys as numbers."""
    return np.frombuffer(b"".join(keys), _KEY)


def _merged(parts: Sequence[RunPart]) -> tuple[list[bytes], RunCounts]:
    """Sort the units of parts, in the order of the log, by queue; the pieces of the file, and how many of each."""
    units = np.concatenate([part.units for part in parts]) if parts else np.empty(0, np.uint8)
    unit_starts = np.cumsum([0, *(part.units.size // UNIT.size for part in parts)])
    queue_starts = np.cumsum([0, *(part.keys.size for part in parts)])
    keys = np.concatenate([part.keys for part in parts]) if parts else np.empty(0, _KEY)
    names = [name for part in parts for name in part.names]
    # The same queue has one number in all parts: that of its key among all keys.
    order = np.lexsort((keys["low"], keys["high"]))
    sorted_keys = keys[order]
    is_new = np.ones(keys.size, bool)
    is_new[1:] = sorted_keys[1:] != sorted_keys[:-1]
    number_of = np.empty(keys.size, np.int64)
    number_of[order] = np.cumsum(is_new) - 1
    rows = np.concatenate([np.empty(0, ROW), *(part.rows for part in parts)])
    part_of = np.repeat(np.arange(len(parts)), [part.rows.size for part in parts])
    owners = np.concatenate([np.empty(0, np.int64), *(part.owners for part in parts)])
    owners = number_of[owners + queue_starts[part_of]]
    starts = rows["unit"] + unit_starts[part_of]
    by_queue = np.argsort(owners, kind="stable")
    owners, rows, starts = owners[by_queue], rows[by_queue], starts[by_queue]
    counts = rows["count"]
    places = np.cumsum(counts) - counts
    total = int(counts.sum())
    sources = np.repeat(starts - places, counts) + np.arange(total)
    sorted_units = units.view(f"V{UNIT.size}")[sources]
    goes_on = np.zeros(rows.size, bool)
    goes_on[1:] = (owners[1:] == owners[:-1]) & (rows["first"][1:] == rows["first"][:-1] + counts[:-1])
    heads = np.flatnonzero(~goes_on)
    joined = np.empty(heads.size, ROW)
    joined["first"], joined["unit"] = rows["first"][heads], places[heads]
    joined["count"] = np.add.reduceat(counts, heads) if heads.size else 0
    queues = np.empty(int(is_new.sum()), QUEUE)
    queues["high"], queues["low"] = sorted_keys["high"][is_new], sorted_keys["low"][is_new]
    row_starts = np.searchsorted(owners[heads], np.arange(queues.size + 1))
    queues["row"], queues["rows"] = row_starts[:-1], np.diff(row_starts)
    kept_names = [names[number] for number in order[is_new].tolist()]
    blob = b"".join(topic for topic, _ in kept_names)
    lengths = np.fromiter((len(topic) for topic, _ in kept_names), np.int64, queues.size)
    queues["name"], queues["length"] = np.cumsum(lengths) - lengths, lengths
    queues["queue_id"] = np.fromiter((queue_id for _, queue_id in kept_names), np.int64, queues.size)
    pieces = [sorted_units.tobytes(), joined.tobytes(), queues.tobytes(), blob]
    return pieces, RunCounts(total, joined.size, queues.size, len(blob))
