"""All index files of a store at one moment: which are sound, what they cover, what remains to be scanned.

Coverage is a matter of physical offsets. A sound file covers the records between its first and its last entry, except
in its gaps (:mod:`storage.index._index_coverage`); the records at both ends may have keys in the file before or after.
Whatever lies between two covered ranges, both ends included, is scanned from the log instead: nothing is taken on
trust. Files of our own (:mod:`storage.store._kept_entries`) hold what was scanned before.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from protocol.errors import StoreError
from storage.files.mapped_file import FileIdentity, MappedFile
from storage.index.index_examination import (
    Counts,
    CoveringFile,
    Examined,
    examine,
    examine_again,
    identity_now,
    look_over,
    recall,
)
from storage.index.index_glance import checking_cost
from storage.index.index_header import is_index_name, read_header
from storage.index.state_cache import StateCache
from storage.kernels.store_view import FileView, IndexFilesView
from storage.log.commit_log import CommitLog
from storage.ranges import Range, Ranges, merge

__all__ = ["CoveringFile", "IndexSet", "uncovered_by"]

HEADER_BYTES = 40
LARGEST_NUMBER = 2**31 - 1
"""The largest number of an entry: pointers are i32."""


class IndexSet:
    """The index files of a store, in name order, and our own; immutable."""

    def __init__(
        self,
        files: Iterable[CoveringFile],
        problems: Iterable[str],
        last_update: tuple[int, int],
        examined: Iterable[Examined] = (),
        kept: Iterable[Examined] = (),
        kept_state: FileIdentity | None = None,
    ) -> None:
        """Sound files in name order; ``problems`` are those of the directory. See :meth:`open`, :meth:`with_kept`."""
        self.files = tuple(files)
        self.last_update = last_update
        self._own_problems = tuple(problems)
        self._examined = tuple(examined)
        self.examined_kept = tuple(kept)
        self.kept_state = kept_state
        self.kept = tuple(found.covering for found in self.examined_kept if found.covering is not None)
        """Files of our own that cover what the store's do not."""
        self.problems = (*self._own_problems, *(found.problem for found in self._examined if found.problem is not None))

    @classmethod
    def open(
        cls,
        directory: Path,
        commit_log: CommitLog,
        vouched: Counts | None,
        cache: StateCache,
        budget: int | None = None,
    ) -> "IndexSet":
        """Look at every file of a directory; a file that is not sound is a problem and covers nothing.

        ``vouched`` are the slot and entry counts that the user knows. Up to about ``budget`` bytes of files are checked
        whole, the newest ones, None: all. A missing directory has no files. Waits.
        """
        return cls([], [], (0, 0)).renewed(directory, commit_log, vouched, cache, budget=budget)

    def renewed(
        self,
        directory: Path,
        commit_log: CommitLog,
        vouched: Counts | None,
        cache: StateCache,
        *,
        thorough: bool = False,
        budget: int | None = None,
    ) -> "IndexSet":
        """The files as they are now: examined are new ones, and of those known what came to them. Waits.

        ``thorough``: known ones too that were written to, whole; a broker writes to a file that it fills, so that would
        cost more than what changed. ``budget`` is as for :meth:`open`.
        """
        problems: list[str] = []
        known = {found.file: found for found in self._examined}
        files = list(_open_files(directory, [found.file for found in self._examined], problems))
        for file in [file for file in known if thorough and identity_now(file) != known[file].identity]:
            del known[file]
        new = {file: recall(file, commit_log, cache) for file in files if file not in known}
        unchecked = _beyond(budget, [file for file, found in new.items() if found is None])
        hints: list[int] = []
        examined: list[Examined] = []
        for file in files:
            if file in known:
                found = examine_again(known[file], commit_log, hints, vouched, cache)
            elif file in unchecked:
                found = look_over(file, commit_log, hints, vouched)
            else:
                found = new[file] or examine(file, commit_log, hints, vouched, cache)
            examined.append(found)
            shape = found.covering.index.shape if found.covering else None
            if shape and shape.entries and shape.slots not in hints:
                hints.insert(0, shape.slots)
        return _made_of(examined, problems, self.examined_kept, self.kept_state)

    def with_checked(self, before: Examined, now: Examined) -> "IndexSet":
        """The set with another examination of one file; the set itself where it does not hold the one before."""
        if not any(found is before for found in (*self._examined, *self.examined_kept)):
            return self
        examined = [now if found is before else found for found in self._examined]
        kept = [now if found is before else found for found in self.examined_kept]
        return _made_of(examined, self._own_problems, kept, self.kept_state)

    def with_kept(self, state: FileIdentity | None, kept: Sequence[Examined]) -> "IndexSet":
        """The set with these files of our own; ``state`` is that of the manifest that named them."""
        return _made_of(self._examined, self._own_problems, kept, state)

    @property
    def all_files(self) -> tuple[CoveringFile, ...]:
        """The files of the store and our own."""
        return (*self.files, *self.kept)

    @property
    def unchecked(self) -> tuple[Examined, ...]:
        """Files that were only looked over, the newest first."""
        return tuple(found for found in (*self.examined_kept, *self._examined)[::-1] if not found.checked)

    @property
    def slot_counts(self) -> list[int]:
        """The slot counts of sound files, each once, the newest first."""
        return list(dict.fromkeys(file.index.shape.slots for file in self.files[::-1]))

    def examined(self, file: FileView) -> Examined | None:
        """The examination of a file, None for a file that is not among these."""
        return next((found for found in (*self._examined, *self.examined_kept) if found.file is file), None)

    def is_as(self, other: "IndexSet") -> bool:
        """Whether two sets would answer alike: the same files in the same shape."""
        left = (self.files, self.kept, self.kept_state, self.problems, self.last_update, len(self.unchecked))
        right = (other.files, other.kept, other.kept_state, other.problems, other.last_update, len(other.unchecked))
        return left == right

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

    def uncovered(self, minimum: int, end: int) -> list[Range]:
        """Ranges of physical offsets, [from, to), where the keys of a record that starts there may be missing."""
        return _uncovered(self.all_files, minimum, end)

    def uncovered_by_store(self, minimum: int, end: int) -> list[Range]:
        """Ranges, as :meth:`uncovered` gives them, for which the files of the store alone may lack keys."""
        return _uncovered(self.files, minimum, end)

    @property
    def of_our_own(self) -> Ranges:
        """Ranges of physical offsets that files of our own cover, which have the keys of messages in batches too."""
        return merge(part for file in self.all_files for part in file.ranges or ())

    def without_tags(self) -> list[tuple[int, int]]:
        """Ranges of physical offsets, both ends included, of the files that keep no tag entries."""
        return [(file.index.shape.minimum, file.index.shape.maximum) for file in self.files if not file.has_tags]

    @property
    def untagged(self) -> bool:
        """Whether any file keeps no tag entries."""
        return any(not file.has_tags for file in self.files)

    @cached_property
    def view(self) -> IndexFilesView:
        """The files as kernels see them; none that has room for no entry."""
        # Not the entries known: chains may start at those that were put meanwhile, and lead down to known ones.
        return IndexFilesView(
            (
                index.file,
                index.shape.slots,
                min(index.capacity, LARGEST_NUMBER),
                index.shape.maximum,
                index.shape.ascending,
                file.has_tags,
                index.shortcuts,
            )
            for file in self.all_files
            if (index := file.index).capacity > 0
        )


def _beyond(budget: int | None, files: Sequence[MappedFile]) -> set[MappedFile]:
    """Which files there is no time to check: all but the newest ones that about a budget of bytes allows."""
    unchecked = set()
    for file in files[::-1]:
        cost = checking_cost(file)
        if budget is not None and cost > budget:
            unchecked.add(file)
            budget = 0
        elif budget is not None:
            budget -= cost
    return unchecked


def _made_of(
    examined: Sequence[Examined], problems: Iterable[str], kept: Sequence[Examined], kept_state: FileIdentity | None
) -> IndexSet:
    files = [found.covering for found in examined if found.covering and found.covering.index.shape.entries]
    return IndexSet(files, problems, _last_update([found.file for found in examined]), examined, kept, kept_state)


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
        if not is_index_name(name):
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


def _uncovered(files: Iterable[CoveringFile], minimum: int, end: int) -> list[Range]:
    return uncovered_by((part for file in files for part in _covered(file)), minimum, end)


def uncovered_by(parts: Iterable[Range], minimum: int, end: int) -> list[Range]:
    """Ranges [from, to) of a log where keys may be missing in files that cover some parts of it.

    A part is the physical offsets of its first and its last record, which may have keys in other files too.
    """
    covered = sorted((start, stop) for start, stop in parts if stop > minimum and start < end)
    ranges: list[Range] = []
    reached = minimum
    for start, stop in covered:
        if start >= reached:
            ranges.append((reached, min(start + 1, end)))
        reached = max(reached, stop)
    if reached < end:
        ranges.append((max(reached, minimum), end))
    return [(start, stop) for start, stop in ranges if start < stop]


def _covered(file: CoveringFile) -> Iterator[Range]:
    """Parts of the log a file covers, as (first, last) physical offsets of records that may be covered in part only."""
    if file.ranges is not None:
        yield from ((start - 1, stop) for start, stop in file.ranges)
        return
    start = file.index.shape.minimum
    for gap_start, gap_stop in file.index.shape.gaps:
        yield start, gap_start
        start = gap_stop
    yield start, file.index.shape.maximum
