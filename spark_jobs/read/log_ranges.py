"""Which stretches of a log there are to read, of a store on this machine or behind any URL that fsspec knows.

The end of a local store's log is found as the server finds it. Of a log behind a URL only names and sizes are looked
at, and its end is found by reading the last segment.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from protocol.errors import NotAStore, StoreError
from spark_jobs.places.file_systems import file_system, is_url, local_path, said
from spark_jobs.places.remote_file import RemoteFile, open_source, persist
from storage.columns.rows import PIECE_BYTES, RowReader
from storage.columns.wanted import Wanted
from storage.files.mapped_file import (
    LARGEST_OFFSET,
    SEGMENT_NAME_DIGITS,
    list_segment_files,
    segment_offset,
)
from storage.layout.dledger import DATA, is_ledger
from storage.layout.store_layout import COMMIT_LOG, EXPECTED, recognise_with_tier
from storage.layout.tier_layout import TIER_LOG, TIER_QUEUE, TierLayout, lacking_files
from storage.log.commit_log import CommitLog
from storage.log.damaged_ranges import reason_of
from storage.log.log_window import ByteSource, LogWindow
from storage.log.segment_list import boundaries, refuse_beyond
from storage.queue.queue_place import has_another
from storage.queue.tier import open_tier_log
from storage.store.store_state import read_store_state


@dataclass(frozen=True)
class LogRange:
    """Positions [start, stop) of one segment, a record at `start`; `is_last`: the log ends somewhere in it.

    `storage` are the options of the file system, as JSON; a `path` without a scheme is a file of this machine.
    `boundary` is the physical offset at which the next segment starts, or would start. In a tier each queue has a log
    of its own: `queue` is `TOPIC/QUEUE` then, and physical offsets are those of that log.
    """

    path: str
    base_offset: int
    start: int
    stop: int
    is_last: bool = False
    storage: str = ""
    boundary: int = 0
    queue: str = ""

    @property
    def topic(self) -> str:
        """The topic of all messages of a queue's own log; else empty."""
        return self.queue.rpartition("/")[0]

    @property
    def size(self) -> int:
        """Bytes to read at most."""
        return self.stop - self.start

    def open(self) -> LogWindow:
        """A window on the segment; raises StoreError."""
        return LogWindow(self.source(), self.base_offset, PIECE_BYTES)

    def source(self) -> ByteSource:
        """The segment's bytes; raises StoreError."""
        return open_source(self.path, storage=self.storage)


@dataclass(frozen=True)
class Problem:
    """Bytes [physical_offset, physical_offset + length) that hold no message that counts; `path` is where they are."""

    path: str
    physical_offset: int
    length: int
    reason: str

    def sentence(self) -> str:
        """For an operator."""
        return f"{self.path}: {self.length} bytes at physical offset {self.physical_offset}: {self.reason}"


@dataclass(frozen=True)
class LogRanges:
    """The segments in order, and what is known to be missing before any is read; `tier` if they are those of one."""

    ranges: tuple[LogRange, ...]
    problems: tuple[Problem, ...] = field(default=())
    tier: TierLayout | None = None

    @property
    def minimum(self) -> int:
        """Physical offset of the first byte, of one log."""
        return self.ranges[0].base_offset + self.ranges[0].start if self.ranges else 0

    @property
    def end(self) -> int:
        """Physical offset behind the last byte, of one log."""
        return self.ranges[-1].base_offset + self.ranges[-1].stop if self.ranges else 0

    def holding(self, wanted: Wanted) -> tuple[LogRange, ...]:
        """The segments in which a message wanted may lie."""
        if wanted.is_empty:
            return ()
        first, last = wanted.physical_offsets
        return tuple(
            each
            for each in self.of_topics(wanted.topics)
            if each.base_offset + each.stop > first and each.base_offset <= last
        )

    def of_topics(self, topics: frozenset[bytes] | None) -> tuple[LogRange, ...]:
        """The segments in which messages of some topics may lie, None for all: in a tier, those of their queues."""
        if topics is None or self.tier is None:
            return self.ranges
        return tuple(each for each in self.ranges if each.topic.encode() in topics)

    def problems_within(self, start: int, stop: int) -> tuple[Problem, ...]:
        """Return the known gaps that end in (start, stop] by physical offset."""
        return tuple(each for each in self.problems if start < each.physical_offset + each.length <= stop)

    def problems_behind(self, stop: int) -> tuple[Problem, ...]:
        """Return the known gaps at or behind a physical offset, up to which all was read."""
        return tuple(each for each in self.problems if each.physical_offset >= stop)

    def within(self, start: int, stop: int) -> tuple[LogRange, ...]:
        """The parts of the ranges in [start, stop) by physical offset, where a record starts at `start`, if in any."""
        cut = (
            replace(each, start=max(each.start, start - each.base_offset), stop=min(each.stop, stop - each.base_offset))
            for each in self.ranges
        )
        return tuple(each for each in cut if each.start < each.stop)


def find_ranges(path: str, commit_log: Sequence[str] = (), storage: str = "") -> LogRanges:
    """Look at a store: a directory or a URL, of the store or of its commit log; raises StoreError or ConfigError.

    A directory may also be that of a tier: the segments of all its queues' logs, in the order of topics and queues.
    `commit_log` are the directories or URLs of the log where it does not lie in the store; `storage` are options of the
    file system as JSON.
    """
    if any(map(is_url, (path, *commit_log))):
        return _remote_ranges(path, commit_log, storage)
    return _local_ranges(Path(local_path(path)), tuple(map(local_path, commit_log)))


_MISSING: Final = "no segment is there"


def end_of(last: LogRange) -> int:
    """Position behind the last record of a range whose end is not known; reads it."""
    with last.open() as window:
        wanted = Wanted(topics=frozenset())
        reader = RowReader(window, wanted, checksums=False, is_last=True, boundary=last.boundary)
        for _ in reader.read(last.start, last.stop):
            pass
        return reader.position


def _local_ranges(root: Path, commit_log: Sequence[str]) -> LogRanges:
    directories = tuple(map(Path, commit_log))
    if not directories and not (root / COMMIT_LOG).exists() and _holds_segments(root):
        directories = (root,)
    layout = recognise_with_tier(root, directories)
    if layout.tier is not None:
        return _tier_ranges(layout.tier)
    log = CommitLog.open(layout.commit_log_directories, None, None, partial(has_another, layout.root))
    return LogRanges(_ranges_of(log), tuple(_problems_of(log, is_live=read_store_state(layout.root).is_live)))


def _ranges_of(log: CommitLog, queue: str = "") -> tuple[LogRange, ...]:
    following = [segment.base_offset for segment in log.segments[1:]] + [LARGEST_OFFSET]
    return tuple(
        LogRange(
            os.fspath(segment.file.path),
            segment.base_offset,
            0,
            min(segment.valid_length, following[number] - segment.base_offset),
            boundary=segment.boundary,
            queue=queue,
        )
        for number, segment in enumerate(log.segments)
    )


def _problems_of(log: CommitLog, *, is_live: bool = False) -> list[Problem]:
    directory = str(log.segments[0].file.path.parent)
    problems = [Problem(directory, start, stop - start, _MISSING) for start, stop in log.holes]
    problems += [Problem(str(each), segment_offset(each.name) or 0, 0, "it cannot be read") for each in log.unreadable]
    if log.torn_end is not None and not is_live:
        last = log.segments[-1]
        left = last.base_offset + last.file.size - log.end
        reason = f"the log ends there: {reason_of(log.torn_end.code)}"
        problems.append(Problem(os.fspath(last.file.path), log.end, left, reason))
    return problems


def _tier_ranges(tier: TierLayout) -> LogRanges:
    """The logs of all queues, one after the other; only one is open at a time."""
    ranges: list[LogRange] = []
    problems: list[Problem] = []
    for topic in sorted(tier.topics()):
        for queue_id in sorted(tier.queue_ids(topic)):
            directory = tier.queue_directory(topic, queue_id)
            try:
                log = open_tier_log(directory)
            except StoreError as error:
                problems.append(Problem(str(error.path), 0, 0, str(error.what)))
                continue
            if log.segments:
                ranges += [each for each in _ranges_of(log, f"{topic}/{queue_id}") if each.size]
                problems += _problems_of(log)
            elif list_segment_files(directory / TIER_QUEUE)[0]:
                reason = "it has no record, though the queue has units"
                problems.append(Problem(str(directory / TIER_LOG), 0, 0, reason))
    return LogRanges(tuple(ranges), (*problems, *_named_by_metadata(tier, problems)), tier)


def _named_by_metadata(tier: TierLayout, known: Sequence[Problem]) -> Iterator[Problem]:
    """What of the logs is missing by the tier's metadata, where it is there, and is not known to be."""
    try:
        lacking = [each for each in lacking_files(tier) if each.is_log]
    except StoreError as error:
        reason = f"it {error.what}; files that the tier lacks are not noticed"
        yield Problem(str(error.path), 0, 0, reason)
        return
    holes = defaultdict(list)
    for each in known:
        holes[each.path].append(range(each.physical_offset, each.physical_offset + each.length))
    for file in lacking:
        there = file.there or 0
        if not any(file.base + there in hole for hole in holes[str(file.path.parent)]):
            reason = f"{file.metadata} says that the file has {file.size} bytes"
            yield Problem(str(file.path), file.base + there, file.size - there, reason)


def _holds_segments(directory: Path) -> bool:
    try:
        return any(_offset_of(name) >= 0 for name in os.listdir(directory))
    except OSError:
        return False


def _offset_of(name: str | Path) -> int:
    text = os.path.basename(name)
    is_offset = len(text) == SEGMENT_NAME_DIGITS and text.isdecimal() and int(text) <= LARGEST_OFFSET
    return int(text) if is_offset else -1


def _remote_ranges(url: str, commit_log: Sequence[str], storage: str) -> LogRanges:
    ledger = None if commit_log else _remote_ledger(url, storage)
    found = _list_all(commit_log or (f"{url.rstrip('/')}/{COMMIT_LOG}",), storage)
    if ledger:
        found = sorted(found + _list_remote(ledger, storage))
    elif not found and not commit_log:
        found = _list_remote(url, storage)
    if not found:
        raise NotAStore(url, expected=EXPECTED, found="no segment there")
    written = _without_empty(found, storage)
    ends = [base for base, _, _ in written[1:]] + [LARGEST_OFFSET]
    bases = boundaries([(base, size) for base, size, _ in found]) if len(found) > 1 else [0]
    last = len(written) - 1
    ranges = tuple(
        LogRange(path, base, 0, min(size, ends[number] - base), number == last, storage, bases[number])
        for number, (base, size, path) in enumerate(written)
    )
    holes = [
        Problem(os.path.dirname(path), base + size, following - base - size, _MISSING)
        for (base, size, path), following in zip(written, ends[:-1], strict=False)
        if base + size < following
    ]
    return LogRanges(ranges, tuple(holes))


def _list_all(directories: Iterable[str], storage: str) -> list[tuple[int, int, str]]:
    """The segments of several directories as :func:`_list_remote` has those of one.

    Of two with one name the longer counts, the first of equals, as in directories of this machine.
    """
    found: dict[int, tuple[int, int, str]] = {}
    for directory in directories:
        for each in _list_remote(directory, storage):
            found[each[0]] = max(found.get(each[0], each), each, key=lambda segment: segment[1])
    return sorted(found.values())


def _list_remote(directory: str, storage: str) -> list[tuple[int, int, str]]:
    """Base offset, size and URL, or path, of a directory's segments, in order; those without a byte are left out."""
    system, path = file_system(directory, storage)
    try:
        system.invalidate_cache()
        entries: list[dict[str, Any]] = persist(lambda: system.ls(path, detail=True))
    except FileNotFoundError:
        return []
    except Exception as error:  # each file system has errors of its own
        raise StoreError(directory, what=f"cannot be listed: {said(error)}") from error
    files = [(_offset_of(entry["name"]), entry["size"], entry["name"]) for entry in entries if entry["type"] == "file"]
    for base, size, name in files:
        refuse_beyond(base, size or 0, system.unstrip_protocol(name))
    return sorted(
        (base, size, local_path(system.unstrip_protocol(name))) for base, size, name in files if base >= 0 and size
    )


def _remote_ledger(url: str, storage: str) -> str | None:
    """URL of the directory in which a store's log is DLedger's (:mod:`storage.layout.dledger`); None without one.

    Raises NotAStore where several are.
    """
    system, path = file_system(url, storage)
    try:
        names = [
            str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in persist(lambda: system.ls(path, detail=True))
        ]
    except FileNotFoundError:
        return None
    except Exception as error:  # each file system has errors of its own
        raise StoreError(url, what=f"cannot be listed: {said(error)}") from error
    directories = [f"{url.rstrip('/')}/{name}/{DATA}" for name in sorted(filter(is_ledger, names))]
    written = [directory for directory in directories if _list_remote(directory, storage)]
    if len(written) > 1:
        found = f"DLedger logs of several members: {', '.join(written)}"
        raise NotAStore(url, expected="the log of one member of a DLedger group; move the others away", found=found)
    return written[0] if written else None


WRITTEN_BYTES: Final = 8
"""Bytes at a segment's start that are zero as long as nothing was written to it."""


def _without_empty(found: list[tuple[int, int, str]], storage: str) -> list[tuple[int, int, str]]:
    """Without the segments at the end that were made ahead and hold nothing yet."""
    written = list(found)
    while len(written) > 1:
        head = bytearray(WRITTEN_BYTES)
        with RemoteFile(written[-1][2], storage) as source:
            source.read_into(memoryview(head), 0)
        if any(head):
            break
        written.pop()
    return written
