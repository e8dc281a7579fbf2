"""The files of one queue's directory, as one logical stream of bytes: named by byte offset, opened when read.

A broker writes files of equal size and refuses to start on any other; here every file counts with the size it has, so
that a copy cut short, or a queue whose file size was changed, is read as far as it goes (store-format §1.2, §1.4).

What was written into them ends with the last byte that is not zero: holes are asked for by SEEK_DATA, and only where
the file system has none are zeros read.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Final

import numpy as np

from storage.files.mapped_file import SEGMENT_NAME_DIGITS, MappedFile, cannot_be_seen, list_segment_files
from storage.files.open_files import OpenFiles
from storage.files.waiting import LONG_SCAN, Allowance, Lookup, long_scan

FIRST_STEP: Final = 4096
LARGEST_STEP: Final = 1 << 20

NEAR: Final = 1 << 16
"""Bytes behind the known end that are looked at in every look, where a file has no holes."""


LOOKED_FOR: Final = "their messages are looked for in the log; a broker gives them to no consumer"
"""What it means that units of a queue, or a file of them, are lost."""

UNITS_OF_PLAIN: Final = "queue offsets"
UNITS_OF_BATCHES: Final = "units"
"""What findings call the units of a queue by their numbers; those of batches say their queue offsets themselves."""


@dataclass(frozen=True, slots=True)
class QueueFile:
    """One file: `start` is the stream's byte offset of its first byte; `size` counts whole units only."""

    path: str
    inode: int
    start: int
    size: int

    @property
    def end(self) -> int:
        """The stream's byte offset behind this file."""
        return self.start + self.size


class QueueFiles:
    """The non-empty files of a directory in order; immutable, a missing directory has none.

    Ignored are foreign names and files that hold no whole unit or start within one; a file that reaches into the next
    one counts up to there. Raises StoreError when the directory cannot be listed.
    """

    __slots__ = ("_directory", "_open_files", "_starts", "_unit_size", "files")

    def __init__(self, directory: Path, unit_size: int, open_files: OpenFiles) -> None:
        self._directory = directory
        self._unit_size = unit_size
        self._open_files = open_files
        self.files = _list_files(directory, unit_size)
        self._starts = [file.start for file in self.files]

    @property
    def first_numbers(self) -> list[int]:
        """For each file the number of its first unit, counted from the first file; behind them that of all units."""
        return list(accumulate((file.size // self._unit_size for file in self.files), initial=0))

    @property
    def is_emptied(self) -> bool:
        """Whether the directory is there, and no file in it that may hold a unit."""
        return not self.files and self._directory.is_dir()

    def renewed(self) -> "QueueFiles":
        """The files as they are now."""
        return QueueFiles(self._directory, self._unit_size, self._open_files)

    def continues(self, earlier: "QueueFiles") -> bool:
        """Whether these are the files of an earlier list, but for expired ones at its start, and perhaps more."""
        if not (self.files and earlier.files):
            return False
        kept = [file for file in earlier.files if file.start >= self.files[0].start]
        return bool(kept) and kept == list(self.files[: len(kept)])

    def with_successor(self) -> "QueueFiles":
        """These files and what has come behind the last one since they were listed; the same where nothing has."""
        renewed = self.renewed() if self.has_successor() else self
        return renewed if renewed.continues(self) and len(renewed.files) > len(self.files) else self

    def has_successor(self) -> bool:
        """Whether there may be a file where the last one ends; names in other digits are not looked for."""
        if not self.files:
            return False
        last = self.files[-1]
        name = os.path.basename(last.path)
        successor = self._directory / f"{last.end:0{SEGMENT_NAME_DIGITS}d}"
        return successor.exists() or not name.isascii()

    def number_at(self, position: int) -> int | None:
        """The number of the file that holds a byte offset of the stream."""
        number = bisect_right(self._starts, position) - 1
        return number if number >= 0 and position < self.files[number].end else None

    def read(self, position: int, length: int) -> memoryview | None:
        """Bytes of the stream that lie in one file, as a slice of its map, or None where they do not.

        Raises StoreError when the file cannot be opened.
        """
        number = self.number_at(position)
        if number is None or position + length > self.files[number].end:
            return None
        return self.read_file(number, position - self.files[number].start, length)

    def read_file(self, number: int, position: int, length: int) -> memoryview:
        """Bytes of one file by its number; raises TruncatedFile where it was cut since it was listed."""
        return self.map_of(number).read(position, length)

    def read_lookup(self, position: int, length: int) -> Lookup[memoryview | None]:
        """As :meth:`read`, once these bytes are in memory."""
        number = self.number_at(position)
        if number is None or position + length > self.files[number].end:
            return None
        return (yield from self.map_of(number).read_lookup(position - self.files[number].start, length))

    def read_file_lookup(self, number: int, position: int, length: int) -> Lookup[memoryview]:
        """As :meth:`read_file`, once these bytes are in memory."""
        return self.map_of(number).read_lookup(position, length)

    def written_end(self, position: int, growth: int | None = None) -> Lookup[tuple[int, bool]]:
        """Behind the last unit of the stream with anything but zeros at or behind a byte offset; `position` for none.

        Also whether all was looked at; `growth` as in :func:`last_written`.
        """
        is_whole = True
        for number in range(len(self.files) - 1, -1, -1):
            file = self.files[number]
            if file.end <= position:
                break
            start = max(position - file.start, 0)
            end, is_file_whole = yield from last_written(self.map_of(number), start, file.size, growth)
            is_whole &= is_file_whole
            if end > start:
                return file.start + -(-end // self._unit_size) * self._unit_size, is_whole
        return position, is_whole

    def map_of(self, number: int) -> MappedFile:
        """The map of one file by its number."""
        file = self.files[number]
        return self._open_files.get(file.path, file.inode)


def last_written(file: MappedFile, start: int, size: int, growth: int | None = None) -> Lookup[tuple[int, bool]]:
    """Position behind the last byte in [start, size) that is not zero, `start` for none; and whether all was looked at.

    Where there are no holes, all behind `start` is read; with `growth`, bytes of log since that was last done, only
    what these may have brought, until they are many.
    """
    spans = list(_data_spans(file, start, size))
    data = sum(stop - begin for begin, stop in spans)
    is_whole = growth is None or data <= LONG_SCAN or growth > 4 * LONG_SCAN
    if growth is not None and not is_whole:
        spans = [(start, min(size, start + max(NEAR, growth // 4)))]  # a unit of 20 bytes for a record of 91 or more
    allowance = Allowance()
    for begin, stop in reversed(spans):
        step = FIRST_STEP
        while stop > begin:
            low = max(begin, stop - step)
            if allowance.is_used_up_by(stop - low):
                yield long_scan(f"where {file.path} ends")
            content = yield from file.read_lookup(low, stop - low)
            # Compared first: flatnonzero counts and then collects, and raises where a broker writes in between.
            written = np.flatnonzero(np.frombuffer(content, np.uint8) != 0)
            if written.size:
                return low + int(written[-1]) + 1, is_whole
            stop, step = low, min(step * 2, LARGEST_STEP)
    return start, is_whole


def _data_spans(file: MappedFile, position: int, size: int) -> Iterator[tuple[int, int]]:
    while (position := file.first_data(position)) < size:
        stop = min(max(file.first_hole(position), position + 1), size)
        yield position, stop
        position = stop


def _list_files(directory: Path, unit_size: int) -> tuple[QueueFile, ...]:
    files: list[QueueFile] = []
    for start, path in list_segment_files(directory)[0]:
        try:
            status = os.stat(path)
        except FileNotFoundError:  # expired since the directory was listed
            continue
        except OSError as error:
            raise cannot_be_seen(path, error) from error
        size = status.st_size - status.st_size % unit_size
        if not size or start % unit_size:
            continue
        if files and start < files[-1].end:
            files[-1] = replace(files[-1], size=start - files[-1].start)
        files.append(QueueFile(str(path), status.st_ino, start, size))
    return tuple(files)
