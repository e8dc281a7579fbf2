"""A look-up by tasks of an engine: index files, what they lack, and the records that are meant, each by tasks.

    index    one task an index file: what it covers of the log, and where it leads for the keys
    lacking  one task a segment with a part that no file covers: the keys of that part
    records  one task a segment, in waves: the records that index and ids lead to

The newest part of the log is read whatever the index covers: there crashes leave records without entries, as
:mod:`storage.index._index_coverage` says. The driver holds eight bytes for each place that a hash proposes, and of the
records no more than :mod:`spark_jobs.search._waves` allows.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from protocol.message_id import MessageId
from spark_jobs.places.remote_file import RemoteObject
from spark_jobs.places.remote_tree import local_copy
from spark_jobs.run.engine import Engine, EngineOptions, Shared
from spark_jobs.scan.probe_store import LogReader, SegmentPlace, check_index_file
from spark_jobs.search._searched_segment import RECORD_BYTES, SearchedSegment, SegmentCopy, opened_segment
from spark_jobs.search._waves import answers_in_waves, in_waves
from spark_jobs.search.search import engine_for
from spark_jobs.search.searched_store import SearchedStore
from storage.files.mapped_file import MappedFile
from storage.index.index_set import uncovered_by
from storage.index.tail_index import Hashes, Offsets, Scanned, scan_ranges
from storage.kernels.records import check_intact
from storage.log.commit_log import CommitLog, Segment
from storage.log.log_window import LONGEST_RECORD
from storage.log.record_scan import SEARCH_BACK_BYTES
from storage.ranges import Range, intersect, merge
from storage.search.lookup import LookupStep, look_up
from storage.search.wanted_entries import WantedHashes, offsets_in_file
from storage.store.message_store import MessageStore, store_host_of
from storage.store.snapshot import lacks_of

NEWEST_BYTES: Final = 128 * 1024 * 1024
"""Bytes at the end of the log for which no index file is believed to have all keys."""

RECORDS_AT_ONCE: Final = 2000


class IndexTask(msgspec.Struct, frozen=True):
    """An index file; `slots` is how many it may have, 0 where nothing says so."""

    path: str
    remote: RemoteObject | None
    segments: tuple[SegmentPlace, ...]
    slots: int


class LackingTask(msgspec.Struct, frozen=True):
    """Ranges of physical offsets in a segment whose records' keys are to be found."""

    segment: SearchedSegment
    ranges: list[Range]


class RecordsTask(msgspec.Struct, frozen=True):
    """Physical offsets of a segment, ascending; the task is over after `most` bytes of records."""

    segment: SearchedSegment
    offsets: list[int]
    most: int


class IndexAnswer(NamedTuple):
    """Parts of the log that a file covers, as its first and last record, and where it leads."""

    parts: list[Range]
    offsets: Offsets


def look_at_index(hashes: Shared[Hashes], task: IndexTask) -> IndexAnswer:
    """Go over an index file; one that is not sound, or not of this log, covers nothing."""
    with local_copy(task.path, task.remote) as path:
        facts = check_index_file(path, LogReader(task.segments), task.slots)
        parts = [(start, stop) for start, stop in facts.get("parts", ())]
        if not parts:
            return IndexAnswer([], np.empty(0, np.int64))
        wanted = WantedHashes(hashes.value)
        found = offsets_in_file(MappedFile.open(path), facts["slots"], facts["entries"], wanted)
        return IndexAnswer(parts, np.concatenate([np.empty(0, np.int64), *(offsets for offsets, _ in found)]))


def look_at_log(hashes: Shared[Hashes], task: LackingTask) -> Offsets:
    """Physical offsets, in no order, of the records in some ranges that may have one of the keys."""
    wanted = WantedHashes(hashes.value)
    found = [np.empty(0, np.int64)]
    with opened_segment(task.segment) as copy:
        for start, stop in task.ranges:
            scanned = _scan(copy, start, stop)
            if scanned.hashes:
                found.append(wanted.offsets_in_run(scanned.run()))
    return np.concatenate(found)


def _scan(copy: SegmentCopy, start: int, stop: int) -> Scanned:
    """The keys of the records that start in [start, stop); what lies around is fetched where a record is not whole."""
    whole = copy.segment
    shown = min(stop + RECORD_BYTES, whole.end)
    if not copy.is_whole:
        copy.show(start - whole.base_offset, shown - whole.base_offset)
        seen = Segment(whole.base_offset, whole.file, shown - whole.base_offset, whole.boundary)
        scanned = scan_ranges([(start, stop)], CommitLog([seen], ()), stop - start)
        if not scanned.skipped:
            return scanned
        first, last = start - SEARCH_BACK_BYTES, stop + LONGEST_RECORD
        copy.show(first - whole.base_offset, last - whole.base_offset)
    return scan_ranges([(start, stop)], CommitLog([whole], ()), stop - start)


def fetch_records(task: RecordsTask) -> list[tuple[int, bytes | None]]:
    """Read the intact records at some offsets, None for others: all of them, or the first ones if these do."""
    found: list[tuple[int, bytes | None]] = []
    left = task.most
    with opened_segment(task.segment) as copy:
        file, base, length = copy.segment.file, copy.segment.base_offset, copy.segment.valid_length
        for number in range(0, len(task.offsets), RECORDS_AT_ONCE):
            some = task.offsets[number : number + RECORDS_AT_ONCE]
            copy.show_records([offset - base for offset in some])
            for offset in some:
                at = offset - base
                size = check_intact(file.region, at, length, offset)
                if size > left < task.most:
                    return found
                found.append((offset, bytes(file.view[at : at + size]) if size > 0 else None))
                left -= max(size, 0)
    return found


def looked_up_by_tasks(
    searched: SearchedStore,
    engine: EngineOptions,
    notify: Callable[[str], None] | None,
    texts: Iterable[str],
    topic: str | None,
    kind: str | None,
    should_stop: Callable[[], bool],
    slots: int = 0,
) -> Iterator[LookupStep]:
    """As :func:`storage.search.lookup.look_up`, by the tasks of an engine, which is ended with the look-up.

    `notify` gets the lines for who waits for a cluster; `slots` of index files are what the user says, 0 where nobody
    does. Raises SparkFailed where Spark does not start.
    """
    with engine_for("lookup", engine, notify, __name__) as opened:
        source = LookupByTasks(opened, searched, slots)
        yield from look_up(source, texts, topic=topic, kind=kind, should_stop=should_stop)


@dataclass
class _RecordsStretch:
    """Records of one segment that are still to be fetched."""

    segment: SearchedSegment
    offsets: list[int]
    held: list[list[tuple[int, bytes | None]]] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether no record is left."""
        return not self.offsets

    def task(self, most: int) -> RecordsTask:
        """The records that are left."""
        return RecordsTask(self.segment, self.offsets, most)

    def take(self, answer: list[tuple[int, bytes | None]]) -> None:
        """Hold the first ones."""
        self.held.append(answer)
        self.offsets = self.offsets[len(answer) :]


class LookupByTasks:
    """A store whose files the tasks of an engine look at; a :class:`storage.search.lookup.LookupSource`.

    They see them under the same paths, or behind the same URL. Raises TaskFailed where a file cannot be read there.
    """

    def __init__(self, engine: Engine, searched: SearchedStore, slots: int) -> None:
        """Nothing is done yet; `slots` of index files are what the user says, 0 where nobody does."""
        self._engine, self._searched, self._source, self._slots = engine, searched, searched.source, slots

    @property
    def store(self) -> MessageStore:
        """The store, or the copy of it, of which topics are asked."""
        return self._searched.store

    @property
    def index_bytes(self) -> int:
        """Bytes of all index files."""
        return sum(size for _, _, size in self._index_files())

    @property
    def incomplete(self) -> str | None:
        """What the log lacks: what the index lacks is read in the log."""
        return "; ".join(lacks_of(self.store.commit_log)) or None

    def begin(self, should_stop: Callable[[], bool]) -> None:
        """Do nothing: what is to be scanned shows when the index is gone over."""

    def ids_here(self, ids: Mapping[str, MessageId]) -> Container[str]:
        """Look at each record."""
        log = self.store.commit_log
        offsets = {each.physical_offset for each in ids.values()}
        places = np.array(sorted(each for each in offsets if log.minimum <= each < log.end), np.int64)
        hosts = {
            offset: store_host_of(record)
            for records in self.records_at(places)
            for offset, record in records
            if record is not None
        }
        return {text for text, each in ids.items() if hosts.get(each.physical_offset) == each.address}

    def offsets_of(self, hashes: Hashes) -> Iterator[tuple[Offsets, int]]:
        """Go over the index, then over what it lacks."""
        with self._engine.share(hashes) as sent:
            parts: list[Range] = []
            for answer, size in self._go_over_index(sent):
                parts += answer.parts
                yield answer.offsets, size
            tasks = self._lacking_tasks(parts)
            for offsets in answers_in_waves(self._engine, "lacking", tasks, partial(look_at_log, sent)):
                yield offsets, 0

    def records_at(self, places: Offsets) -> Iterator[Sequence[tuple[int, memoryview | None]]]:
        """Fetch them in waves; those that lie in no segment come first."""
        log = self.store.commit_log
        stretches = []
        outside = np.ones(len(places), np.bool_)
        for segment in log.segments:
            inside = slice(*np.searchsorted(places, [segment.base_offset, segment.end]))
            outside[inside] = False
            if len(places[inside]):
                place = self._searched.searched_segment(segment)
                stretches.append(_RecordsStretch(place, places[inside].tolist()))
        if outside.any():
            yield [(offset, None) for offset in places[outside].tolist()]
        for records in in_waves(self._engine, "records", stretches, fetch_records):
            yield [(offset, None if record is None else memoryview(record)) for offset, record in records]

    def _index_files(self) -> list[tuple[str, RemoteObject | None, int]]:
        found = [self._source.index_file(name) for name in self._source.index_files]
        return [(path, remote, Path(path).stat().st_size if remote is None else remote.size) for path, remote in found]

    def _go_over_index(self, sent: Shared[Hashes]) -> Iterator[tuple[IndexAnswer, int]]:
        files = self._index_files()
        tasks = [IndexTask(path, remote, self._source.segments, self._slots) for path, remote, _ in files]
        answers = answers_in_waves(self._engine, "index", tasks, partial(look_at_index, sent))
        for answer, (_, _, size) in zip(answers, files, strict=True):
            yield answer, size

    def _lacking_tasks(self, parts: Sequence[Range]) -> list[LackingTask]:
        """What index files lack that cover some parts of the log: of batches the keys of their messages, wherever."""
        log = self.store.commit_log
        newest = max(log.end - NEWEST_BYTES, log.minimum)
        old = [(start, min(stop, newest)) for start, stop in parts if start < newest]
        batches = intersect(self.store.snapshot.tail.batches, [(log.minimum, log.end)])
        lacking = merge([*uncovered_by(old, log.minimum, log.end), *batches])
        tasks = []
        for segment in log.segments:
            ranges = intersect(lacking, [(segment.base_offset, segment.end)])
            if ranges:
                tasks.append(LackingTask(self._searched.searched_segment(segment), list(ranges)))
        return tasks
