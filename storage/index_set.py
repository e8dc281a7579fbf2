"""All index files of a store at one moment: which are sound, what they cover, what is left to be scanned.

Coverage is a matter of physical offsets. A sound file covers the records between its first and its last entry, except
in its gaps (:mod:`storage.index_coverage`); the records at both ends may have keys in the file before or after.
Whatever lies between two covered ranges, both ends included, is scanned from the log instead: nothing is taken on
trust.
"""

import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from protocol.errors import StoreError
from storage.commit_log import CommitLog
from storage.index_examination import Counts, CoveringFile, Examined, examine, examine_again, identity_now
from storage.index_file import IndexFile, read_header
from storage.kernels import catalog as table
from storage.mapped_file import MappedFile
from storage.state_cache import StateCache

__all__ = ["CoveringFile", "IndexSet"]

HEADER_BYTES = 40
NAME_DIGITS = 17


class IndexSet:
    """The index files of a store, in name order; immutable."""

    def __init__(
        self,
        files: Iterable[CoveringFile],
        problems: Iterable[str],
        last_update: tuple[int, int],
        examined: Iterable[Examined] = (),
    ) -> None:
        """Sound files in name order; see :meth:`open`."""
        self.files = tuple(files)
        self.problems = tuple(problems)
        self.last_update = last_update
        self._examined = tuple(examined)

    @classmethod
    def open(cls, directory: Path, commit_log: CommitLog, vouched: Counts | None, cache: StateCache) -> "IndexSet":
        """Check every file of a directory; a file that is not sound is a problem and covers nothing.

        ``vouched`` are the slot and entry counts that the user knows. A missing directory has no files. Waits.
        """
        return cls([], [], (0, 0)).renewed(directory, commit_log, vouched, cache)

    def renewed(
        self,
        directory: Path,
        commit_log: CommitLog,
        vouched: Counts | None,
        cache: StateCache,
        *,
        thorough: bool = False,
    ) -> "IndexSet":
        """The files as they are now: examined are new ones, and of those known what came to them. Waits.

        ``thorough``: known ones too that were written to, whole; a broker writes to a file that it fills, so that would
        cost more than what changed.
        """
        problems: list[str] = []
        known = {found.file: found for found in self._examined}
        examined: list[Examined] = []
        hints: list[int] = []
        for file in _open_files(directory, [found.file for found in self._examined], problems):
            before = known.get(file)
            if before is None or (thorough and identity_now(file) != before.identity):
                found = examine(file, commit_log, hints, vouched, cache)
            else:
                found = examine_again(before, commit_log, hints, vouched, cache)
            examined.append(found)
            if found.problem is not None:
                problems.append(found.problem)
            shape = found.covering.index.shape if found.covering else None
            if shape and shape.entries and shape.slots not in hints:
                hints.insert(0, shape.slots)
        files = [found.covering for found in examined if found.covering and found.covering.index.shape.entries]
        return IndexSet(files, problems, _last_update([found.file for found in examined]), examined)

    def is_as(self, other: "IndexSet") -> bool:
        """Whether two sets would answer alike: the same files in the same shape."""
        return (self.files, self.problems, self.last_update) == (other.files, other.problems, other.last_update)

    @cached_property
    def extent(self) -> tuple[int, int, int, int]:
        """First and last timestamp (ms), lowest and highest physical offset of all entries; zeros without any.

        Looked up once: every query that finds nothing says it.
        """
        headers = [file.index.header for file in self.files]
        shapes = [file.index.shape for file in self.files]
        return (
            min((header.begin_timestamp for header in headers), default=0),
            max((header.end_timestamp for header in headers), default=0),
            min((shape.minimum for shape in shapes), default=0),
            max((shape.maximum for shape in shapes), default=0),
        )

    def uncovered(self, minimum: int, end: int) -> list[tuple[int, int]]:
        """Ranges of physical offsets, [from, to), where the keys of a record that starts there may be missing."""
        covered = sorted(
            (start, stop)
            for file in self.files
            for start, stop in _covered(file.index)
            if stop > minimum and start < end
        )
        ranges: list[tuple[int, int]] = []
        reached = minimum
        for start, stop in covered:
            if start >= reached:
                ranges.append((reached, min(start + 1, end)))
            reached = max(reached, stop)
        if reached < end:
            ranges.append((max(reached, minimum), end))
        return [(start, stop) for start, stop in ranges if start < stop]

    def without_tags(self) -> list[tuple[int, int]]:
        """Ranges of physical offsets, both ends included, of the files that keep no tag entries."""
        return [(file.index.shape.minimum, file.index.shape.maximum) for file in self.files if not file.has_tags]

    @property
    def untagged(self) -> bool:
        """Whether any file keeps no tag entries."""
        return any(not file.has_tags for file in self.files)

    @cached_property
    def catalog_rows(self) -> np.ndarray:
        """Rows of :mod:`storage.kernels.catalog`, shape (files, 8), int64, by falling largest physical offset."""
        rows = np.zeros((len(self.files), table.INDEX_ROW), dtype=np.int64)
        ordered = sorted(self.files, key=lambda file: file.index.shape.maximum, reverse=True)
        for row, covering in zip(rows, ordered, strict=True):
            shape, file = covering.index.shape, covering.index.file
            flags = (table.ASCENDING if shape.ascending else 0) | (table.HAS_TAGS if covering.has_tags else 0)
            row[:] = (
                file.address,
                file.size,
                shape.slots,
                # Not those known: chains may start at entries that were put meanwhile, and lead down to known ones.
                covering.index.capacity,
                file.heat_address,
                file.descriptor,
                shape.maximum,
                flags,
            )
        return rows


def _open_files(directory: Path, known: Iterable[MappedFile], problems: list[str]) -> Iterator[MappedFile]:
    """Files of an index directory in name order, known ones as they are mapped; what is none is a problem."""
    by_path = {file.path: file for file in known}
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(
            f"{directory} cannot be listed: {os.strerror(error.errno or 0)}; every key is looked for in the log"
        )
        return
    for name in names:
        path = directory / name
        if not (len(name) == NAME_DIGITS and name.isdecimal()):
            problems.append(f"{path} is no index file and is ignored")
            continue
        try:
            file = MappedFile.of(path, by_path.get(path))
        except StoreError as error:
            problems.append(f"{error}; its range is scanned from the log")
            continue
        if file.size < HEADER_BYTES:
            problems.append(f"{path} has {file.size} bytes, an index file at least {HEADER_BYTES}; it is ignored")
            continue
        yield file


def _last_update(files: list[MappedFile]) -> tuple[int, int]:
    """End timestamp (ms) and end physical offset that the newest file's header states; zeros without a file."""
    if not files:
        return 0, 0
    header = read_header(files[-1])
    return header.end_timestamp, header.end_physical_offset


def _covered(index: IndexFile) -> Iterator[tuple[int, int]]:
    """Parts of the log a file covers, as (first, last) physical offsets of records that may be covered in part only."""
    start = index.shape.minimum
    for gap_start, gap_stop in index.shape.gaps:
        yield start, gap_start
        start = gap_stop
    yield start, index.shape.maximum
