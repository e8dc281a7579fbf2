"""Key queries of a tier: there is no index that is read, so the keys of a queue's log are found by a scan.

A log is scanned in pieces, the newest first, by the kernel that scans what no index file covers. The entries of the
pieces used last are kept, so that the next query reads only the records that its entries lead to.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from protocol.message import decode_message
from protocol.question import Question
from storage.files.waiting import Lookup, Wait
from storage.index.tail_index import TailIndex, empty_tail, extend_tail
from storage.kernels import lookups as kernel
from storage.kernels.store_view import IndexFilesView, StoreView
from storage.log.commit_log import CommitLog
from storage.query.lookup_call import run_lookup
from storage.queue.queue_store import QueueStore

PIECE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a log that are scanned together: some tens of milliseconds."""

MOST_KEPT: Final = 64 * 1024 * 1024
"""Bytes of entries that are kept."""


@dataclass(frozen=True, slots=True)
class TierHit:
    """One record of a tier that matches: its store time (ms), its place in the log that it was in, and its bytes."""

    store_timestamp: int
    physical_offset: int
    record: bytes


@dataclass(frozen=True, slots=True)
class TierAnswer:
    """The newest matches of a tier, ascending by store time; ``more``: there are older ones that were not asked for.

    ``logs`` counts the queues whose logs were scanned, ``unscanned`` bytes of them are damaged and were stepped over.
    """

    hits: list[TierHit] = field(default_factory=list)
    more: bool = False
    logs: int = 0
    unscanned: int = 0


class TierKeys:
    """The entries of pieces of a tier's logs that were scanned last. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: OrderedDict[tuple[object, ...], TailIndex] = OrderedDict()
        self._bytes = 0

    def entries(self, log: CommitLog, start: int, stop: int) -> TailIndex:
        """The entries of the records that start in [start, stop) of a log. Waits for the disk."""
        # A log that has grown has the same files there, one into which a missing file came back has others.
        segments = [each.file.identity for each in log.segments if each.base_offset < stop and each.end > start]
        key = start, stop, *((identity.device, identity.inode) for identity in segments)
        with self._lock:
            known = self._pieces.get(key)
            if known is not None:
                self._pieces.move_to_end(key)
                return known
        tail = extend_tail(empty_tail([(start, stop)]), log, stop - start)
        with self._lock:
            if key not in self._pieces:
                self._bytes += tail.entry_bytes
            self._pieces[key] = tail
            while self._bytes > MOST_KEPT and len(self._pieces) > 1:
                self._bytes -= self._pieces.popitem(last=False)[1].entry_bytes
        return tail


def query_tier(queues: QueueStore, keys: TierKeys, query: Question, maximum: int) -> Lookup[TierAnswer]:
    """Return the newest ``maximum`` messages of a tier that match a query, but for those that the store's log has too.

    ``queues`` have a tier. Each record is checked.
    """
    hits: list[TierHit] = []
    more, logs, unscanned = False, 0, 0
    for queue_id in queues.queue_ids(query.topic):
        queue = yield from queues.queue_lookup(query.topic, queue_id)
        yield Wait(f"keys in the tier's log of {query.topic} {queue_id}")
        in_tier = queues.tier_part(queue)
        if in_tier is None:
            continue
        part, stop = in_tier
        logs += 1
        found, is_cut, skipped = _of_log(part.log, keys, query, maximum, stop)
        hits += found
        more |= is_cut
        unscanned += skipped
    hits.sort(key=lambda hit: (hit.store_timestamp, hit.physical_offset))
    kept = _within(hits, maximum, query.maximum_bytes)
    return TierAnswer(kept, more or len(kept) < len(hits), logs, unscanned)


def _of_log(
    log: CommitLog, keys: TierKeys, query: Question, maximum: int, stop: int
) -> tuple[list[TierHit], bool, int]:
    """The newest matches in one log before a physical offset, whether there may be more, and bytes of damage."""
    hits: list[TierHit] = []
    skipped = 0
    for first, end in _pieces(log, stop):
        tail = keys.entries(log, first, end)
        skipped += sum(behind - start for start, behind in tail.skipped)
        wanted = msgspec.structs.replace(query, maximum=maximum - len(hits), before_physical_offset=end)
        view = StoreView(log.view, IndexFilesView(), tail.view)
        found = run_lookup(view, kernel.KeyQuery(wanted), 0)
        hits += _hits(found)
        if found.truncated or (len(hits) == maximum and first > log.minimum):
            return hits, True, skipped
    return hits, False, skipped


def _pieces(log: CommitLog, stop: int) -> Iterator[tuple[int, int]]:
    """The pieces of a log before a physical offset, the newest first; all but that one end at the same places ever."""
    while stop > log.minimum:
        start = max((stop - 1) // PIECE_BYTES * PIECE_BYTES, log.minimum)
        yield start, stop
        stop = start


def _hits(found: kernel.Found) -> Iterator[TierHit]:
    records, position = found.records, 0
    for size in found.sizes:
        record = records[position : position + size]
        message = decode_message(record, check_crc=False)
        yield TierHit(message.store_timestamp, message.physical_offset, record)
        position += size


def _within(hits: list[TierHit], maximum: int, maximum_bytes: int) -> list[TierHit]:
    """The newest hits within limits of number and bytes, ascending."""
    kept: list[TierHit] = []
    total = 0
    for hit in reversed(hits):
        total += len(hit.record)
        if len(kept) == maximum or (kept and total > maximum_bytes):
            break
        kept.append(hit)
    return kept[::-1]
