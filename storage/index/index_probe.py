"""Hold an index file against the log: do its entries belong to these records, and does it keep tag entries?

A file can be sound in itself and still speak of another log (one that was cut and written on, or copied together from
two stores). So a sample of entries, the newest ones above all, is compared with the records they point to. On the way
the tagged records among them show whether the file has an entry for each tag, as brokers since 5.4 write, or none
(store-format §10).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from storage.commit_log import CommitLog
from storage.index_file import IndexEntry, IndexFile
from storage.kernels import record as codes
from storage.kernels.scan import MAXIMUM_PIECES, emit_record, tag_entry_hash

SAMPLE = 24
"""Entries looked at in each of three places: the first, the last, and spread between."""

CHAIN_LIMIT = 200_000
NEIGHBOURS = 8


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """``fits``: sampled entries belong to the log. ``has_tags``: every tagged record among them has its tag entry."""

    fits: bool
    has_tags: bool


def probe_index_file(index_file: IndexFile, commit_log: CommitLog) -> ProbeResult:
    """Compare a sample of a file's entries with the log's records; waits for the disk."""
    hashes, offsets = np.zeros(MAXIMUM_PIECES, dtype=np.int32), np.zeros(MAXIMUM_PIECES, dtype=np.int64)
    seen = missing = foreign = tagged = kept = 0
    shape = index_file.shape
    # What their tags have may be in the files beside; before the first record only if its keys are in any order.
    ends = (shape.maximum, shape.minimum if shape.compacted else shape.maximum)
    for number in _sample(index_file.shape.entries):
        entry = index_file.entry(number)
        record = _record_address(commit_log, entry.physical_offset)
        if record is None:
            continue
        seen += 1
        if record == 0:
            missing += 1
            continue
        count = int(emit_record(record, entry.physical_offset, 0, hashes, offsets))
        foreign += entry.key_hash not in hashes[:count]
        tag_hash = int(tag_entry_hash(record))
        if tag_hash >= 0 and entry.physical_offset not in ends:
            tagged += 1
            kept += _has_entry(index_file, number, tag_hash, entry.physical_offset)
    return ProbeResult(fits=not foreign and missing * 4 <= seen, has_tags=tagged > 0 and kept == tagged)


def _sample(entries: int) -> Iterator[int]:
    numbers = {*range(1, min(entries, SAMPLE) + 1), *range(max(1, entries - SAMPLE + 1), entries + 1)}
    if entries > 2 * SAMPLE:
        numbers.update(int(number) for number in np.linspace(SAMPLE, entries - SAMPLE, SAMPLE))
    yield from sorted(numbers)


def _record_address(commit_log: CommitLog, physical_offset: int) -> int | None:
    """Address of the record at an offset, 0 if none of sound shape starts there, None outside the log."""
    segment = commit_log.segment_of(physical_offset)
    if segment is None:
        return None
    position = physical_offset - segment.base_offset
    found = codes.check_shape(segment.file.address + position, segment.valid_length - position, physical_offset)
    return segment.file.address + position if found > 0 else 0


def _has_entry(index_file: IndexFile, number: int, key_hash: int, physical_offset: int) -> bool:
    """Whether a file has an entry for a hash and an offset: beside a known one, or in the hash's chain."""
    first, last = max(1, number - NEIGHBOURS), min(index_file.shape.entries, number + NEIGHBOURS)
    if any(_is(index_file.entry(near), key_hash, physical_offset) for near in range(first, last + 1)):
        return True
    for steps, (_, entry) in enumerate(index_file.chain(key_hash)):
        if _is(entry, key_hash, physical_offset):
            return True
        if steps > CHAIN_LIMIT or (index_file.shape.ascending and entry.physical_offset < physical_offset):
            return False
    return False


def _is(entry: IndexEntry, key_hash: int, physical_offset: int) -> bool:
    return entry.key_hash == key_hash and entry.physical_offset == physical_offset
