"""How a broker's recovery leaves the queues of a store: where each ends, which files go, how far it reaches in the log.

Of each queue a broker reads the last three files, up to the first unit that is none, and deletes the files behind; up
to where the farthest queue reaches it takes its log for dispatched (store-format §6.2). When it knows where the log
ends it cuts what leads beyond that (§6.3).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from storage.files.mapped_file import LARGEST_OFFSET, cannot_be_seen, list_segment_files
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE
from storage.queue.queue_files import read_units
from storage.queue.queue_store import queue_directories
from storage.queue.unit_standing import are_valid

READ_FILES: Final = 3
NOWHERE: Final = -1


class RecoveredQueue(NamedTuple):
    """A queue as its recovery leaves it.

    `end` is a place in the stream of its files, in bytes, −1 without files; `physical_end` up to where of the log it
    reaches, −1 without units (of a queue of batches a broker does not add the last record's size); `files` are those
    that stay, by their starts, and `deleted` those that go.
    """

    directory: Path
    unit: np.dtype
    end: int
    physical_end: int
    files: tuple[tuple[int, Path], ...]
    deleted: tuple[Path, ...]

    def cut_at(self, log_end: int) -> "RecoveredQueue":
        """The queue without what leads to the log's end or behind it; a file's first unit stays if it leads before."""
        files, deleted = list(self.files), list(self.deleted)
        while files:
            start, path = files[-1]
            count = 0
            for units in _windows(path, self.unit):
                is_kept = are_valid(units) & (units["physical_offset"] < log_end)
                if not count and units.size:
                    if units["physical_offset"][0] >= log_end:
                        break
                    is_kept[0] = True
                kept = _leading(is_kept)
                count += kept
                if kept < units.size:
                    break
            if count:
                return self._replace(end=start + count * self.unit.itemsize, files=tuple(files), deleted=tuple(deleted))
            deleted.append(path)
            files.pop()
        return self._replace(end=NOWHERE, files=(), deleted=tuple(deleted))


def recovered_queues(root: Path) -> Iterator[RecoveredQueue]:
    """Recover all queues, one after the other.

    Raises StoreError where a directory or a file cannot be read: what lies in it is not known to be nothing.
    """
    for tree, unit in (
        (root / CONSUME_QUEUE, np.dtype(UNIT_DTYPE)),
        (root / BATCH_CONSUME_QUEUE, np.dtype(BATCH_UNIT_DTYPE)),
    ):
        for directory in queue_directories(tree) if not tree.is_file() else ():  # where a file lies a broker finds none
            yield _recover(directory, unit)


def recovered_queues_end(root: Path, enough: int = LARGEST_OFFSET) -> int:
    """Physical offset up to which any queue reaches when a broker has recovered them; −1 without units.

    Queues are looked at until one reaches `enough`. Raises StoreError as :func:`recovered_queues` does.
    """
    end = NOWHERE
    for queue in recovered_queues(root):
        end = max(end, queue.physical_end)
        if end >= enough:
            break
    return end


def units_behind(queue: RecoveredQueue) -> Iterator[np.ndarray]:
    """The sound units in the files of a queue, as they lie, that its recovery leaves behind its end."""
    for start, path in (*queue.files, *((int(path.name), path) for path in queue.deleted)):
        skipped = max(queue.end - start, 0)
        for position, units in read_units(path, queue.unit):
            behind = units[max(skipped - position, 0) // queue.unit.itemsize :]
            yield behind[are_valid(behind)]


def _recover(directory: Path, unit: np.dtype) -> RecoveredQueue:
    """Read the last files of a queue up to the first unit that is none."""
    files = [(start, path) for start, path in list_segment_files(directory)[0]]
    if files and not _size(files[-1][1]):  # it is deleted when the queue is loaded
        files.pop()
    end = physical_end = NOWHERE
    for start, path in files[-READ_FILES:]:
        count, room = 0, _size(path) // unit.itemsize
        for units in _windows(path, unit):
            sound = _leading(are_valid(units))
            if sound:
                count += sound
                physical_end = _reached(units, sound)
            if sound < units.size:
                break
        end = start + count * unit.itemsize
        if count < room:
            break
    kept = tuple((start, path) for start, path in files if start <= end)
    return RecoveredQueue(directory, unit, end, physical_end, kept, tuple(path for _, path in files[len(kept) :]))


def _reached(units: np.ndarray, count: int) -> int:
    """Up to where of the log a broker says that a queue reaches whose last unit is the last of the first `count`."""
    place = int(units["physical_offset"][count - 1])
    return place if units.dtype == BATCH_UNIT_DTYPE else place + int(units["size"][count - 1])


def _windows(path: Path, unit: np.dtype) -> Iterator[np.ndarray]:
    """The units of a file, a window at a time; for a hole, whose units are none, there is one of zeros."""
    end, size = 0, _size(path)
    for position, units in read_units(path, unit):
        if position > end:
            break
        yield units
        end += units.nbytes
    if end < size - size % unit.itemsize:
        yield np.zeros(1, unit)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise cannot_be_seen(path, error) from error


def _leading(is_sound: np.ndarray) -> int:
    """How many at the beginning are true."""
    return int(is_sound.argmin()) if not is_sound.all() else is_sound.size
