"""What a start takes out of the queues: files that go, and messages of the log that no queue leads to any more.

A queue ends for a broker at the first unit that is none in its last three files, or where the log ends. What its
recovery dispatches again comes back; the other messages behind that place are in the log and in no queue.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from storage.files.mapped_file import read_piece
from storage.index.index_header import HEADER
from storage.layout.checkpoint import Checkpoint
from storage.log.commit_log import CommitLog
from storage.recovery.queue_ends import RecoveredQueue, units_behind

MOST_CHECKED: Final = 10_000
"""Units of one queue whose records are looked at; others are taken for what they say."""


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """What becomes of one queue, whose directory is at `path`: it ends before its unit number `end`.

    `lost` messages that it leads to now are not in it any more. `deleted` are the paths of files that go; where
    messages are dispatched again they are made anew.
    """

    path: str
    topic: str
    queue_id: int
    end: int
    lost: int
    deleted: tuple[str, ...]


def queue_outcomes(
    queues: Iterable[RecoveredQueue], log: CommitLog, log_end: int, dispatched_from: int
) -> Iterator[QueueOutcome]:
    """Yield the outcome of each queue that loses a file or a message; the log ends at `log_end`. Waits for the disk."""
    for recovered in queues:
        queue = recovered.cut_at(log_end)
        start = max(recovered.physical_end, log.minimum)
        lost = _lost(queue, log, start, min(log_end, dispatched_from))
        if lost or queue.deleted:
            yield QueueOutcome(
                str(queue.directory),
                queue.directory.parent.name,
                int(queue.directory.name),
                max(queue.end, 0) // queue.unit.itemsize,
                lost,
                tuple(map(str, queue.deleted)),
            )


def _lost(queue: RecoveredQueue, log: CommitLog, start: int, stop: int) -> int:
    """Number of records in [start, stop) of the log to which units behind a queue's end lead."""
    found: dict[int, int] = {}
    for units in units_behind(queue) if start < stop else ():
        places = units["physical_offset"].astype(np.int64)
        inside = units[(places >= start) & (places < stop)]
        found.update(zip(inside["physical_offset"].tolist(), inside["size"].tolist(), strict=True))
    checked = list(found.items())[:MOST_CHECKED]
    return len(found) - sum(log.check(place) != size for place, size in checked)


def doomed_index_files(directory: Path, checkpoint: Checkpoint | None) -> list[Path]:
    """The index files that a broker deletes when it starts after a crash: those newer than its checkpoint knows."""
    known = checkpoint.index_msg_timestamp if checkpoint else 0
    found = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.is_file() and path.name.isdecimal():
            head = read_piece(path, 0, HEADER.size).ljust(HEADER.size, b"\0")
            if HEADER.unpack(head)[1] > known:
                found.append(path)
    return found
