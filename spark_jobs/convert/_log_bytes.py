"""Bytes of a log by physical offset, of the store that is rescued and of copies of it: read, never mapped.

A file that is cut meanwhile has fewer bytes, and what the owner of a store may have planted is refused
(:mod:`storage.files.kept_files`).
"""

import bisect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spark_jobs.scan.probe_store import SegmentPlace
from storage.files.kept_files import copy_range, open_kept
from storage.files.own_directories import HeldDirectory
from storage.kernels.records import TOTAL_SIZE, check_intact, find_intact_backwards
from storage.kernels.region import Region
from storage.log.log_window import LONGEST_RECORD

_PIECES: Final = (1 << 16, 1 << 23, LONGEST_RECORD)
"""Bytes in which a record is looked for, the few in which it mostly is first."""


class LogBytes:
    """The segments of a log."""

    def __init__(self, places: Sequence[SegmentPlace]) -> None:
        """Nothing is opened yet; `places` are in order."""
        self.places = places
        self._bases = [place.base_offset for place in places]

    @property
    def end(self) -> int:
        """The physical offset behind the last segment's file, 0 without any."""
        return self.places[-1].base_offset + self.places[-1].size if self.places else 0

    def base_of(self, physical_offset: int) -> int:
        """Where the segment starts that holds a byte, −1 where none does."""
        place = self._place_of(physical_offset)
        return -1 if place is None else place.base_offset

    def read(self, start: int, count: int) -> bytes:
        """Bytes from a physical offset on; fewer where there are no more, or where the segment ends."""
        place = self._place_of(start)
        if place is None:
            return b""
        descriptor = _open(place)
        try:
            return os.pread(descriptor, count, start - place.base_offset)
        finally:
            os.close(descriptor)

    def copy(self, start: int, stop: int, target: int, to: int) -> int:
        """Copy bytes [start, stop) to a position of an open file; where the first of them is that there is not."""
        at = start
        while at < stop and (place := self._place_of(at)) is not None:
            descriptor, base = _open(place), place.base_offset
            try:
                count = copy_range(descriptor, target, at - base, min(stop - base, place.size), to + at - start)
            finally:
                os.close(descriptor)
            if not count:
                break
            at += count
        return at

    def record_before(self, stop: int) -> bytes:
        """The intact record that ends at a physical offset, b"" without one in its segment."""
        base = self.base_of(stop - 1)
        for size in _PIECES if base >= 0 else ():
            start = max(stop - size, base)
            piece = Region(self.read(start, stop - start))
            at = find_intact_backwards(piece, 0, piece.size, piece.size, start) if piece.size == stop - start else -1
            if at >= 0:
                is_last = at + check_intact(piece, at, piece.size, start + at) == piece.size
                return bytes(piece)[at:] if is_last else b""
            if start == base:
                break
        return b""

    def record_at(self, start: int) -> bytes:
        """The intact record that starts at a physical offset, b"" without one."""
        head = self.read(start, TOTAL_SIZE + 4)
        size = int.from_bytes(head[TOTAL_SIZE:], "big", signed=True)
        if not 0 < size <= LONGEST_RECORD:
            return b""
        record = self.read(start, size)
        return record if len(record) == size and check_intact(Region(record), 0, size, start) == size else b""

    def _place_of(self, physical_offset: int) -> SegmentPlace | None:
        number = bisect.bisect_right(self._bases, physical_offset) - 1
        place = self.places[number] if number >= 0 else None
        return place if place is not None and physical_offset < place.base_offset + place.size else None


def _open(place: SegmentPlace) -> int:
    path = Path(place.path)
    with HeldDirectory.open(path.parent) as directory:
        return open_kept(directory, path.name)
