"""The units of one queue as its files hold them, by place: the number of a unit counted from the stream's beginning."""

import contextlib
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError
from storage.doctor.finding import FoundAt
from storage.doctor.words import field_position, file_faults, unit_name
from storage.files.mapped_file import list_segment_files, open_read_only
from storage.index.index_copy import data_extents

_PIECE: Final = 1 << 16

Units = npt.NDArray[np.void]


class UnitFile(NamedTuple):
    """One file: the places [first, stop) of its units."""

    first: int
    stop: int
    path: Path


class UnitFiles:
    """The files of one directory, read in pieces, never mapped; where there is no file, units read as zeros.

    `problems`: of a path and what was expected of it, what is there. `first`: place of the first unit that a file has.
    Nothing is kept open.
    """

    def __init__(
        self, directory: Path, dtype: np.dtype[Any], named: str, fill: Callable[[Path], None] = lambda _: None
    ) -> None:
        """List the files; a missing directory has none. ``named`` is what findings call the units.

        ``fill`` is called with a file's path before it is read, where it may be hollow until then.
        """
        self.directory, self.dtype, self._fill_file = directory, dtype, fill
        self.problems: dict[tuple[Path, str], str] = {}
        self.files: list[UnitFile] = []
        try:
            self._list(named)
        except StoreError as error:
            self.problems[directory, "a queue's directory"] = str(error)
        self._starts = [file.first for file in self.files]
        self.first = self._starts[0] if self._starts else 0

    def _list(self, named: str) -> None:
        found, unit = [], self.dtype.itemsize
        for start, path in list_segment_files(self.directory)[0]:
            with contextlib.suppress(OSError):  # a broker has just deleted it
                found.append((start, os.stat(path).st_size, path))
        stops = [start // unit for start, _, _ in found[1:]]
        for (start, size, path), stop in zip(found, [*stops, (1 << 63) // unit], strict=False):
            self.files.append(UnitFile(start // unit, min((start + size) // unit, stop), path))
        sizes = Counter(size for _, size, _ in found)
        usual = max(sizes, key=lambda size: (sizes[size], size % unit == 0, size), default=0)
        for fault in file_faults(self.directory, found, unit, usual, named):
            self.problems[fault.path, fault.words.expected] = fault.words.found

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

    def _data(self, file: UnitFile) -> list[tuple[int, int]]:
        """Places of a file that are no hole."""
        unit, extents = self.dtype.itemsize, []
        self._fill_file(file.path)
        with contextlib.suppress(StoreError), _opened(file.path) as descriptor:
            for start, stop in data_extents(descriptor, (file.stop - file.first) * unit):
                extents.append((file.first + start // unit, min(file.first - (-stop // unit), file.stop)))
        return extents

    def _fill(self, target: Units, file: UnitFile, number: int) -> None:
        """Read units of one file; what a file that was cut has no more stays zero."""
        view, position = target.view(np.uint8).data, number * self.dtype.itemsize
        self._fill_file(file.path)
        try:
            with _opened(file.path) as descriptor:
                while len(view) and (count := os.preadv(descriptor, [view], position)):
                    view, position = view[count:], position + count
        except (OSError, StoreError) as error:
            self.problems[file.path, "a file that can be read"] = str(error)


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
