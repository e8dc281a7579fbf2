"""What the files of a queue say that is going to be replaced, or carried over because the log has nothing of it.

The log says which messages there are; only the old files say how far a queue's numbers have come when its last
messages are gone from the log, expired or damaged. If a broker started to count anew from a lower number, consumers
would wait behind the messages that follow. Files are read in pieces, never mapped, and holes in them not at all.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError
from storage.files.kept_files import first_data
from storage.files.mapped_file import list_segment_files, open_read_only
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE
from storage.queue.unit_standing import are_valid
from storage.queue.unit_struct import FILLER, FILLER_SIZE

FIRST_STEP: Final = 256
LARGEST_STEP: Final = 65_536

Units = npt.NDArray[np.void]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ReadableLog:
    """What of a log can be read: [minimum, end) without the `lost` ranges, which ascend and do not overlap."""

    minimum: int
    end: int
    lost: Sequence[tuple[int, int]] = ()

    def are_lost(self, physical_offsets: npt.NDArray[Any]) -> Flags:
        """Which physical offsets lie in a lost range."""
        if not self.lost:
            return np.zeros(physical_offsets.shape, np.bool_)
        starts, ends = (np.array(column, np.int64) for column in zip(*self.lost, strict=True))
        offsets = physical_offsets.astype(np.int64)
        number = np.searchsorted(starts, offsets, side="right") - 1
        return (number >= 0) & (offsets < ends[np.maximum(number, 0)])

    def loses_behind(self, physical_offset: int) -> bool:
        """Whether anything behind a physical offset is lost."""
        return bool(self.lost) and self.lost[-1][1] > physical_offset


@dataclass(frozen=True, slots=True)
class OldFile:
    """One file: the stream's byte offset of its first byte, and its size in whole units."""

    start: int
    size: int
    path: Path


class OldQueue:
    """The files of one queue's directory, plain or of batches, as a broker's recovery would read them."""

    def __init__(self, directory: Path, *, batch: bool = False) -> None:
        """List the files; a missing directory has none. Raises StoreError when it cannot be listed."""
        self.directory = directory
        self.dtype = np.dtype(BATCH_UNIT_DTYPE if batch else UNIT_DTYPE)
        self._is_batch = batch
        unit_size = self.dtype.itemsize
        sizes = [(start, os.stat(path).st_size, path) for start, path in list_segment_files(directory)[0]]
        self.files = tuple(OldFile(start, size - size % unit_size, path) for start, size, path in sizes)

    def born_at(self) -> int | None:
        """Where the record of the unit at the very beginning starts; None where that is a filler, or no unit."""
        if not self.files or self.files[0].start:
            return None
        for position, units in _pieces(self.files[0], 0, self.dtype, 1):
            if not position and len(units) and are_valid(units).all() and units["size"][0] != FILLER_SIZE:
                return int(units["physical_offset"][0])
            break
        return None

    def end(self, log: ReadableLog) -> int:
        """The stream's byte offset behind the last unit that points to no other's record; damaged ones end nothing.

        The log has no record of the units from the end back that are taken as strays: they lie in what can be read of
        it, so that the scan of the log would have found their records.
        """
        for file in reversed(self.files):
            kept = self._kept(file, log)
            if kept:
                return file.start + kept * self.dtype.itemsize
        return self.files[0].start if self.files else 0

    def next_offset(self, end: int) -> int:
        """The queue offset that a broker gives to the message behind a byte offset that `end` returned."""
        if not self._is_batch:
            return end // self.dtype.itemsize
        for file in self.files:
            if file.start < end <= file.start + file.size:
                for _, units in _pieces(file, end - file.start - self.dtype.itemsize, self.dtype, 1):
                    return int(units["base_offset"][0]) + int(units["batch_size"][0])
        return 0

    def offset_behind_lost(self, physical_offset: int, next_offset: int, log: ReadableLog) -> int:
        """How far the queue went whose last readable record starts at `physical_offset`, `next_offset` behind it.

        The units that follow count as long as they point behind that record, and to where the log is lost; damaged ones
        among them say nothing.
        """
        if not log.loses_behind(physical_offset):
            return next_offset
        for file in self.files:
            position = 0 if self._is_batch else next_offset * self.dtype.itemsize - file.start
            if not 0 <= position < file.size:
                continue
            for start, units in _pieces(file, position, self.dtype, FIRST_STEP):
                offsets, valid = units["physical_offset"], are_valid(units)
                behind = offsets > physical_offset
                lost = valid & behind & log.are_lost(offsets) & (offsets < log.end)
                stops = valid & ~lost & (behind if self._is_batch else True)
                stop = int(stops.argmax()) if stops.any() else len(units)
                if (kept := np.flatnonzero(lost[:stop])).size:
                    next_offset = max(next_offset, self._number_behind(file, start, units, int(kept[-1])))
                if stop < len(units):
                    return next_offset
        return next_offset

    def _number_behind(self, file: OldFile, start: int, units: Units, at: int) -> int:
        """The queue offset behind one of some units of a file, the first of which stands at a position."""
        if self._is_batch:
            return int(units["base_offset"][at]) + int(units["batch_size"][at])
        return (file.start + start) // self.dtype.itemsize + at + 1

    def _kept(self, file: OldFile, log: ReadableLog) -> int:
        """How many units of a file there are up to the last whose message is expired or lost."""
        kept = 0
        for start, units in _pieces(file, 0, self.dtype, FIRST_STEP):
            offsets = units["physical_offset"]
            real = (offsets < log.minimum) | log.are_lost(offsets)
            found = np.flatnonzero(are_valid(units) & (offsets < log.end) & real)
            if found.size:
                kept = start // self.dtype.itemsize + int(found[-1]) + 1
        return kept


def blank_units(directory: Path, minimum: int, *, batch: bool) -> None:
    """Make fillers of all units in a queue's directory that point to a physical offset or one behind it; fsyncs them.

    The numbers in units of batches stay.
    """
    queue = OldQueue(directory, batch=batch)
    for file in queue.files:
        descriptor = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            for position, units in _pieces(file, 0, queue.dtype, LARGEST_STEP):
                wanted = are_valid(units) & (units["physical_offset"] >= minimum)
                if wanted.any():
                    blanked = units.copy()
                    for field, value in zip(("physical_offset", "size", "tags_code"), FILLER, strict=True):
                        blanked[field][wanted] = value
                    os.pwrite(descriptor, blanked.tobytes(), position)
            os.fsync(descriptor)
        except OSError as error:
            raise StoreError(file.path, what=f"cannot be written: {error.strerror}") from error
        finally:
            os.close(descriptor)


def has_data_behind(path: Path, position: int) -> bool:
    """Whether there is any byte but zeros in a file from a position on."""
    descriptor = open_read_only(path)
    try:
        size = os.fstat(descriptor).st_size
        while position < size:
            position = first_data(descriptor, position, size)
            piece = os.pread(descriptor, 1 << 20, position)
            if any(piece):
                return True
            if not piece:
                break
            position += len(piece)
    finally:
        os.close(descriptor)
    return False


def _pieces(file: OldFile, position: int, dtype: np.dtype[Any], step: int) -> Iterator[tuple[int, Units]]:
    """The units of a file from a position on, more at a time as it goes on; those in holes are left out."""
    descriptor = open_read_only(file.path)
    try:
        while position < file.size:
            data_position = first_data(descriptor, position, file.size)
            position += (data_position - position) // dtype.itemsize * dtype.itemsize
            if position >= file.size:
                return
            count = min(step, (file.size - position) // dtype.itemsize)
            data = os.pread(descriptor, count * dtype.itemsize, position)
            units = np.frombuffer(data, dtype, len(data) // dtype.itemsize)
            if not len(units):
                return
            yield position, units
            position += len(units) * dtype.itemsize
            step = min(step * 2, LARGEST_STEP)
    except OSError as error:
        raise StoreError(file.path, what=f"cannot be read: {os.strerror(error.errno or errno.EIO)}") from error
    finally:
        os.close(descriptor)
