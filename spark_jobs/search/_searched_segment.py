"""A segment as the tasks of a search or look-up see it: a map of the file, or of a copy that is filled as it is needed.

The copy of a segment behind a URL is a hole at first. Tasks say which bytes they are going to look at; these are
fetched once, in long pieces where records lie close together. Only a task writes to the disk of its machine, and
nothing stays there.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from spark_jobs.places.hollow_copy import FilledFile
from spark_jobs.places.place_names import COPIES
from spark_jobs.places.remote_file import RemoteFile, RemoteObject
from storage.files.mapped_file import MappedFile
from storage.log.commit_log import Segment
from storage.ranges import Range

GLANCE_BYTES: Final = 16 * 1024
"""Fetched of a record whose size is not known; most are shorter."""

RECORD_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the longest record of a standard broker: so much behind a piece of the log belongs to its last record."""

CLOSE_BYTES: Final = 256 * 1024
"""Records that lie less far from one another are fetched by one request: it takes as long as one for a few bytes."""


class SearchedSegment(msgspec.Struct, frozen=True, array_like=True):
    """Where a segment lies and how much of it counts, as :class:`Segment` has it.

    `remote` is how it was listed, if its path is a URL.
    """

    path: str
    base_offset: int
    valid_length: int
    boundary: int
    remote: RemoteObject | None = None


class SegmentCopy:
    """A segment, open to be searched; positions are those in its file."""

    def __init__(self, segment: Segment, filled: FilledFile | None = None) -> None:
        """Take a map of the segment's file, or of a copy that is filled so."""
        self.segment = segment
        self._filled = filled

    @property
    def is_whole(self) -> bool:
        """Whether every byte is there anyway."""
        return self._filled is None

    def show(self, start: int, stop: int) -> None:
        """Have the bytes [start, stop) be there, as far as the segment goes; raises RemoteReadError."""
        self._fetch([(max(start, 0), min(stop, self.segment.valid_length))])

    def show_records(self, positions: Sequence[int]) -> None:
        """Have the records be there that start at some positions, ascending; raises RemoteReadError."""
        if self.is_whole or not positions:
            return
        length = self.segment.valid_length
        self._fetch([(start, min(stop, length)) for start, stop in _joined(positions)])
        view = self.segment.file.view
        sizes = (int.from_bytes(view[at : at + 4]) for at in positions)
        ends = ((at, min(at + size, length)) for at, size in zip(positions, sizes, strict=True))
        self._fetch([(at, end) for at, end in ends if at < end])

    def _fetch(self, wanted: Sequence[Range]) -> None:
        if self._filled is not None:
            self._filled.show(wanted)


@contextlib.contextmanager
def opened_segment(place: SearchedSegment) -> Iterator[SegmentCopy]:
    """Open a segment; raises StoreError where it cannot be read, or is no longer the one that was listed."""
    if place.remote is None:
        yield SegmentCopy(_segment(place, Path(place.path)))
        return
    with tempfile.TemporaryDirectory(prefix=COPIES) as directory:
        path = Path(directory, os.path.basename(place.path))
        with path.open("wb") as file:
            file.truncate(place.remote.size)
        with RemoteFile(place.path, "", place.remote) as source:
            yield SegmentCopy(_segment(place, path), FilledFile(source, path))


def _segment(place: SearchedSegment, path: Path) -> Segment:
    return Segment(place.base_offset, MappedFile.open(path), place.valid_length, place.boundary)


def _joined(positions: Sequence[int]) -> Iterator[Range]:
    """Stretches that begin with the records at some positions, those that lie close together in one."""
    start = positions[0]
    for at, following in pairwise(positions):
        if following - at > CLOSE_BYTES:
            yield start, at + GLANCE_BYTES
            start = following
    yield start, positions[-1] + GLANCE_BYTES
