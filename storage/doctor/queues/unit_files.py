"""The units of one queue as its files hold them, by place: the number of a unit counted from the stream's beginning."""

import contextlib
import os
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError
from storage.doctor.finding import NOWHERE, FoundAt
from storage.doctor.words import Words, field_position, unit_name
from storage.files.mapped_file import list_segment_files, open_read_only
from storage.index.index_copy import data_extents
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE
from storage.queue.queue_files import UNITS_OF_BATCHES, UNITS_OF_PLAIN
from storage.queue.unit_standing import are_valid
from storage.ranges import Range, merge

_PIECE: Final = 1 << 16
READABLE: Final = "a file that can be read"

Units = npt.NDArray[np.void]

KINDS: Final = {
    CONSUME_QUEUE: (np.dtype(UNIT_DTYPE), UNITS_OF_PLAIN),
    BATCH_CONSUME_QUEUE: (np.dtype(BATCH_DTYPE), UNITS_OF_BATCHES),
}
"""What units of queues are, by the tree that has them, and what findings call them."""


class UnitFile(NamedTuple):
    """One file: the places [first, stop) of its units."""

    first: int
    stop: int
    path: Path


class FileFault(NamedTuple):
    """A file, or for one that is lost the directory; `is_lost`: units are in no file, or cannot be placed."""

    path: Path
    words: Words
    is_lost: bool
    position: int


class UnitFiles:
    """The files of one directory, read in pieces, never mapped; where there is no file, units read as zeros.

    A file that starts within a unit is left out. `sizes` are the bytes of every file, `foreign` what bears no name of
    one, `first` is the place of the first unit that a file has. `problems`: of a path and what was expected of it, what
    is there. Nothing is kept open.
    """

    def __init__(
        self, directory: Path, dtype: np.dtype[Any], named: str, fill: Callable[[Path], None] = lambda _: None
    ) -> None:
        """List the files; a missing directory has none. ``named`` is what findings call the units.

        ``fill`` is called with a file's path before it is read, where it may be hollow until then.
        """
        self.directory, self.dtype, self._named, self._fill_file = directory, dtype, named, fill
        self.problems: dict[tuple[Path, str], str] = {}
        self.files: list[UnitFile] = []
        self.foreign: list[Path] = []
        self._found: list[tuple[int, int, Path]] = []
        try:
            self._list()
        except StoreError as error:
            self.problems[directory, "a queue's directory"] = str(error)
        self.sizes = Counter(size for _, size, _ in self._found)
        self._starts = [file.first for file in self.files]
        self.first = self._starts[0] if self._starts else 0

    def _list(self) -> None:
        found, self.foreign = list_segment_files(self.directory)
        for start, path in found:
            with contextlib.suppress(OSError):  # a broker has just deleted it
                self._found.append((start, os.stat(path).st_size, path))
        unit = self.dtype.itemsize
        whole = [each for each in self._found if each[0] % unit == 0]
        stops = [start // unit for start, _, _ in whole[1:]]
        for (start, size, path), stop in zip(whole, [*stops, (1 << 63) // unit], strict=False):
            self.files.append(UnitFile(start // unit, min((start + size) // unit, stop), path))

    def faults(self, sizes: Counter[int] | None = None) -> Iterator[FileFault]:
        """Yield wrong sizes and starts of files, in order; `sizes` are of all that should be as long.

        The files of a broker all have one size, and each starts where the one before it ends, with a whole unit. An
        empty last one is no fault: a broker has just made it, or deletes it when it starts.
        """
        sizes, unit = sizes or self.sizes, self.dtype.itemsize
        usual = max(sizes, key=lambda size: (sizes[size], size % unit == 0, size), default=0)
        end = self._found[0][0] if self._found else 0
        is_last_empty = bool(self._found) and not self._found[-1][1]
        for start, size, path in self._found[: len(self._found) - is_last_empty]:
            if size != usual or size % unit:
                yield FileFault(path, Words(f"{usual} bytes, as other files have", f"{size} bytes"), False, size)
            if start % unit:
                words = Words("a file that starts with a whole unit", "one that starts inside a unit")
                yield FileFault(path, words, True, 0)
            elif start > end:
                lost = Words(f"a file that holds {self._named} {end // unit} to {start // unit - 1}", "none")
                yield FileFault(self.directory, lost, True, NOWHERE)
            elif start < end:
                words = Words(f"a file that starts at byte {end}", f"one that starts at {start}")
                yield FileFault(path, words, False, 0)
            end = start + size

    def read(self, place: int, count: int) -> Units:
        """Units from a place on, exactly `count`."""
        units = np.zeros(max(count, 0), self.dtype)
        number = max(bisect_right(self._starts, place) - 1, 0)
        for file in self.files[number:]:
            if file.first >= place + count:
                break
            start, stop = max(place, file.first), min(place + count, file.stop)
            if start < stop:
                self._fill(units[start - place : stop - place], file, start - file.first)
        return units

    def next_start(self, place: int) -> int | None:
        """Place of the first unit of the first file behind a place; None behind the last file's start."""
        number = bisect_right(self._starts, place)
        return self._starts[number] if number < len(self._starts) else None

    def found_at(self, place: int, physical_offset: int, field: str = "", count: int = 1) -> FoundAt:
        """Where a finding about a unit, one of its fields, or several units from it on, is; its record's offset."""
        path, position = self.where(place, field)
        return FoundAt(path, f"{unit_name(place, count)} {field}".rstrip(), position, physical_offset)

    def where(self, place: int, field: str = "") -> tuple[Path, int]:
        """The file of a place, or the directory, and the byte in it of a unit, or of one of its fields."""
        number = bisect_right(self._starts, place) - 1
        inside = field_position(self.dtype, field)
        if number >= 0 and place < self.files[number].stop:
            return self.files[number].path, (place - self.files[number].first) * self.dtype.itemsize + inside
        return self.directory, place * self.dtype.itemsize + inside

    @cached_property
    def end(self) -> int:
        """The place behind the last unit that is not zero when this is first asked; holes are not read."""
        for file in reversed(self.files):
            for start, stop in reversed(self._data(file)):
                while stop > start:
                    first = max(start, stop - _PIECE)
                    written = np.flatnonzero(~are_zeros(self.read(first, stop - first)))
                    if written.size:
                        return first + int(written[-1]) + 1
                    stop = first
        return self.first

    def place_of(self, physical_offset: int) -> int:
        """The place of the first unit of a record at an offset or behind it, where units ascend by that; few are read.

        Else some place.
        """
        places = range(self.first, self.end)
        return self.first + bisect_left(places, physical_offset, key=lambda at: self.read(at, 1)["physical_offset"][0])

    def lost_before(self, place: int) -> Iterator[tuple[int, int]]:
        """Runs of places below one that are in files and hold no unit of a broker: the first, and how many."""
        for file in self.files:
            stop = min(file.stop, place)
            behind, lost = file.first, list[Range]()
            for first, units in self._written(file, file.first, stop):
                are_lost = ~are_valid(units)
                lost.append((behind, first))
                lost += ((first + start, first + start + count) for start, count in runs_of(are_lost))
                behind = first + len(units)
            if (file.path, READABLE) not in self.problems:
                for start, end in merge([*lost, (behind, stop)]):
                    yield start, end - start

    def first_written(self, place: int) -> tuple[int, Units] | None:
        """The first unit from a place on that is not zero, and its place."""
        for file in self.files:
            for first, units in self._written(file, max(file.first, place), file.stop):
                written = np.flatnonzero(~are_zeros(units))
                if written.size:
                    return first + int(written[0]), units[written[:1]]
        return None

    def _written(self, file: UnitFile, first: int, stop: int) -> Iterator[tuple[int, Units]]:
        """Units of a file in the places [first, stop) that are in no hole, piece by piece, each with its place."""
        for start, end in self._data(file):
            first, end = max(first, start), min(end, stop)
            while first < end:
                units = self.read(first, min(_PIECE, end - first))
                yield first, units
                first += len(units)

    def _data(self, file: UnitFile) -> list[tuple[int, int]]:
        """Places of a file that are no hole."""
        unit, extents = self.dtype.itemsize, []
        with self._noting(file.path), _opened(file.path) as descriptor:
            for start, stop in data_extents(descriptor, (file.stop - file.first) * unit):
                extents.append((file.first + start // unit, min(file.first - (-stop // unit), file.stop)))
        return extents

    def _fill(self, target: Units, file: UnitFile, number: int) -> None:
        """Read units of one file; what a file that was cut has no more stays zero."""
        view, position = target.view(np.uint8).data, number * self.dtype.itemsize
        with self._noting(file.path), _opened(file.path) as descriptor:
            while len(view) and (count := os.preadv(descriptor, [view], position)):
                view, position = view[count:], position + count

    @contextlib.contextmanager
    def _noting(self, path: Path) -> Iterator[None]:
        """Have the content of a file; that it cannot be read is a problem, and ends the reading alone."""
        self._fill_file(path)
        try:
            yield
        except (OSError, StoreError) as error:
            self.problems[path, READABLE] = str(error)


def are_zeros(units: Units) -> npt.NDArray[np.bool_]:
    """Which units have no byte that is not zero."""
    zeros: npt.NDArray[np.bool_] = np.logical_not(units.view(np.uint8).reshape(len(units), -1).any(axis=1))
    return zeros


def runs_of(flags: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Runs of flags that are set: the first one's number, and how many."""
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False)).tolist()
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        yield start, stop - start


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = open_read_only(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
