"""The store as the processors see it: messages by offset, by key, by unique key, by tag, by queue, by time.

Everything is answered from one immutable :class:`Snapshot`; :meth:`MessageStore.refresh` makes a new one and swaps it
in whole. Whoever still reads from the old one keeps its maps alive, so nothing is ever closed under a reader.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct

import msgspec
import numpy as np

from protocol.host_address import HostAddress
from protocol.java_hash import index_hash, java_hash
from protocol.message import decode_message
from protocol.message_id import MessageId
from storage.absence import explain_absence
from storage.commit_log import CommitLog
from storage.decoded_query import find_by_decoding
from storage.index_set import IndexSet
from storage.kernels import catalog as table
from storage.kernels import lookup as kernel
from storage.lookup_call import TAG, KeyQuery, Scratch, run_lookup, scratches
from storage.mapped_file import MappedFile
from storage.queue_store import QueueStore
from storage.residency import Cold, current_tick, may_wait
from storage.search_report import SearchReport
from storage.state_cache import StateCache
from storage.store_config import StoreConfig
from storage.store_layout import StoreLayout, recognise_store
from storage.store_state import StoreIdentity, StoreState, infer_identity, read_store_state
from storage.tail_index import TailIndex, empty_tail, extend_tail, merge_candidates

SCAN_STEP = 128 * 1024 * 1024
"""Bytes of log scanned between two swaps of the snapshot while the rest of it is scanned in the background."""

UNBOUNDED = 2**62
REPLACEMENT = "\ufffd".encode()

RESULTS = Struct(f"={kernel.RESULT_FILES + 1}q")
HIT = Struct("=qqq")
NO_NUMBERS = (0,) * (kernel.RESULT_FILES + 1)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store is opened.

    ``commit_log_directories`` replace ``commitlog/``; ``index_slots`` and ``index_entries`` are the counts the user
    vouches for; ``state_directory`` keeps what a start finds out; ``scan_budget`` bounds the bytes of log scanned
    before :meth:`open` returns (None: all of it).
    """

    commit_log_directories: tuple[Path, ...] = ()
    index_slots: int | None = None
    index_entries: int | None = None
    state_directory: Path | None = None
    scan_budget: int | None = None

    @property
    def vouched_counts(self) -> tuple[int, int] | None:
        """Slots and entries of the index files, if the user told both."""
        both = self.index_slots is not None and self.index_entries is not None
        return (self.index_slots or 0, self.index_entries or 0) if both else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a store at one moment; ``catalog`` is the kernels' table over them."""

    layout: StoreLayout
    state: StoreState
    config: StoreConfig
    commit_log: CommitLog
    queues: QueueStore
    index: IndexSet
    tail: TailIndex
    catalog: np.ndarray
    files_by_heat: dict[int, MappedFile]
    beyond_index: int
    incomplete: str | None


class QueryAnswer(msgspec.Struct, gc=False):
    """What a key query found: whole records one after the other, ascending by physical offset.

    ``truncated``: more match than were asked for, or fit; ``physical_offsets[0]`` is then where the next page ends.
    ``incomplete`` says what the answer may lack, or is None; ``refusal`` why a question has no answer in any store. The
    rest is what the properties below are made of.
    """

    records: bytes
    count: int
    truncated: bool
    incomplete: str | None
    hits: bytes
    numbers: tuple[int, ...]
    snapshot: Snapshot
    refusal: str | None = None

    @property
    def physical_offsets(self) -> tuple[int, ...]:
        """Where the records start, ascending."""
        return tuple(hit[0] for hit in HIT.iter_unpack(self.hits))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each record."""
        return tuple(hit[2] for hit in HIT.iter_unpack(self.hits))

    @property
    def search(self) -> SearchReport:
        """What was searched for it."""
        return _report(self.snapshot, self.numbers)


class MessageStore:
    """A store directory, opened for reading. Safe to use from several threads."""

    def __init__(self, root: Path, options: StoreOptions) -> None:
        """Use :meth:`open`."""
        self._root = root
        self._options = options
        self._changing = threading.Lock()
        self._refreshed: list[Callable[[], None]] = []
        self._snapshot = self._take_snapshot(None)
        self.identity: StoreIdentity = infer_identity(self._snapshot.config, self._snapshot.commit_log)

    @classmethod
    def open(cls, path: Path | str, options: StoreOptions | None = None) -> "MessageStore":
        """Open a store directory; NotAStore, or StoreError where nothing of it can be read. Waits for the disk."""
        return cls(Path(path), options or StoreOptions())

    @property
    def snapshot(self) -> Snapshot:
        """The files as they were at the last refresh."""
        return self._snapshot

    @property
    def commit_log(self) -> CommitLog:
        """The log of the current snapshot."""
        return self._snapshot.commit_log

    @property
    def queues(self) -> QueueStore:
        """The queues of the current snapshot."""
        return self._snapshot.queues

    @property
    def config(self) -> StoreConfig:
        """What ``config/*.json`` say."""
        return self._snapshot.config

    @property
    def state(self) -> StoreState:
        """Whether a broker runs or ran on the store."""
        return self._snapshot.state

    @property
    def layout(self) -> StoreLayout:
        """Where the pieces of the store lie."""
        return self._snapshot.layout

    @property
    def problems(self) -> list[str]:
        """Everything that is missing or damaged, to be said once at start."""
        snapshot = self._snapshot
        return [
            *snapshot.layout.problems,
            *snapshot.commit_log.problems,
            *snapshot.index.problems,
            *snapshot.queues.problems,
            *snapshot.config.problems,
            *(f"no record between physical offsets {start} and {stop}" for start, stop in snapshot.tail.skipped),
        ]

    def refresh(self) -> None:
        """Look at the directory anew and swap the snapshot. Waits for the disk."""
        with self._changing:
            self._snapshot = self._take_snapshot(self._snapshot)
        for callback in self._refreshed:
            callback()

    def after_refresh(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called after each refresh, on the thread that refreshed, where waiting is allowed."""
        self._refreshed.append(callback)

    def finish_scan(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Scan what :attr:`StoreOptions.scan_budget` left, step by step. Waits for the disk; run it in a thread."""
        while self._snapshot.tail.remaining and not should_stop():
            with self._changing:
                snapshot = self._snapshot
                tail = extend_tail(snapshot.tail, snapshot.commit_log, SCAN_STEP)
                self._snapshot = _with_tail(snapshot, tail)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The intact record that starts at a physical offset, or None; Cold on a thread that may not wait."""
        return self._snapshot.commit_log.record_at(physical_offset)

    def damaged_record_at(self, physical_offset: int) -> memoryview | None:
        """The record of sound shape at a physical offset, whatever its checksums say, or None."""
        return self._snapshot.commit_log.damaged_record_at(physical_offset)

    def explain_absence(self, physical_offset: int) -> str:
        """Why no record starts at a physical offset; Cold on a thread that may not wait."""
        return explain_absence(self._snapshot.commit_log, physical_offset)

    def message_by_offset_id(self, message_id: MessageId) -> memoryview | None:
        """The record that an offset message id names, if its store host is the one in the id."""
        record = self.record_at(message_id.physical_offset)
        return record if record is not None and store_host_of(record) == message_id.address else None

    def index_last_update(self) -> tuple[int, int]:
        """End timestamp (ms) and end physical offset of the newest index file, zeros without one."""
        return self._snapshot.index.last_update

    def query(self, query: KeyQuery) -> QueryAnswer:
        """The newest messages that carry a key, each checked; Cold where the thread may not wait."""
        snapshot = self._snapshot
        needle, topic, key = query.needle()
        if len(needle) > kernel.NEEDLE_BYTES or query.maximum <= 0:
            return QueryAnswer(b"", 0, False, snapshot.incomplete, b"", NO_NUMBERS, snapshot, _refusal(query, needle))
        if not needle.isascii() and REPLACEMENT in needle:
            return self._query_by_decoding(snapshot, query)
        if query.kind is TAG and snapshot.index.untagged:
            return self._query_queues(snapshot, query)
        scratch = scratches.own
        status = run_lookup(scratch, snapshot.catalog, query, needle, topic, key, current_tick(), 0)
        if status < 0:
            raise _wait_for(snapshot, scratch, status)
        return _answer(snapshot, scratch, status)

    def _query_queues(self, snapshot: Snapshot, query: KeyQuery) -> QueryAnswer:
        """A tag where index files keep no tags: the topic's queue units propose what those files do not."""
        needle, topic, key = query.needle()
        tail, catalog = _with_tagged_units(snapshot, query, needle)
        scratch = scratches.own
        status = run_lookup(scratch, catalog, query, needle, topic, key, current_tick(), 1)
        if status < 0:
            raise _wait_for(snapshot, scratch, status)
        answer = _answer(snapshot, scratch, status)
        del tail  # the catalog pointed at it until here
        answer.incomplete = "; ".join(filter(None, [answer.incomplete, _missing_queues(snapshot, query.topic)])) or None
        return answer

    def _query_by_decoding(self, snapshot: Snapshot, query: KeyQuery) -> QueryAnswer:
        """A key with U+FFFD may stand for bytes that are no UTF-8: compare decoded strings instead of bytes."""
        if not may_wait():
            raise Cold("comparing decoded keys")
        records, truncated = find_by_decoding(
            snapshot.commit_log, snapshot.index, snapshot.tail, snapshot.queues, query
        )
        hits = b"".join(HIT.pack(offset, 0, len(record)) for offset, record in records)
        joined = b"".join(record for _, record in records)
        numbers = (len(records), len(joined), *NO_NUMBERS[2:])
        return QueryAnswer(joined, len(records), truncated, snapshot.incomplete, hits, numbers, snapshot)

    def _take_snapshot(self, previous: Snapshot | None) -> Snapshot:
        options = self._options
        layout = recognise_store(self._root, options.commit_log_directories)
        cache = StateCache.load(options.state_directory)
        commit_log = CommitLog.open(
            layout.commit_log_directories, previous.commit_log if previous else None, cache.known_ends()
        )
        config = StoreConfig.load(layout.root)
        index = IndexSet.open(layout.index, commit_log, options.vouched_counts, cache)
        tail = empty_tail(index.uncovered(commit_log.minimum, commit_log.end))
        tail = extend_tail(tail, commit_log, UNBOUNDED if options.scan_budget is None else options.scan_budget)
        if commit_log.segments:
            cache.note_end_of_data(commit_log.segments[-1].file.identity, commit_log.end)
        cache.save()
        snapshot = Snapshot(
            layout=layout,
            state=read_store_state(layout.root),
            config=config,
            commit_log=commit_log,
            queues=QueueStore(layout.root, commit_log),
            index=index,
            tail=tail,
            catalog=np.zeros(0, dtype=np.int64),
            files_by_heat={
                **commit_log.files_by_heat,
                **{file.index.file.heat_address: file.index.file for file in index.files},
            },
            beyond_index=_beyond_index(commit_log, index),
            incomplete=None,
        )
        return _with_tail(snapshot, tail)


def store_host_of(record: memoryview) -> HostAddress:
    """Store host of a record of sound shape."""
    return decode_message(record, check_crc=False).store_host


def _with_tail(snapshot: Snapshot, tail: TailIndex) -> Snapshot:
    """The snapshot with another tail, its catalog and its word on completeness made anew."""
    return replace(
        snapshot,
        tail=tail,
        catalog=_make_catalog(snapshot.commit_log, snapshot.index.catalog_rows(), tail),
        incomplete=_incompleteness(snapshot.commit_log, tail),
    )


def _beyond_index(commit_log: CommitLog, index: IndexSet) -> int:
    """Bytes of log behind the last record that an index file knows."""
    last = max((file.index.shape.maximum for file in index.files), default=-1)
    known = last + max(commit_log.check(last), 0) if last >= 0 else commit_log.minimum
    return max(commit_log.end - known, 0)


def _make_catalog(commit_log: CommitLog, rows: np.ndarray, tail: TailIndex) -> np.ndarray:
    catalog = np.concatenate([commit_log.catalog, rows.reshape(-1)])
    catalog[table.INDEX_COUNT] = len(rows)
    _point_at_tail(catalog, tail)
    return catalog


def _point_at_tail(catalog: np.ndarray, tail: TailIndex) -> None:
    catalog[table.TAIL_COUNT] = len(tail.runs)
    catalog[table.TAIL_RUNS] = tail.table.ctypes.data


def _incompleteness(commit_log: CommitLog, tail: TailIndex) -> str | None:
    """What any key query may lack, as one clause, or None."""
    parts = [f"no segment holds physical offsets {start} to {stop}" for start, stop in commit_log.holes()]
    parts += [f"segment {path.name} cannot be read" for path in commit_log.unreadable]
    if commit_log.torn_end and commit_log.torn_end.next_record is not None:
        parts.append(commit_log.torn_end.sentence())
    if tail.remaining:
        parts.append(f"{tail.remaining_bytes} bytes of the log beyond the index are still to be scanned")
    return "; ".join(parts) or None


def _with_tagged_units(snapshot: Snapshot, query: KeyQuery, needle: bytes) -> tuple[TailIndex, np.ndarray]:
    """A catalog whose tail also proposes queue units with the tag's hash, where index files keep no tags."""
    tag = java_hash(query.key)
    found = [
        snapshot.queues.offsets_with_tag(query.topic, tag, start, stop) for start, stop in snapshot.index.without_tags()
    ]
    tail = merge_candidates(snapshot.tail, index_hash(needle.decode("utf-8", "replace")), np.concatenate(found))
    catalog = snapshot.catalog.copy()
    _point_at_tail(catalog, tail)
    return tail, catalog


def _refusal(query: KeyQuery, needle: bytes) -> str:
    """Why a question can have no answer."""
    if query.maximum <= 0:
        return f"a maximum of {query.maximum} asks for nothing"
    return f"topic and key have {len(needle)} bytes, more than any message can hold"


def _missing_queues(snapshot: Snapshot, topic: str) -> str | None:
    """What a search by queue units may have missed: queues that the topic should have and the disk has not."""
    first, last = snapshot.index.without_tags()[0][0], snapshot.index.without_tags()[-1][1]
    where = f"the index keeps no tags from physical offset {first} to {last}"
    if snapshot.layout.lacks_queues:
        return f"{where}, and there is no consumequeue/ to find them by"
    config = snapshot.config.topics.get(topic)
    wanted = max(config.read_queue_nums, config.write_queue_nums) if config else 0
    found = snapshot.queues.queue_ids(topic)
    absent = [str(queue_id) for queue_id in range(min(wanted, 10_000)) if queue_id not in found]
    if not found:
        return f"{where}, and topic {topic} has no queue to find them by"
    if absent:
        return f"{where}, and queues {', '.join(absent[:20])} of {topic} have no files"
    return None


def _wait_for(snapshot: Snapshot, scratch: Scratch, status: int) -> Cold:
    """What a lookup that stopped would have to wait for."""
    if status == kernel.STOPPED_LONG:
        return Cold("a long chain of index entries")
    heat, position, length = RESULTS.unpack_from(scratch.results_bytes)[kernel.RESULT_COLD_HEAT :][:3]
    file = snapshot.files_by_heat[heat]
    return Cold(f"{file.path.name} is cold at {position}", lambda: file.warm(position, length))


def _answer(snapshot: Snapshot, scratch: Scratch, status: int) -> QueryAnswer:
    """The answer that the kernel left in a scratch, copied out."""
    numbers = RESULTS.unpack_from(scratch.results_bytes)
    count, total, _, _, more, cut = numbers[: kernel.RESULT_CUT + 1]
    hits = bytes(scratch.hits[: HIT.size * count])
    if status == kernel.FOUND:
        records = bytes(scratch.body[:total])
    else:
        log = snapshot.commit_log
        records = b"".join(log.record(offset, size) or b"" for offset, _, size in HIT.iter_unpack(hits))
    return QueryAnswer(records, count, bool(more or cut), snapshot.incomplete, hits, numbers, snapshot)


def _report(snapshot: Snapshot, numbers: tuple[int, ...]) -> SearchReport:
    begin_timestamp, end_timestamp, begin_physical_offset, end_physical_offset = snapshot.index.extent
    return SearchReport(
        files_searched=numbers[kernel.RESULT_FILES],
        entries_walked=numbers[kernel.RESULT_WALKED],
        refused=numbers[kernel.RESULT_REFUSED],
        bad_pointers=numbers[kernel.RESULT_BAD_POINTERS],
        index_begin_timestamp=begin_timestamp,
        index_end_timestamp=end_timestamp,
        index_begin_physical_offset=begin_physical_offset,
        index_end_physical_offset=end_physical_offset,
        log_minimum=snapshot.commit_log.minimum,
        log_end=snapshot.commit_log.end,
        log_beyond_index=snapshot.beyond_index,
        unscanned=snapshot.tail.remaining_bytes,
    )
