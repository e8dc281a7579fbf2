"""All index files of a store at one moment: which are sound, what they cover, what is left to be scanned.

Coverage is a matter of physical offsets. A sound file covers the records between its first and its last entry, except
in its gaps (:mod:`storage.index_coverage`); the records at both ends may have keys in the file before or after.
Whatever lies between two covered ranges, both ends included, is scanned from the log instead: nothing is taken on
trust.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from protocol.errors import StoreError
from storage.commit_log import CommitLog
from storage.index_coverage import find_gaps
from storage.index_file import DEFAULT_SLOTS, IndexFile, IndexShape, determine_shape, read_header
from storage.index_probe import probe_index_file
from storage.kernels import catalog as table
from storage.mapped_file import FileIdentity, MappedFile
from storage.state_cache import StateCache

HEADER_BYTES = 40
NAME_DIGITS = 17


@dataclass(frozen=True, slots=True)
class CoveringFile:
    """A sound index file that belongs to the log; ``has_tags``: it keeps an entry for each tagged record."""

    index: IndexFile
    has_tags: bool


class IndexSet:
    """The index files of a store, in name order; immutable."""

    def __init__(self, files: list[CoveringFile], problems: list[str], last_update: tuple[int, int]) -> None:
        """Sound files in name order; see :meth:`open`."""
        self.files = tuple(files)
        self.problems = tuple(problems)
        self.last_update = last_update

    @classmethod
    def open(
        cls, directory: Path, commit_log: CommitLog, vouched: tuple[int, int] | None, cache: StateCache
    ) -> "IndexSet":
        """Check every file of a directory; a file that is not sound is a problem and covers nothing.

        ``vouched`` are the slot and entry counts that the user knows. A missing directory has no files. Waits.
        """
        problems: list[str] = []
        opened = list(_open_files(directory, problems))
        files: list[CoveringFile] = []
        hints: list[int] = []
        for file in opened:
            found = _examine(file, commit_log, hints, vouched, cache, problems)
            if found is not None:
                files.append(found)
                if found.index.shape.entries and found.index.shape.slots not in hints:
                    hints.insert(0, found.index.shape.slots)
        return cls([file for file in files if file.index.shape.entries], problems, _last_update(opened))

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
                shape.entries,
                file.heat_address,
                file.descriptor,
                shape.maximum,
                flags,
            )
        return rows


def _open_files(directory: Path, problems: list[str]) -> Iterator[MappedFile]:
    """Files of an index directory in name order; what is none is a problem."""
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
            file = MappedFile.open(path)
        except StoreError as error:
            problems.append(f"{error}; its range is scanned from the log")
            continue
        if file.size < HEADER_BYTES:
            problems.append(f"{path} has {file.size} bytes, an index file at least {HEADER_BYTES}; it is ignored")
            continue
        yield file


def _examine(
    file: MappedFile,
    commit_log: CommitLog,
    hints: list[int],
    vouched: tuple[int, int] | None,
    cache: StateCache,
    problems: list[str],
) -> CoveringFile | None:
    """Shape and soundness of one file, from the cache if it is still the same; None where it can cover nothing."""
    known = cache.shape_of(file.path, file.identity)
    if known is not None and known[3] == _identities(commit_log, known[0]):
        shape, sound, has_tags, _ = known
        cache.note_shape(file.path, file.identity, *known)
    else:
        found = determine_shape(file, [*hints, DEFAULT_SLOTS], vouched)
        if found is None:
            problems.append(
                f"{file.path}: no slot count reproduces its slots and pointers; its range is scanned from the log "
                "(--index-slots and --index-entries tell the counts if you know them)"
            )
            return None
        shape, sound, has_tags = _hold_against_log(IndexFile(file, found), commit_log)
        cache.note_shape(file.path, file.identity, shape, sound, has_tags, _identities(commit_log, shape))
    if not sound:
        problems.append(f"{file.path}: its entries do not belong to this log; its range is scanned from the log")
        return None
    return CoveringFile(IndexFile(file, shape), has_tags)


def _hold_against_log(index: IndexFile, commit_log: CommitLog) -> tuple[IndexShape, bool, bool]:
    """Shape with all gaps known, whether the file belongs to the log, and whether it keeps tag entries."""
    if not index.shape.entries:
        return index.shape, True, False
    probe = probe_index_file(index, commit_log)
    if not (probe.fits and index.shape.ascending):  # no broker writes entries that fall in physical offset
        return index.shape, False, probe.has_tags
    return replace(index.shape, gaps=find_gaps(index, commit_log, probe.has_tags)), True, probe.has_tags


def _identities(commit_log: CommitLog, shape: IndexShape) -> list[FileIdentity]:
    """The states of the segments that a file's entries point into: what was found out holds as long as these do."""
    return [
        segment.file.identity
        for segment in commit_log.segments
        if segment.base_offset <= shape.maximum and segment.base_offset + segment.file.size > shape.minimum
    ]


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
