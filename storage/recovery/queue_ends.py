"""How far the queues of a store reach once a broker has recovered them: up to there it takes its log for dispatched.

Of each queue a broker reads the last three files, up to the first unit that is none (store-format §6.2).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from storage.files.mapped_file import LARGEST_OFFSET, cannot_be_seen, list_segment_files
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE
from storage.queue.queue_files import read_units
from storage.queue.queue_store import directories, is_queue_id

READ_FILES: Final = 3
NOWHERE: Final = -1


def recovered_queues_end(root: Path, enough: int = LARGEST_OFFSET) -> int:
    """Physical offset up to which any queue reaches when a broker has recovered them; −1 without units.

    Queues are looked at until one reaches `enough`. Raises StoreError where a directory or a file cannot be read: what
    lies in it is not known to be nothing.
    """
    end = NOWHERE
    for path, find_end in _queues(root):
        end = max(end, find_end(path))
        if end >= enough:
            break
    return end


def _queues(root: Path) -> Iterator[tuple[Path, Callable[[Path], int]]]:
    for tree, find_end in ((root / CONSUME_QUEUE, _plain_end), (root / BATCH_CONSUME_QUEUE, _batch_end)):
        for topic in directories(tree):
            yield from ((tree / topic / name, find_end) for name in directories(tree / topic) if is_queue_id(name))


def _plain_end(directory: Path) -> int:
    """The end of the message of the last unit, as a broker's recovery of a plain queue takes it."""
    end = NOWHERE
    for units in _read(directory, UNIT_DTYPE):
        count = _leading((units["physical_offset"] >= 0) & (units["size"] > 0))
        if count:
            end = int(units["physical_offset"][count - 1]) + int(units["size"][count - 1])
        if count < units.size:
            break
    return end


def _batch_end(directory: Path) -> int:
    """Where the message of the last unit starts: of a queue of batches a broker does not add its size."""
    end = NOWHERE
    for units in _read(directory, BATCH_UNIT_DTYPE):
        is_sound = (units["physical_offset"] >= 0) & (units["size"] > 0)
        count = _leading(is_sound & (units["base_offset"] >= 0) & (units["batch_size"] > 0))
        if count:
            end = int(units["physical_offset"][count - 1])
        if count < units.size:
            break
    return end


def _read(directory: Path, unit: np.dtype) -> Iterator[np.ndarray]:
    """The units of the last files, a window at a time; for a hole, whose units are none, there is one of zeros."""
    for _, path in list_segment_files(directory)[0][-READ_FILES:]:
        try:
            end, size = 0, path.stat().st_size
        except OSError as error:
            raise cannot_be_seen(path, error) from error
        for position, units in read_units(path, unit):
            if position > end:
                break
            yield units
            end += units.nbytes
        if end < size - size % unit.itemsize:
            yield np.zeros(1, unit)


def _leading(is_sound: np.ndarray) -> int:
    """How many at the beginning are true."""
    return int(is_sound.argmin()) if not is_sound.all() else is_sound.size
