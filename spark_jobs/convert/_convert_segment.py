"""The task that makes one segment of a plain log from one of a log that may be DLedger's.

The new segment has the same physical offset and the same size as the old one. Its records follow one another in their
order without the heads of DLedger's entries, and without what is damaged, so that each lies where it lay or before;
a BLANK closes it, behind which nothing is written: on the disk the rest of the file is a hole. So where a record goes
depends on its own segment alone, no record comes to lie across the end of one, and what expires together still does.
"""

import mmap
import os
from functools import partial
from typing import Final

import msgspec
import numpy as np

from protocol.message_layout import BLANK_MAGIC, RECORD_START
from spark_jobs.places.remote_file import RemoteObject
from spark_jobs.run.attempt import Attempt, Notify, block_file, is_made, run_attempt
from spark_jobs.run.blocks import BlockWriter
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.segment_walk import SegmentWalk, WalkSummary
from spark_jobs.scan.segment_window import SegmentWindow
from storage.build.dispatch_scan import Step
from storage.files.direct_writer import CHUNK, GrowingFile, aligned_memory
from storage.kernels.moving import RecordMover

PHASE: Final = "convert"
MOVES: Final = "moves"
LINKS: Final = "links"
"""The kinds of blocks that a task leaves: where records were and are, and which half messages are elsewhere."""


class ConvertTask(msgspec.Struct, frozen=True):
    """The segment to read, as in :class:`spark_jobs.scan.segment_walk.SegmentTask`, and the one to write.

    `size` are the bytes of the new file, at `out` in the end; `closes`: the log goes on in another segment.
    `modified_ns` is when the old file was written last, -1 where that is not known: a broker deletes by it.
    """

    work: str
    path: str
    base_offset: int
    limit: int
    boundary: int
    ends_log: bool
    out: str
    size: int
    closes: bool
    modified_ns: int
    remote: RemoteObject | None = None

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-{self.base_offset:020d}"


class ConvertedSegment(WalkSummary):
    """Records that were moved: `used` bytes, the last of them at `last_record` (-1: none), and `links` elsewhere."""

    used: int
    last_record: int
    links: int


def convert_segment(task: ConvertTask) -> ConvertedSegment:
    """Write one segment and fsync it; what was moved, as left in the work directory.

    The driver has to bring the file to its place, by :func:`spark_jobs.run.attempt.take_made`.
    """
    record: ConvertedSegment = run_attempt(task.work, task.name, partial(_convert, task), partial(_is_whole, task))
    return record


def moves_path(work: WorkDirectory, done: ConvertedSegment) -> str:
    """The file that says where the records of a segment were and are."""
    return str(block_file(work, done, MOVES))


def _convert(task: ConvertTask, attempt: Attempt, notify: Notify) -> ConvertedSegment:
    memory = aligned_memory(task.size)
    with (
        SegmentWindow(task.path, task.base_offset, task.remote) as window,
        BlockWriter(attempt.blocks(MOVES), task.path) as moves,
        BlockWriter(attempt.blocks(LINKS), task.path) as links,
        GrowingFile(attempt.partial, memory, forget=True) as file,
    ):
        mover = RecordMover(memory, task.size, task.base_offset, CHUNK)
        walk = _Conversion(task, window, mover, file, links, notify)
        walk.walk()
        file.finish(_close(task, memory, mover.used), task.size)
        made = np.frombuffer(mover.moves_made(), np.uint32).reshape(-1, 2)
        moves.write(task.base_offset, task.base_offset + mover.used, {"before": made[:, 0], "after": made[:, 1]})
    if task.modified_ns >= 0:
        os.utime(attempt.partial, ns=(task.modified_ns, task.modified_ns))
    return walk.finished()


def _close(task: ConvertTask, memory: mmap.mmap, used: int) -> int:
    """Write the BLANK, if the log goes on behind this segment; how many bytes are used then."""
    left = task.size - used
    if not task.closes or left < RECORD_START.size:
        return used
    RECORD_START.pack_into(memory, used, left, BLANK_MAGIC)
    return used + RECORD_START.size


def _is_whole(task: ConvertTask, work: WorkDirectory, done: ConvertedSegment) -> bool:
    return is_made(work, done, task.out, task.size)


class _Conversion(SegmentWalk):
    """One pass over a segment, moving its records."""

    def __init__(
        self,
        task: ConvertTask,
        window: SegmentWindow,
        mover: RecordMover,
        file: GrowingFile,
        links: BlockWriter,
        notify: Notify,
    ) -> None:
        super().__init__(task, window, notify)
        self._mover, self._file, self._links = mover, file, links
        self._linked = 0

    def finished(self) -> ConvertedSegment:
        """The record of what was moved."""
        return {
            **self.summary(),
            "used": self._mover.used,
            "last_record": self._mover.last_record,
            "links": self._linked,
        }

    def _run(self, position: int, available: int, limit: int) -> Step:
        window, start = self._window, self._window.base_offset + self._window.start
        return self._mover.run(window.region, position, available, start, self._boundary, limit)

    def _flush(self) -> None:
        links = np.frombuffer(self._mover.take_links(), np.int64).reshape(-1, 2)
        if len(links):
            base = self._window.base_offset
            self._links.write(base, base + self._mover.used, {"positions": links[:, 0], "halves": links[:, 1]})
            self._linked += len(links)
        self._records, self._last_timestamp = self._mover.records, self._mover.last_timestamp
        self._file.settle(self._mover.used)
