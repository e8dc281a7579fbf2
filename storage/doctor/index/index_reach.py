"""Compare the index with the log: which messages have keys that no index file holds?

Ranges of the log that no file covers are scanned, as a server does at its start. The messages at both ends of a file
may have their keys in two files, so each of their keys is looked up.
"""

from dataclasses import dataclass

import numpy as np

from protocol.sys_flag import has_inner_messages
from storage.doctor._opened_store import OpenedStore
from storage.doctor.finding import INDEX, INDEX_ANEW, Finding, Findings, FoundAt, Kind, Severity
from storage.index.tail_index import Hashes, Offsets, Scanned, scan_ranges
from storage.kernels.records import SYS_FLAG, entry_hashes, tag_entry_hash
from storage.ranges import Range, Ranges, lie_within, subtract

SCANNED_BYTES = 256 * 1024 * 1024
"""Bytes of uncovered log that are scanned; the rest is assumed to hold keys."""

CHAIN_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class IndexReach:
    """`uncovered`: ranges of physical offsets that hold messages without index entries, `messages` at least so many."""

    uncovered: tuple[Range, ...]
    messages: int
    is_complete: bool


def measure_index_reach(store: OpenedStore) -> IndexReach:
    """Scan what no index file covers. Waits for the disk."""
    log = store.commit_log
    edges = _edges(store)
    ranges: list[Range] = []
    messages, budget = 0, SCANNED_BYTES
    for start, stop in store.index.uncovered(log.minimum, log.end):
        if budget <= 0:
            ranges.append((start, stop))
            continue
        scanned = scan_ranges([(start, stop)], log, budget)
        budget -= stop - start
        if not scanned.hashes:
            continue
        lacking = _lacking(store, *_of_records(store, scanned), edges)
        if lacking.size:
            last = int(lacking[-1])
            reached = scanned.ranges[0][1]
            end = stop if reached < stop else last + max(log.check(last), 1)
            ranges.append((int(lacking[0]), end))
            messages += lacking.size
    return IndexReach(tuple(ranges), messages, budget > 0)


def check_index_reach(store: OpenedStore, reach: IndexReach) -> list[Finding]:
    """Report the ranges of the log without index entries."""
    findings = Findings("index-reach")
    shapes, log_end = [file.index.shape for file in store.index.files], store.commit_log.end
    gaps = [gap for shape in shapes for gap in shape.gaps if gap[1] < log_end]
    parts = (stop for shape in shapes for stop in (*(start for start, _ in shape.gaps), shape.maximum))
    end = max((stop for stop in parts if stop < log_end), default=0)
    for start, stop in reach.uncovered:
        is_behind = start >= end
        is_inside = any(first <= start < after for first, after in gaps)
        lags = store.state.is_live and is_behind
        where = "inside an index file" if is_inside else "between index files"
        if is_behind:
            where = "behind the last index file" if shapes else "in the whole log: no index file can be used"
        findings.add(
            Kind.LAG if lags else Kind.MISSING_ENTRY,
            Severity.INFO if lags else Severity.WARNING,
            FoundAt(store.layout.index, physical_offset=start),
            f"messages at physical offsets {start} to {stop} have no index entries, {where} ({stop - start} bytes)",
            "keys are looked for in the log there: nothing is missing here, but these bytes are scanned at each "
            "start; a broker does not find them by key",
            "nothing while a broker runs" if lags else store.command(INDEX_ANEW if is_inside else INDEX),
        )
    return findings.listed()


def indexed_ranges(store: OpenedStore, reach: IndexReach) -> Ranges:
    """Return the ranges of the log that the index files cover."""
    log = store.commit_log
    return subtract([(log.minimum, log.end)], reach.uncovered) if store.index.files else ()


def _of_records(store: OpenedStore, scanned: Scanned) -> tuple[Hashes, Offsets]:
    """The entries that a broker makes: of a batch those of its record alone, of none of its messages."""
    run = scanned.run()
    near = np.unique(run.offsets[lie_within(run.offsets, scanned.batches)]) if scanned.batches else run.offsets[:0]
    own = {offset: of_batch for offset in near.tolist() if (of_batch := _hashes_of_batch(store, offset)) is not None}
    if not own:
        return run.hashes, run.offsets
    others = ~np.isin(run.offsets, list(own))
    hashes = np.array([each for of_batch in own.values() for each in of_batch], np.int32)
    offsets = np.repeat(np.array(list(own), np.int64), [len(of_batch) for of_batch in own.values()])
    return np.concatenate([run.hashes[others], hashes]), np.concatenate([run.offsets[others], offsets])


def _hashes_of_batch(store: OpenedStore, physical_offset: int) -> list[int] | None:
    """The hashes of a batch's own keys and tag; None for any other record."""
    segment = store.commit_log.segment_of(physical_offset)
    if segment is None:
        return None
    position = physical_offset - segment.base_offset
    if not has_inner_messages(int.from_bytes(segment.file.peek(position + SYS_FLAG, 4), "big")):
        return None
    return entry_hashes(segment.region_at(position), position, segment.valid_length)


def _edges(store: OpenedStore) -> set[int]:
    """Physical offsets of messages whose keys may be shared out over two files, or over both sides of a gap."""
    shapes = [file.index.shape for file in store.index.files]
    ends = {offset for shape in shapes for offset in (shape.minimum, shape.maximum)}
    return ends | {offset for shape in shapes for gap in shape.gaps for offset in gap}


def _lacking(
    store: OpenedStore, hashes: np.ndarray, offsets: np.ndarray, edges: set[int]
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Offsets, ascending, of messages some of whose keys have no entry."""
    everything = np.unique(offsets)
    at_edges = [int(offset) for offset in everything[np.isin(everything, list(edges))]]
    whole = [offset for offset in at_edges if _has_all(store, hashes[offsets == offset].tolist(), offset)]
    lacking = everything[~np.isin(everything, whole)]
    if store.index.files and not any(file.has_tags for file in store.index.files):
        keyless = [offset for offset in lacking[:1000].tolist() if _has_only_a_tag(store, hashes, offsets, offset)]
        lacking = lacking[~np.isin(lacking, keyless)]
    return lacking


def _has_all(store: OpenedStore, wanted: list[int], physical_offset: int) -> bool:
    """Whether some file has an entry for each hash of a message; tags count where files keep them."""
    tag = None if all(file.has_tags for file in store.index.files) else _tag_hash(store, physical_offset)
    return all(key_hash == tag or _has_entry(store, key_hash, physical_offset) for key_hash in wanted)


def _has_only_a_tag(store: OpenedStore, hashes: np.ndarray, offsets: np.ndarray, physical_offset: int) -> bool:
    return set(hashes[offsets == physical_offset].tolist()) == {_tag_hash(store, physical_offset)}


def _tag_hash(store: OpenedStore, physical_offset: int) -> int | None:
    segment = store.commit_log.segment_of(physical_offset)
    if segment is None or store.commit_log.check(physical_offset) <= 0:
        return None
    position = physical_offset - segment.base_offset
    return tag_entry_hash(segment.region_at(position), position, segment.valid_length)


def _has_entry(store: OpenedStore, key_hash: int, physical_offset: int) -> bool:
    for file in store.index.files:
        if not file.index.shape.minimum <= physical_offset <= file.index.shape.maximum:
            continue
        for steps, (_, entry) in enumerate(file.index.chain(key_hash)):
            if entry.key_hash == key_hash and entry.physical_offset == physical_offset:
                return True
            if steps > CHAIN_LIMIT or (file.index.shape.ascending and entry.physical_offset < physical_offset):
                break
    return False
