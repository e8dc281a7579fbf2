"""Two logs beside each other: which segments are the same byte for byte, and what is left to be compared."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.layout.store_layout import recognise_store
from storage.log.commit_log import CommitLog, Segment
from storage.log.log_window import LocalFile
from storage.queue.queue_place import has_another

BLOCK_BYTES: Final = 8 * 1024 * 1024

Notify = Callable[[int], None]
"""Called with the number of bytes that were read."""


@dataclass(frozen=True)
class OneLog:
    """One store's log, and the segments of it that the other one does not have in the same bytes."""

    root: Path
    log: CommitLog
    left: tuple[Segment, ...] = field(default=())

    @property
    def size(self) -> int:
        """Bytes that may hold records."""
        return sum(segment.valid_length for segment in self.log.segments)

    @property
    def left_size(self) -> int:
        """Bytes that are left to be compared."""
        return sum(segment.valid_length for segment in self.left)


def open_log(root: Path) -> OneLog:
    """The log of a store; raises StoreError."""
    layout = recognise_store(root)
    return OneLog(root, CommitLog.open(layout.commit_log_directories, None, None, partial(has_another, layout.root)))


def compare_segments(a: OneLog, b: OneLog, notify: Notify) -> tuple[OneLog, OneLog, int | None]:
    """Both logs with what is left, and the physical offset of the first byte at which both have another one."""
    others = {segment.base_offset: segment for segment in b.log.segments}
    same, first = set[int](), None
    for segment in a.log.segments:
        other = others.get(segment.base_offset)
        if other is None:
            continue
        differs = first_difference(segment, other, notify)
        if differs is None and segment.valid_length == other.valid_length:
            same.add(segment.base_offset)
        if differs is not None and first is None:
            first = segment.base_offset + differs
    return _without(a, same), _without(b, same), first


def first_difference(left: Segment, right: Segment, notify: Notify) -> int | None:
    """Position of the first byte that differs in what both hold, None without one."""
    length = min(left.valid_length, right.valid_length)
    files = LocalFile(left.file.path), LocalFile(right.file.path)
    buffers = np.empty((2, BLOCK_BYTES), np.uint8)
    try:
        for start in range(0, length, BLOCK_BYTES):
            size = min(BLOCK_BYTES, length - start)
            for file, buffer in zip(files, buffers, strict=True):
                _fill(file, buffer[:size], start)
            notify(size)
            if not np.array_equal(buffers[0, :size], buffers[1, :size]):
                return start + int(np.flatnonzero(buffers[0, :size] != buffers[1, :size])[0])
    finally:
        for file in files:
            file.close()
    return None


def _fill(file: LocalFile, buffer: npt.NDArray[np.uint8], position: int) -> None:
    view, done = memoryview(buffer.data), 0
    while done < len(view):
        count = file.read_into(view[done:], position + done)
        if not count:
            view[done:] = bytes(len(view) - done)  # it was cut meanwhile; the records in it are gone
            return
        done += count


def _without(one: OneLog, same: set[int]) -> OneLog:
    left = tuple(segment for segment in one.log.segments if segment.base_offset not in same)
    return OneLog(one.root, one.log, left)
