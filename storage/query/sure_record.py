"""Find a record and make sure, from a few pages of the store's files, that it belongs to the log.

To find the end of the log its whole last segment has to be read (:mod:`storage.log.segment_end`), because records that
were left over when a broker cut its log look like others. That is up to 1 GiB, too much for one record. A record is
certainly before the log's end if

- another segment follows, and starts with an intact record, or
- intact records lead to it without a gap from the start of its segment, or
- other files of the store confirm a record after it, or one shortly before it with intact records in between. The
  newest index file names the confirmed record as the last one that was dispatched, with its store time; its queue has
  it in its place; the checkpoint has no later time; and if the file `abort` shows that the broker was not shut down
  properly since its start, the record was stored after that start. The reason for these conditions: a broker cuts its
  log when it starts, keeps the index entries of the part that it cut off, and adds none until its log is as long again.
  Whether an index entry is from before the cut is seen from the time of the broker's start at once, and from the
  checkpoint within a minute, or at the latest when the broker stops.

A record for which none of this is true may still belong to the log; to find out, the log has to be opened.
"""

import os
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from protocol.errors import StoreError
from storage.files.hollow_files import is_undated
from storage.files.mapped_file import LARGEST_OFFSET, MappedFile
from storage.index.index_header import HEADER, is_index_name, read_header
from storage.kernels.records import check_intact, record_start, store_timestamp, walk_records
from storage.kernels.store_view import LogView
from storage.layout.checkpoint import Checkpoint
from storage.layout.store_layout import ABORT, StoreLayout
from storage.log.segment_end import TOLERATED_MS
from storage.log.segment_list import list_segments, reaches_beyond
from storage.queue.queue_place import is_in_place

WALKED_BYTES: Final = 1 << 20
"""Most bytes of log that are read from a confirmed record to the one asked for."""


def sure_record_at(layout: StoreLayout, physical_offset: int) -> memoryview | None:
    """Return the intact record that starts at a physical offset, a slice of the map; None if it is not certain.

    Waits for the disk. Raises StoreError where a directory of the log cannot be listed.
    """
    paths = list_segments(layout.commit_log_directories, [])
    number = bisect_right(paths, physical_offset, key=itemgetter(0)) - 1
    try:
        segment = None if number < 0 else _open(paths[number:])
        if segment is None:
            return None
        record = LogView([(segment.base_offset, segment.file, segment.length)]).record_at(physical_offset, 0)
        if isinstance(record, int):
            return None
        is_sure = _is_followed(paths[number:]) or _is_before_end(layout, segment, physical_offset, len(record))
    except StoreError:  # opening the store reports this error, or passes over the damage
        return None
    return record if is_sure else None


class _Segment(NamedTuple):
    base_offset: int
    file: MappedFile
    length: int
    """Bytes before the start of the next segment."""

    def has_records(self, start: int, stop: int) -> bool:
        """Whether intact records lead from one physical offset to another."""
        base, boundary = self.base_offset, self.base_offset + self.length
        if not base <= start <= stop <= boundary:
            return False
        reached = walk_records(self.file.region, start - base, stop - base, base, boundary, True).position
        return record_start(self.file.region, reached, stop - base, base + reached) == stop - base


def _open(paths: Sequence[tuple[int, Path]]) -> _Segment | None:
    """Open the first of some segments; None where its file is too short for a record."""
    base_offset, path = paths[0]
    file = MappedFile.open(path)
    if not file.size or reaches_beyond(base_offset, file.size):
        return None
    return _Segment(base_offset, file, min([file.size, *(base - base_offset for base, _ in paths[1:2])]))


def _is_followed(paths: Sequence[tuple[int, Path]]) -> bool:
    """Whether the segment after the first one starts with an intact record."""
    segment = _open(paths[1:]) if len(paths) > 1 else None
    if segment is None:
        return False
    region, base = segment.file.region, segment.base_offset
    start = record_start(region, 0, segment.length, base)
    return check_intact(region, start, segment.length, base + start) > 0


def _is_before_end(layout: StoreLayout, segment: _Segment, physical_offset: int, size: int) -> bool:
    """Whether an intact record of the last segment is certainly before the log's end."""
    if physical_offset - segment.base_offset <= WALKED_BYTES and segment.has_records(
        segment.base_offset, physical_offset
    ):
        return True
    witness = _last_indexed(layout, segment)
    if witness is None:
        return False
    if physical_offset + size <= witness:
        return True
    return physical_offset - witness <= WALKED_BYTES and segment.has_records(witness, physical_offset)


def _last_indexed(layout: StoreLayout, segment: _Segment) -> int | None:
    """Return the physical offset of the last record in the newest index file, if queue and checkpoint confirm it.

    None otherwise, and if the record is in another segment.
    """
    try:
        name = max(filter(is_index_name, os.listdir(layout.index)), default=None)
    except OSError:
        return None
    index = None if name is None else MappedFile.open(layout.index / name)
    checkpoint = Checkpoint.read(layout.checkpoint)
    if index is None or index.size < HEADER.size or checkpoint is None:
        return None
    header = read_header(index)
    physical_offset, file = header.end_physical_offset, segment.file
    position = physical_offset - segment.base_offset
    if not 0 <= position < segment.length:
        return None
    size = check_intact(file.region, position, segment.length, physical_offset)
    if size <= 0 or store_timestamp(file.region, position) != header.end_timestamp:
        return None
    latest = max(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp)  # 0 in a checkpoint without values
    if not 0 < latest <= header.end_timestamp + TOLERATED_MS or header.end_timestamp < _started(layout):
        return None
    return physical_offset if is_in_place(layout.root, file.read(position, size), physical_offset) else None


def _started(layout: StoreLayout) -> int:
    """Return the start time in ms of a broker that was not shut down properly since; 0 without one."""
    try:
        if is_undated(layout.root / ABORT):
            return LARGEST_OFFSET
        return -(-os.stat(layout.root / ABORT).st_mtime_ns // 1_000_000)
    except FileNotFoundError:
        return 0
    except OSError:
        return LARGEST_OFFSET
