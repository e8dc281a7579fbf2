"""Facts about the records that index entries point to: whether they exist, and when they were stored.

They are looked up in the order of the log, through a window that moves over their segment by block reads. Only where
topics or tag entries are to be left out are records read whole; else the first bytes of each are enough.
"""

from dataclasses import dataclass

import numpy as np

from spark_jobs.compact._log_cells import segment_limit
from spark_jobs.scan.probe_store import SegmentPlace
from spark_jobs.scan.segment_window import LONGEST_RECORD, SegmentWindow
from storage.kernels.index_entries import NO_RECORD, read_heads, read_records
from storage.kernels.records import MINIMUM_SIZE


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """Of each record: its fate (KEEP, NO_RECORD, LEFT_OUT), when it was stored (ms), the hash of its tag entry or −1.

    The latter two are undefined where there is no record.
    """

    fates: np.ndarray
    timestamps: np.ndarray
    tags: np.ndarray


class RecordReader:
    """Looks records of one segment up."""

    def __init__(self, window: SegmentWindow, limit: int, topics: tuple[bytes, ...], *, drop_tags: bool) -> None:
        """Records end at the position `limit`. Those of `topics` are to be left out, tag entries with `drop_tags`."""
        self._window, self._limit = window, min(limit, window.size)
        self._topics = topics
        self._drop_tags = drop_tags
        self._is_whole = bool(topics) or drop_tags

    def look(self, positions: np.ndarray) -> RecordFacts:
        """The facts of records at ascending positions of the segment."""
        count = len(positions)
        facts = RecordFacts(
            np.full(count, NO_RECORD, dtype=np.uint8),
            np.zeros(count, dtype=np.int64),
            np.full(count, -1, dtype=np.int64),
        )
        number = 0
        while number < count:
            if self._show(int(positions[number])):
                number = self._read(positions, number, facts)
            else:
                number += 1
        return facts

    def _show(self, position: int) -> bool:
        """Bring what is needed of one record into the window; whether there may be one."""
        if position + MINIMUM_SIZE > self._limit or not self._window.show(position, MINIMUM_SIZE):
            return False
        size = self._window.i32(position)
        if not MINIMUM_SIZE <= size <= min(self._limit - position, LONGEST_RECORD):
            return False
        return not self._is_whole or self._window.show(position, size)

    def _read(self, positions: np.ndarray, number: int, facts: RecordFacts) -> int:
        window = self._window
        place = (window.region, window.start, window.filled, self._limit, window.base_offset, positions, number)
        if not self._is_whole:
            return read_heads(*place, facts.fates, facts.timestamps)
        return read_records(*place, self._topics, self._drop_tags, facts.fates, facts.timestamps, facts.tags)


def has_record(segments: tuple[SegmentPlace, ...], physical_offset: int) -> bool:
    """Whether a record starts at a physical offset."""
    for number, place in enumerate(segments):
        limit = segment_limit(segments, number)
        if place.base_offset <= physical_offset < limit:
            with SegmentWindow(place.path, place.base_offset, place.remote) as window:
                reader = RecordReader(window, limit - place.base_offset, (), drop_tags=False)
                positions = np.array([physical_offset - place.base_offset], dtype=np.int64)
                return bool(reader.look(positions).fates[0] != NO_RECORD)
    return False
