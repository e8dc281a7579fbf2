"""The files of one queue's directory, as one logical stream of bytes: named by byte offset, opened when read.

A broker writes files of equal size and refuses to start with others. Here every file counts with the size that it has,
so that a truncated copy, or a queue whose file size was changed, is read as far as it goes (store-format §1.2, §1.4).

The written part of the files ends with the last byte that is not zero. Holes of sparse files are found by SEEK_DATA;
zeros are read only where the file system has no holes.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from storage.arrays import np, npt
from storage.files.mapped_file import MappedFile, cannot_be_seen, list_segment_files, segment_name, written_length
from storage.files.open_files import OpenFiles
from storage.files.waiting import LONG_SCAN, Allowance, Lookup, long_scan

FIRST_STEP: Final = 4096
LARGEST_STEP: Final = 1 << 20

WINDOW_BYTES: Final = 8 << 20
"""Bytes of units that are looked at together: somewhat more than a broker's files have."""

NEAR: Final = 1 << 16
"""Bytes after the known end that are read each time, if a file has no holes."""


LOOKED_FOR: Final = "their messages are looked for in the log; a broker gives them to no consumer"
"""The consequence of lost units, or a lost file, of a queue, for use in findings."""

UNITS_OF_PLAIN: Final = "queue offsets"
UNITS_OF_BATCHES: Final = "units"
"""The names for numbers of units in findings; in a queue of batches they are not queue offsets."""


@dataclass(frozen=True, slots=True)
class QueueFile:
    """One file: `start` is the byte offset in the stream of its first byte; `size` is in bytes of whole units.

    Or a part of a larger file, which lies there from `position` on and is mapped as `held`.
    """

    path: str
    inode: int
    start: int
    size: int
    position: int = 0
    held: MappedFile | None = field(default=None, compare=False)

    @property
    def end(self) -> int:
        """The byte offset in the stream after this file."""
        return self.start + self.size


class QueueFiles:
    """The non-empty files of a directory in order; immutable. A missing directory has none.

    Files with foreign names, files without a whole unit, and files that start within a unit are ignored. A file that
    reaches into the next one counts up to there. Raises StoreError when the directory cannot be listed.
    """

    __slots__ = ("_directory", "_open_files", "_starts", "_unit_size", "files")

    def __init__(
        self, directory: Path, unit_size: int, open_files: OpenFiles, held: Iterable[QueueFile] | None = None
    ) -> None:
        """List a directory; with `held` there is none, but parts of files that are mapped and never change."""
        self._open_files = open_files
        self._directory = directory
        self._unit_size = unit_size
        self.files = _list_files(directory, unit_size) if held is None else tuple(held)
        self._starts = [file.start for file in self.files]

    @property
    def directory(self) -> Path:
        """The directory that was listed."""
        return self._directory

    @property
    def first_numbers(self) -> list[int]:
        """The number of the first unit of each file, counted from the first file; the last entry counts all units."""
        return list(accumulate((file.size // self._unit_size for file in self.files), initial=0))

    @property
    def is_emptied(self) -> bool:
        """Whether the directory exists, or something else has its name, but there is no file in it that has a unit."""
        return not self.files and os.path.lexists(self._directory)

    def renewed(self) -> QueueFiles:
        """List the files as they are now."""
        return QueueFiles(self._directory, self._unit_size, self._open_files)

    def continues(self, earlier: QueueFiles) -> bool:
        """Whether these are the files of an earlier list, perhaps without expired ones and with new ones."""
        if not (self.files and earlier.files):
            return False
        kept = [file for file in earlier.files if file.start >= self.files[0].start]
        return bool(kept) and kept == list(self.files[: len(kept)])

    def with_successor(self) -> QueueFiles:
        """Return these files and new ones after the last one; this very object if there are no new ones."""
        renewed = self.renewed() if self.has_successor() else self
        return renewed if renewed.continues(self) and len(renewed.files) > len(self.files) else self

    def has_successor(self) -> bool:
        """Whether a file named by the last one's end exists; the name is expected in the usual number of digits."""
        if not self.files:
            return False
        last = self.files[-1]
        name = os.path.basename(last.path)
        successor = self._directory / segment_name(last.end, name)
        return successor.exists() or not name.isascii()

    def number_at(self, position: int) -> int | None:
        """The number of the file that contains a byte offset of the stream, None if there is none."""
        number = bisect_right(self._starts, position) - 1
        return number if number >= 0 and position < self.files[number].end else None

    def read(self, position: int, length: int) -> memoryview | None:
        """Return bytes of the stream as a slice of a file's map, or None where they are not all in one file.

        Raises StoreError when the file cannot be opened.
        """
        number = self.number_at(position)
        if number is None or position + length > self.files[number].end:
            return None
        return self.read_file(number, position - self.files[number].start, length)

    def read_file(self, number: int, position: int, length: int) -> memoryview:
        """Return bytes of one file by its number; raises TruncatedFile if it was cut since it was listed."""
        return self.map_of(number).read(self.files[number].position + position, length)

    def read_lookup(self, position: int, length: int) -> Lookup[memoryview | None]:
        """:meth:`read` as a look-up, which waits until the bytes are in memory."""
        number = self.number_at(position)
        if number is None or position + length > self.files[number].end:
            return None
        return (yield from self.read_file_lookup(number, position - self.files[number].start, length))

    def read_file_lookup(self, number: int, position: int, length: int) -> Lookup[memoryview]:
        """:meth:`read_file` as a look-up, which waits until the bytes are in memory."""
        return self.map_of(number).read_lookup(self.files[number].position + position, length)

    def written_end(self, position: int, growth: int | None = None) -> Lookup[tuple[int, bool]]:
        """Return the byte offset after the last unit from `position` on that is not all zero; `position` for none.

        Also return whether all bytes were read; `growth` as in :func:`last_written`.
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
        if file.held is not None:
            return file.held
        opened = self._open_files.get(file.path, file.inode)
        # Only a tier's files grow; they may have done so between the map and this list.
        return opened if opened.size >= file.size else self._open_files.reopened(file.path, file.inode)


def last_written(file: MappedFile, start: int, size: int, growth: int | None = None) -> Lookup[tuple[int, bool]]:
    """Return the position after the last byte in [start, size) that is not zero, else `start`; and if all was read.

    If the file has no holes, all bytes after `start` are read. `growth` is the number of bytes that the log has grown
    since that was last done; while it is small, only the bytes are read that units of so much log may take.
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
            written = written_length(content)
            if written:
                return low + written, is_whole
            stop, step = low, min(step * 2, LARGEST_STEP)
    return start, is_whole


def _data_spans(file: MappedFile, position: int, size: int) -> Iterator[tuple[int, int]]:
    while (position := file.first_data(position)) < size:
        stop = min(max(file.first_hole(position), position + 1), size)
        yield position, stop
        position = stop


def unit_windows(file: MappedFile, start: int, stop: int, unit_size: int) -> list[tuple[int, int]]:
    """Return the parts of [start, stop) of a file that have units which are no hole, none longer than a window.

    Units count from `start`. A broker's files are one window, whatever is in them; those that claim to be far longer
    are read as far as the file system has bytes of them.
    """
    window = WINDOW_BYTES - WINDOW_BYTES % unit_size
    if stop - start <= window:
        return [(start, stop)] if start < stop else []
    found: list[tuple[int, int]] = []
    behind = start
    for begin, end in _data_spans(file, start, stop):
        begin = max(begin - (begin - start) % unit_size, behind)
        behind = min(end + (start - end) % unit_size, stop)
        found += ((low, min(low + window, behind)) for low in range(begin, behind, window))
    return found


def read_units(
    path: Path, dtype: npt.DTypeLike, start: int = 0, *, is_backward: bool = False
) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    """Yield the units of a file from a position on that are in no hole, window by window, each with its position."""
    file, size = MappedFile.open(path), np.dtype(dtype).itemsize
    windows = unit_windows(file, start, file.size - (file.size - start) % size, size)
    for low, high in reversed(windows) if is_backward else windows:
        yield low, np.frombuffer(file.view[low:high], dtype)


class UnitBlocks:
    """Ranges of a queue's units by their numbers, one or several for each file; they can be gone through either way.

    A number that is in none of them is in no file, or in a hole of one, where all bytes are zero.
    """

    __slots__ = ("_files", "_parts", "_unit_size")

    def __init__(self, files: QueueFiles, unit_size: int, parts: Sequence[tuple[int, int, int, int]]) -> None:
        """Of each file some units: its number, that of its first unit, that of the first wanted one, and behind."""
        self._files, self._unit_size, self._parts = files, unit_size, parts

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for part in self._parts:
            yield from self._in(*part)

    def __reversed__(self) -> Iterator[tuple[int, int]]:
        for part in reversed(self._parts):
            yield from reversed(self._in(*part))

    def _in(self, number: int, origin: int, first: int, behind: int) -> list[tuple[int, int]]:
        unit = self._unit_size
        if (behind - first) * unit <= WINDOW_BYTES:  # the file need not be opened yet
            return [(first, behind)] if first < behind else []
        start = self._files.files[number].position + (first - origin) * unit
        found = unit_windows(self._files.map_of(number), start, start + (behind - first) * unit, unit)
        return [(first + (low - start) // unit, first + (high - start) // unit) for low, high in found]


def _list_files(directory: Path, unit_size: int) -> tuple[QueueFile, ...]:
    files: list[QueueFile] = []
    try:
        found = list_segment_files(directory)[0]
    except StoreError:
        if os.path.isdir(directory) or not os.path.lexists(directory):
            raise
        return ()  # something else has its name: the directory is lost
    for start, path in found:
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
