"""A store that is open for reading: messages by offset, by key, by unique key, by tag, by queue, by time.

Each look-up uses one immutable :class:`Snapshot`; :meth:`MessageStore.refresh` makes a new one and replaces the old one
as a whole. A reader that still uses the old snapshot keeps its maps alive, so no file is closed while it is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec

from protocol.errors import ConfigError, StoreError
from protocol.host_address import HostAddress
from protocol.java_hash import index_hash, java_hash
from protocol.message import decode_message
from protocol.message_id import MessageId
from protocol.question import KeyKind, Question
from protocol.system_topics import REPLY_TOPIC_SUFFIX, TOPICS_OF_EVERY_BROKER
from storage.amounts import counted
from storage.arrays import np, npt
from storage.files.mapped_file import MappedFile
from storage.files.waiting import Lookup, Wait, WaitKind, all_of, current_tick, plainly
from storage.index.index_examination import reject
from storage.index.state_cache import StateCache
from storage.index.tail_index import lies_in_record, merge_candidates
from storage.kernels import lookups as kernel
from storage.kernels import records as codes
from storage.kernels.file_map import count_cuts
from storage.kernels.lookups import Found
from storage.kernels.store_view import FileView, StoreView
from storage.layout.dledger import uncommitted_problem
from storage.layout.store_config import StoreConfig
from storage.layout.store_layout import TIER_READERS, StoreLayout
from storage.log.absence import explain_absence_lookup
from storage.log.commit_log import CommitLog
from storage.log.damaged_ranges import reason_of
from storage.query.decoded_query import find_by_decoding
from storage.query.lookup_call import run_lookup
from storage.query.search_report import SearchReport, joined_clauses
from storage.query.tier_query import TierKeys, query_tier
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_store import QueueStore
from storage.ranges import merge, subtract
from storage.store._current_snapshot import CurrentSnapshot
from storage.store._refresh import StoreFollower
from storage.store._store_watch import StoreWatch
from storage.store._upkeep import FAILED_SECONDS, Upkeep
from storage.store.snapshot import Snapshot, StoreOptions, with_all_growth, with_damage, with_index
from storage.store.store_state import StoreIdentity, StoreState, infer_identity

__all__ = ["FAILED_SECONDS", "MessageStore", "QueryAnswer", "Snapshot", "StoreOptions"]

REPLACEMENT = "\ufffd".encode()

OFFSETS_OF_TIER: Final = (
    "a tier keeps no physical offsets of the store's log, so ask for its messages by key, unique key or queue offset"
)
"""Why an offset message id leads to no message of a tier."""

NOTHING_SEARCHED = Found()
MOST_STRAYS: Final = 16
"""Most index entries without a record that one query examines; the next query examines further ones."""

MOST_PLACES: Final = 3
"""Places of damage that an answer names."""


class QueryAnswer(msgspec.Struct, gc=False):
    """The result of a key query: whole records one after the other, ascending by physical offset.

    Records go out to clients as they are, undecoded; an `Answer` is made of their messages (:mod:`protocol.question`).
    ``truncated`` says that more records match than were asked for or fit; the next page ends before
    ``physical_offsets[0]`` then. ``incomplete`` says what the answer may lack, or is None. ``refusal`` says why the
    query can have no answer in any store. ``found`` is the result of the kernel; ``decoded`` has the physical offsets
    and sizes where it did not find all records itself. Those of a tier have negative ones there, since they have no
    place in the store's log; ``tier_logs`` counts the queues of a tier whose logs were scanned.
    """

    records: bytes
    count: int
    truncated: bool
    incomplete: str | None
    snapshot: Snapshot
    found: Found = NOTHING_SEARCHED
    decoded: tuple[tuple[int, int], ...] = ()
    refusal: str | None = None
    tier_logs: int = 0

    @property
    def cursor(self) -> int | None:
        """The physical offset below which older matches are left out, None where none are, or nothing fits."""
        return self.physical_offsets[0] if self.truncated and self.count else None

    @property
    def physical_offsets(self) -> tuple[int, ...]:
        """The physical offsets at which the records start, ascending."""
        return tuple(place for place, _ in self.decoded) or self.found.physical_offsets

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of bytes of each record."""
        return tuple(size for _, size in self.decoded) or self.found.sizes

    @property
    def search(self) -> SearchReport:
        """A report of the files and entries that were searched for this answer."""
        return _report(self.snapshot, self.found, self.tier_logs)


class MessageStore:
    """A store directory, opened for reading. Safe to use from several threads."""

    def __init__(self, root: Path, options: StoreOptions) -> None:
        """Make a store of a directory; callers use :meth:`open`."""
        self._options = options
        self._renewing = threading.Lock()
        self._finishing = threading.Lock()
        self._refreshed: list[Callable[[], None]] = []
        self._current = CurrentSnapshot(root, options)
        self._tier_keys = TierKeys()
        self._upkeep = Upkeep(self._current, options)
        self._watch = StoreWatch(root, options)
        snapshot = self._current.snapshot
        self.identity: StoreIdentity = infer_identity(snapshot.config, snapshot.commit_log, snapshot.layout.tier)

    @classmethod
    def open(cls, path: Path | str, options: StoreOptions | None = None) -> MessageStore:
        """Open a store directory. Waits for the disk.

        Raises NotAStore for a directory that is none, and StoreError where no part of it can be read.
        """
        return cls(Path(path), options or StoreOptions())

    @property
    def snapshot(self) -> Snapshot:
        """The files as they were at the last refresh."""
        return self._current.snapshot

    def cut(self, since: int | None = None) -> StoreError | None:
        """Return the error instead of an answer if a file was cut under its map, and the store was not read anew yet.

        Also if the store has been read anew, but files had been cut only `since` times when the answer was begun: it
        may be made of what was read before.
        """
        snapshot = self._current.snapshot
        if not snapshot.is_cut and (since is None or since == count_cuts()):
            return None
        return StoreError(snapshot.layout.root, what="a file was cut or could not be read; ask again in a second")

    @property
    def queue_holes(self) -> QueueHoles:
        """The holes of all queues: runs of damaged units, and the places of their messages in the log."""
        return self._current.queue_holes

    def queue_searches(self) -> tuple[list[str], int]:
        """Return sentences about searches of the log for queues that are under way, and the bytes still to be read."""
        sentences, left = self.queue_holes.searches()
        snapshot = self._current.snapshot
        derived, log = snapshot.queues.derived, snapshot.commit_log
        if derived is None or not snapshot.queues.derived_is_behind:
            return sentences, left
        return [*sentences, f"{derived.place} {derived.sentence(log)}"], left + derived.left_of(log)

    @property
    def commit_log(self) -> CommitLog:
        """The log of the current snapshot."""
        return self._current.snapshot.commit_log

    @property
    def queues(self) -> QueueStore:
        """The queues of the current snapshot."""
        return self._current.snapshot.queues

    @property
    def config(self) -> StoreConfig:
        """The configuration in ``config/*.json``."""
        return self._current.snapshot.config

    @property
    def state(self) -> StoreState:
        """Whether a broker runs or ran on the store."""
        return self._current.snapshot.state

    @property
    def layout(self) -> StoreLayout:
        """The paths of the store's files and directories."""
        return self._current.snapshot.layout

    @property
    def problems(self) -> list[str]:
        """Sentences about everything that is missing, damaged or not read, to be reported once at start."""
        snapshot = self._current.snapshot
        return [
            *snapshot.layout.problems,
            *snapshot.commit_log.problems,
            *_uncommitted(snapshot),
            *snapshot.index.problems,
            *snapshot.queues.problems,
            *snapshot.queues.tier_problems,
            *snapshot.queues.notes,
            *snapshot.config.problems,
            *(part.sentence() for part in snapshot.config.unread),
            *(f"no record between physical offsets {start} and {stop}" for start, stop in snapshot.tail.skipped),
            *([self._upkeep.problem] if self._upkeep.problem else []),
        ]

    @property
    def why_lost(self) -> str:
        """A clause that messages may be lost, for an answer that finds nothing; "" if no damage is known.

        Known is the damage that a scan for keys passed over, and where index entries lead that were followed; that at
        the end of the log, which every answer names as what it may lack, is left out.
        """
        snapshot = self._current.snapshot
        named = merge((damage.start, damage.stop) for damage in snapshot.commit_log.damage)
        skipped = subtract(merge(snapshot.tail.skipped), named)
        alone = subtract([(at, at + 1) for at in snapshot.damage], merge([*skipped, *named]))
        places = [f"between physical offsets {start} and {stop}" for start, stop in skipped]
        places += [f"at physical offset {at}" for at, _ in alone]
        if not places:
            return ""
        more = len(places) - MOST_PLACES
        listed = ", ".join(places[:MOST_PLACES]) + (f" and in {more:,} places more" if more > 0 else "")
        return f"it may be lost, since the log is damaged: no intact record is {listed}"

    def refuse_tier(self, command: str) -> None:
        """Raise ConfigError for a command that reads the log alone, where older messages are in a tier."""
        if self.queues.tier is not None:
            way_out = "" if self.layout.is_tier_alone else "; without the tier it reads the store's own log"
            raise ConfigError(f"{command} reads no tiered files, {TIER_READERS} do{way_out}")

    def refresh(self) -> None:
        """Read everything that changed, as if the store were opened now. Waits for the disk."""
        with self._renewing:
            work = self._watch.look(self._current.snapshot, thorough=True)
            end = self._current.end_follower
            self._current.change(lambda snapshot: with_all_growth((work and work(snapshot)) or snapshot, end))
        if self._finishing.acquire(blocking=False):  # otherwise another thread scans everything
            try:
                self._upkeep.scan(self._options.scan_budget)
            finally:
                self._finishing.release()
        self._call_back()

    def renew(self) -> bool:
        """Read what changed, except new records at the end of the log; return whether `finish_scan` has work to do.

        It has when index files are not checked, parts of the log are not scanned, or keys are to be moved from memory
        to files. Waits for the disk.
        """
        with self._renewing:
            work = self._watch.look(self._current.snapshot)
            before = self._current.snapshot.queues
            changed = work is not None and self._current.change(work)
            are_queues_others = not self._current.snapshot.queues.is_of(before)
        if are_queues_others:
            self._call_back()
        return changed or self._upkeep.is_unfinished

    def follower(self) -> StoreFollower:
        """Make a follower that keeps the snapshot up to date while a broker writes; one for each server."""
        self._current.follow()
        return StoreFollower(self._current, self.renew)

    def after_refresh(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called whenever queues were listed anew, on the thread that did so; it may wait."""
        self._refreshed.append(callback)

    def finish_scan(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Check and scan, step by step, what the budgets of :class:`StoreOptions` did not allow at opening.

        Waits for the disk; run it in a thread. If another thread does so already, this one waits until it has ended.
        """
        with self._finishing:
            self._upkeep.run(should_stop)

    def keep_entries(self) -> None:
        """From now on write keys that take too much memory into index files of our own; called in one process only."""
        self._upkeep.keep_entries()

    def _call_back(self) -> None:
        for callback in self._refreshed:
            callback()

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The intact record that starts at a physical offset, or None."""
        return self._current.snapshot.commit_log.record_at(physical_offset)

    def hot_record_at(self, physical_offset: int) -> memoryview | None:
        """The record at a physical offset if its pages are in memory; None if there is none or it has to be read."""
        return self._current.snapshot.commit_log.hot_record_at(physical_offset)

    def record_at_lookup(self, physical_offset: int) -> Lookup[memoryview | None]:
        """`record_at` as a look-up."""
        return self._current.snapshot.commit_log.record_at_lookup(physical_offset)

    def damaged_record_at(self, physical_offset: int) -> memoryview | None:
        """The record of sound shape at a physical offset, or None; its checksums are not verified."""
        return self._current.snapshot.commit_log.damaged_record_at(physical_offset)

    def explain_absence_lookup(self, physical_offset: int) -> Lookup[str]:
        """Return a sentence that says why no record starts at a physical offset."""
        snapshot = self._current.snapshot
        if snapshot.layout.is_tier_alone:
            return f"physical offset {physical_offset} names no message: {OFFSETS_OF_TIER}"
        reason = yield from explain_absence_lookup(snapshot.commit_log, physical_offset)
        return reason if snapshot.queues.tier is None else f"{reason}; {OFFSETS_OF_TIER}"

    explain_absence = plainly(explain_absence_lookup)

    def message_by_offset_id_lookup(self, message_id: MessageId) -> Lookup[memoryview | None]:
        """Return the record that an offset message id names, if its store host is the one in the id, else None."""
        record = yield from self.record_at_lookup(message_id.physical_offset)
        return record if record is not None and store_host_of(record) == message_id.address else None

    message_by_offset_id = plainly(message_by_offset_id_lookup)

    def index_last_update(self) -> tuple[int, int]:
        """End timestamp (ms) and end physical offset of the newest index file, zeros without one."""
        return self._current.snapshot.index.last_update

    def query_lookup(self, query: Question) -> Lookup[QueryAnswer]:
        """Return the newest messages that have a key, those of the tier before the others; each record is checked."""
        snapshot = self._current.snapshot
        if snapshot.queues.tier is None:  # no step more than without tiers
            return self._query_log_lookup(query, snapshot)
        return self._query_both_lookup(query, snapshot)

    def _query_both_lookup(self, query: Question, snapshot: Snapshot) -> Lookup[QueryAnswer]:
        """Return the newest messages in log and tier that have a key."""
        if snapshot.layout.is_tier_alone:
            return (yield from self._with_tier(query, QueryAnswer(b"", 0, False, None, snapshot)))
        answer = yield from self._query_log_lookup(query, snapshot)
        return answer if answer.truncated or answer.refusal else (yield from self._with_tier(query, answer))

    def _with_tier(self, query: Question, answer: QueryAnswer) -> Lookup[QueryAnswer]:
        """Add the matches of the tier to those of the log, which has no older ones."""
        snapshot, room = answer.snapshot, query.maximum - answer.count
        needle, _, _ = query.needle()
        if len(needle) > kernel.NEEDLE_BYTES or query.maximum <= 0:
            answer.refusal = _refusal(query, needle)
            return answer
        if not needle.isascii() and REPLACEMENT in needle:
            unsearched = "keys with U+FFFD are not looked for in the tier"
            answer.incomplete = "; ".join(filter(None, [answer.incomplete, unsearched]))
            return answer
        yield from snapshot.queues.listed()
        found = yield from query_tier(snapshot.queues, self._tier_keys, query, max(room, 1))
        answer.tier_logs = found.logs
        missing = [f"{found.unscanned} bytes of the tier's logs are damaged"] if found.unscanned else []
        if room <= 0:  # the next page begins below the log's matches
            answer.truncated = bool(found.hits)
        elif found.hits:
            if found.more:
                missing.append("older matches in the tier are left out: narrow the time to get them")
            places = [(number - len(found.hits), len(hit.record)) for number, hit in enumerate(found.hits)]
            answer.decoded = (*places, *zip(answer.physical_offsets, answer.sizes, strict=True))
            answer.records = b"".join([*(hit.record for hit in found.hits), answer.records])
            answer.count += len(found.hits)
        answer.incomplete = "; ".join(filter(None, [answer.incomplete, *missing])) or None
        return answer

    def _query_log_lookup(self, query: Question, snapshot: Snapshot) -> Lookup[QueryAnswer]:
        """Return the newest messages in the log that have a key."""
        sought = kernel.KeyQuery(query)
        needle = sought.needle
        if len(needle) > kernel.NEEDLE_BYTES or query.maximum <= 0:
            return QueryAnswer(b"", 0, False, snapshot.incomplete, snapshot, refusal=_refusal(query, needle))
        if not needle.isascii() and REPLACEMENT in needle:
            yield Wait("comparing decoded keys")
            return self._query_by_decoding(snapshot, query)
        if query.kind is KeyKind.TAG and snapshot.index.untagged:
            return (yield from self._query_queues(snapshot, query))
        for _ in range(MOST_STRAYS):
            found = run_lookup(snapshot.view, sought, current_tick())
            if found.status != kernel.FOUND:
                found = yield from _after_wait(found, snapshot.view, sought)
            answer = yield from _answer(snapshot, query, found)
            if found.stray_file is None:
                break
            yield Wait("an index entry that leads to no message")
            snapshot = self._without_stray(snapshot, found.stray_file, found.stray_offset)
        return answer

    query = plainly(query_lookup)

    def _without_stray(self, snapshot: Snapshot, file: FileView, physical_offset: int) -> Snapshot:
        """Return a snapshot that takes an index entry without a record into account. Waits for the disk.

        Either the log is damaged there, or the entry is; then its file is no longer trusted to cover its range.
        """
        if lies_in_record(snapshot.commit_log, physical_offset):
            self._current.change(partial(self._reject, file, physical_offset))
            if self._options.scan_budget is None:
                self.finish_scan()
        else:
            self._current.change(lambda current: with_damage(current, physical_offset))
        return self._current.snapshot

    def _reject(self, file: FileView, physical_offset: int, snapshot: Snapshot) -> Snapshot | None:
        """Return the snapshot without the range of an index file, one entry of which points into a message.

        None where that file is distrusted already.
        """
        before = snapshot.index.examined(file)
        if before is None or before.is_rejected:
            return None
        gaps = () if before.covering is None else before.covering.index.shape.gaps
        if any(start <= physical_offset <= stop for start, stop in gaps):  # a log that was cut under its index
            return with_damage(snapshot, physical_offset)
        cache = StateCache.load(self._options.state_directory).keep_all()
        now = reject(before, snapshot.commit_log, cache, physical_offset)
        if self._options.keeps_state:
            cache.save()
        return with_index(snapshot, snapshot.index.with_checked(before, now))

    def _query_queues(self, snapshot: Snapshot, query: Question) -> Lookup[QueryAnswer]:
        """Query a tag where index files keep no tags: the units of the topic's queues give the candidates instead."""
        sought = kernel.KeyQuery(query, tags_only=True)
        yield from snapshot.queues.listed()
        view = yield from _with_tagged_units(snapshot, query, sought.needle)
        found = run_lookup(view, sought, current_tick())
        if found.status != kernel.FOUND:
            found = yield from _after_wait(found, view, sought)
        answer = yield from _answer(snapshot, query, found)
        names = self.identity.broker_name, self.identity.cluster, f"{self.identity.cluster}{REPLY_TOPIC_SUFFIX}"
        missing = _missing_queues(
            snapshot, query.topic, is_made_at_start=query.topic in TOPICS_OF_EVERY_BROKER | {*names}
        )
        answer.incomplete = "; ".join(filter(None, [answer.incomplete, missing])) or None
        return answer

    def _query_by_decoding(self, snapshot: Snapshot, query: Question) -> QueryAnswer:
        """Query a key with U+FFFD by decoded strings, since the bytes of such a key may be invalid UTF-8."""
        records, truncated = find_by_decoding(
            snapshot.commit_log, snapshot.index, snapshot.tail, snapshot.queues, query
        )
        joined = b"".join(record for _, record in records)
        places = tuple((offset, len(record)) for offset, record in records)
        return QueryAnswer(joined, len(records), truncated, snapshot.incomplete, snapshot, decoded=places)


def store_host_of(record: memoryview) -> HostAddress:
    """Return the store host of a record of sound shape."""
    return decode_message(record, check_crc=False).store_host


def _with_tagged_units(snapshot: Snapshot, query: Question, needle: bytes) -> Lookup[StoreView]:
    """Return a view whose tail also has the queue units with the tag's hash, where index files keep no tags."""
    tag = java_hash(query.text)
    found = yield from all_of(
        _offsets_with_tag(snapshot, query.topic, tag, start, stop) for start, stop in snapshot.index.without_tags()
    )
    tail = merge_candidates(snapshot.tail, index_hash(needle.decode("utf-8", "replace")), np.concatenate(found))
    return snapshot.view.with_runs(tail.view)


def _offsets_with_tag(snapshot: Snapshot, topic: str, tag: int, start: int, stop: int) -> Lookup[npt.NDArray[np.int64]]:
    """Return the candidates of the queues; none where they cannot be listed, which `_missing_queues` reports."""
    try:
        snapshot.queues.queue_ids(topic)
    except StoreError:
        return np.empty(0, np.int64)
    return (yield from snapshot.queues.offsets_with_tag_lookup(topic, tag, start, stop))


def _refusal(query: Question, needle: bytes) -> str:
    """Return a sentence that says why a query can have no answer."""
    if query.maximum <= 0:
        return f"a maximum of {query.maximum} asks for nothing"
    return f"topic and key have {len(needle)} bytes, more than any message can hold"


def _missing_queues(snapshot: Snapshot, topic: str, *, is_made_at_start: bool) -> str | None:
    """Return a sentence about queues that the topic should have but that have no files, None if none is missing.

    A topic that brokers make when they start has no queue before its first message.
    """
    first, last = snapshot.index.without_tags()[0][0], snapshot.index.without_tags()[-1][1]
    where = f"the index keeps no tags from physical offset {first} to {last}"
    config = snapshot.config.topics.get(topic)
    wanted = max(config.read_queue_nums, config.write_queue_nums) if config else 0
    try:
        found = snapshot.queues.queue_ids(topic)
    except StoreError as error:
        return f"{where}, and {error}"
    absent = [str(queue_id) for queue_id in range(min(wanted, 10_000)) if queue_id not in found]
    if not found:
        return None if is_made_at_start else f"{where}, and topic {topic} has no queue to find them by"
    if absent:
        return f"{where}, and queues {', '.join(absent[:20])} of {topic} have no files"
    return None


def _after_wait(found: Found, view: StoreView, query: kernel.KeyQuery) -> Lookup[Found]:
    """Run the kernel to its end, after the wait before which it stopped; return its result."""
    if found.status == kernel.STOPPED_LONG:
        yield Wait("a long chain of index entries", kind=WaitKind.CHAIN)
    else:
        yield cast(MappedFile, found.cold_file).cold(found.cold_position, found.cold_length)
    return run_lookup(view, query, 0)


def _answer(snapshot: Snapshot, query: Question, found: Found) -> Lookup[QueryAnswer]:
    """Make the answer from the result of a look-up, which names damaged records that it may lack."""
    damaged = [(at, snapshot.commit_log.check(at)) for at in found.damaged]
    torn = snapshot.commit_log.torn_end
    if found.refused and torn is not None and torn.code in (codes.BAD_BODY_CRC, codes.BAD_PROPERTY_CRC):
        yield Wait("the damaged record at which the log ends")
        record = snapshot.commit_log.damaged_record_at(torn.physical_offset)
        if record is not None and query.is_answered_by(decode_message(record, check_crc=False)):
            damaged.append((torn.physical_offset, torn.code))
    incomplete = joined_clauses((snapshot.incomplete, _damage(damaged)))
    return QueryAnswer(found.records, found.count, found.truncated, incomplete, snapshot, found)


def _damage(damaged: Sequence[tuple[int, int]]) -> str | None:
    """Return a clause about records that match a query but for their checksums; None where there are none."""
    if not damaged:
        return None
    or_more = " or more" if len(damaged) >= kernel.MOST_DAMAGED else ""
    places = [f"{at} ({reason_of(code)})" for at, code in damaged[:MOST_PLACES]]
    more = f" and {len(damaged) - MOST_PLACES} more" if len(damaged) > MOST_PLACES else ""
    be = "is" if len(damaged) == 1 else "are"
    count = f"{counted(len(damaged), 'message')}{or_more}"
    return f"{count} that may be meant {be} damaged, at physical offset {', '.join(places)}{more}"


def _report(snapshot: Snapshot, found: Found, tier_logs: int) -> SearchReport:
    begin_timestamp, end_timestamp, begin_physical_offset, end_physical_offset = snapshot.index.extent
    return SearchReport(
        files_searched=found.files,
        entries_walked=found.walked,
        refused=found.refused,
        bad_pointers=found.bad_pointers,
        index_begin_timestamp=begin_timestamp,
        index_end_timestamp=end_timestamp,
        index_begin_physical_offset=begin_physical_offset,
        index_end_physical_offset=end_physical_offset,
        log_minimum=snapshot.commit_log.minimum,
        log_end=snapshot.commit_log.end,
        log_beyond_index=snapshot.beyond_index,
        unscanned=snapshot.tail.remaining_bytes,
        tier_logs=tier_logs,
    )


def _uncommitted(snapshot: Snapshot) -> list[str]:
    """Describe the entries that a DLedger group had not committed; a running broker records them a little late."""
    if snapshot.state.is_live:
        return []
    problem = uncommitted_problem(snapshot.layout.ledgers, snapshot.commit_log.end)
    return [] if problem is None else [problem]
