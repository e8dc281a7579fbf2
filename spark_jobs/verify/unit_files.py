"""The units of one queue as its files hold them, by place: the number of a unit counted from the stream's beginning."""

import contextlib
import itertools
import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError
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

    `problems`: what was expected of a path, and what is there. `first` and `end`: places of the first unit that a file
    has, and behind the last one that is not zero, as they are at the beginning. Nothing is kept open.
    """

    def __init__(self, directory: Path, dtype: np.dtype[Any], named: str) -> None:
        """List the files; a missing directory has none. ``named`` is what findings call the units."""
        self.directory, self.dtype, self._named = directory, dtype, named
        self.problems: dict[Path, tuple[str, str]] = {}
        try:
            self.files = self._list()
        except StoreError as error:
            self.files = []
            self.problems[directory] = "a queue's directory", str(error)
        self._starts = [file.first for file in self.files]
        self.first = self._starts[0] if self._starts else 0
        self.end = self._find_end()

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

    def where(self, place: int) -> tuple[Path, int]:
        """The file of a place, or the directory, and the byte in it."""
        number = bisect_right(self._starts, place) - 1
        if number >= 0 and place < self.files[number].stop:
            return self.files[number].path, (place - self.files[number].first) * self.dtype.itemsize
        return self.directory, place * self.dtype.itemsize

    def _list(self) -> list[UnitFile]:
        files: list[UnitFile] = []
        lengths: list[int] = []
        unit = self.dtype.itemsize
        for start, path in list_segment_files(self.directory)[0]:
            try:
                size = os.stat(path).st_size
            except OSError:  # a broker has just deleted it
                continue
            if start % unit or size % unit:
                self.problems[path] = f"whole units of {unit} bytes", f"{size} bytes from byte {start} on"
            if files and start // unit < files[-1].stop:
                self.problems[path] = f"a file that starts at {files[-1].stop * unit}", "one that starts before"
                files[-1] = files[-1]._replace(stop=start // unit)
            files.append(UnitFile(start // unit, (start + size) // unit, path))
            lengths.append(size)
        self._compare(files, lengths)
        return files

    def _compare(self, files: list[UnitFile], lengths: list[int]) -> None:
        """A broker's files are all of one length, each starts where the one before it ends."""
        unit = self.dtype.itemsize
        usual = max(lengths, key=lengths.count, default=0)
        for file, length in zip(files, lengths, strict=True):
            if length != usual and length % unit == 0:
                self.problems[file.path] = f"{usual} bytes, as the others have", f"{length} bytes"
        for left, right in itertools.pairwise(files):
            if left.stop < right.first and left.stop - left.first == usual // unit:
                expected = f"a file that holds {self._named} {left.stop} to {right.first - 1}"
                self.problems[self.directory] = expected, "none"

    def _find_end(self) -> int:
        """Behind the last unit that is not zero; holes are not read."""
        for file in reversed(self.files):
            for start, stop in reversed(self._data(file)):
                while stop > start:
                    first = max(start, stop - _PIECE)
                    units = self.read(first, stop - first)
                    written = np.flatnonzero(units.view(np.uint8).reshape(len(units), -1).any(axis=1))
                    if written.size:
                        return first + int(written[-1]) + 1
                    stop = first
        return self.first

    def _data(self, file: UnitFile) -> list[tuple[int, int]]:
        """Places of a file that are no hole."""
        unit, extents = self.dtype.itemsize, []
        with contextlib.suppress(StoreError), _opened(file.path) as descriptor:
            for start, stop in data_extents(descriptor, (file.stop - file.first) * unit):
                extents.append((file.first + start // unit, min(file.first - (-stop // unit), file.stop)))
        return extents

    def _fill(self, target: Units, file: UnitFile, number: int) -> None:
        """Read units of one file; what a file that was cut has no more stays zero."""
        view, position = target.view(np.uint8).data, number * self.dtype.itemsize
        try:
            with _opened(file.path) as descriptor:
                while len(view) and (count := os.preadv(descriptor, [view], position)):
                    view, position = view[count:], position + count
        except (OSError, StoreError) as error:
            self.problems[file.path] = "a file that can be read", str(error)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = open_read_only(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
