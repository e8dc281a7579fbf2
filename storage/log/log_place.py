"""Where the next record of a log will start: behind the last one, or where that segment is full in the next one's file.

What lies there is looked at by reading until something does: a file that was cut under its map answers a look at the
map with SIGBUS.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from protocol.errors import StoreError
from storage.files.mapped_file import SEGMENT_NAME_DIGITS, MappedFile, list_segment_files
from storage.kernels.records import ENTRY_OF_RECORD, ENTRY_SIZE, check_intact, record_start
from storage.log.commit_log import CommitLog

HEAD_BYTES: Final = 8
NOTHING: Final = bytes(HEAD_BYTES)
"""The bytes of a place where nothing was written."""


Watched: TypeAlias = tuple[MappedFile, int, int, bytes]


class RecordPlace(NamedTuple):
    """Where a record starts, or the next one will."""

    base_offset: int
    file: MappedFile
    position: int

    @classmethod
    def of(cls, log: CommitLog, physical_offset: int) -> "RecordPlace | None":
        """The place of a physical offset in a log; None where no segment holds it."""
        segment = log.segment_of(physical_offset)
        return (
            None if segment is None else cls(segment.base_offset, segment.file, physical_offset - segment.base_offset)
        )

    @property
    def physical_offset(self) -> int:
        """The physical offset of this place."""
        return self.base_offset + self.position

    def peek(self, length: int) -> bytes:
        """What lies there now, up to the end of the segment's file; read and not mapped."""
        return self.file.peek(self.position, length)

    def watched(self, length: int, content: bytes) -> Watched:
        """What :func:`storage.kernels.store_view.stay_alike` watches: that `peek` gives this content."""
        return self.file, self.position, length, content

    def has_nothing(self) -> bool:
        """Whether nothing was written there."""
        return self.peek(HEAD_BYTES) == NOTHING

    def is_intact(self) -> bool:
        """Whether an intact record starts there, behind DLedger's head or without one, or an entry without a record."""
        start = record_start(self.file.region, self.position, self.file.size, self.physical_offset)
        if start > self.position and int.from_bytes(self.peek(ENTRY_SIZE)) != ENTRY_OF_RECORD:
            return True
        return check_intact(self.file.region, start, self.file.size, self.base_offset + start) > 0


def place_behind(log: CommitLog, directories: Sequence[Path]) -> RecordPlace | None:
    """Behind the last record, or where its segment is full at the start of the next; None while that is missing."""
    if not log.segments:
        return None
    last = log.segments[-1]
    place = RecordPlace(last.base_offset, last.file, last.valid_length)
    return place if place.position < place.file.size else start_behind(place, directories)


def start_behind(place: RecordPlace, directories: Sequence[Path]) -> RecordPlace | None:
    """The start of the segment behind a place's own, if its file is there at its full length."""
    base_offset = place.base_offset + place.file.size
    for path in _paths_of(base_offset, place.file.path, directories):
        try:
            file = MappedFile.open(path)
        except StoreError:  # it is about to come, or to go
            continue
        if file.size == place.file.size:
            return RecordPlace(base_offset, file, 0)
    return None


def _paths_of(base_offset: int, neighbour: Path, directories: Sequence[Path]) -> Iterator[Path]:
    """Where the segment of an offset may lie; its name is in the digits of its neighbour's."""
    for directory in directories:
        if neighbour.name.isascii():
            path = directory / f"{base_offset:0{SEGMENT_NAME_DIGITS}d}"
            if path.exists():
                yield path
        else:
            yield from (path for base, path in list_segment_files(directory)[0] if base == base_offset)
