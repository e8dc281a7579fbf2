"""Compare an index file with the log: do its entries belong to these records, and does it keep tag entries?

A file can be sound in itself and still speak of another log (one that was cut and written on, or copied together from
two stores). So a sample of entries, the newest ones above all, is compared with the records they point to. On the way
the tagged records among them show whether the file has an entry for each tag, as brokers since 5.4 write, or none
(store-format §10).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from storage.index.index_file import ENTRY, IndexFile
from storage.kernels.records import check_shape, entry_hashes, tag_entry_hash
from storage.log.commit_log import CommitLog

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
    seen = missing = foreign = tagged = kept = 0
    shape = index_file.shape
    # What their tags have may be in the files beside; before the first record only if its keys are in any order.
    ends = (shape.maximum, shape.minimum if shape.compacted else shape.maximum)
    for number in sampled_entries(index_file.shape.entries):
        entry = index_file.entry(number)
        segment = commit_log.segment_of(entry.physical_offset)
        if segment is None:
            continue
        seen += 1
        position, stop = entry.physical_offset - segment.base_offset, segment.valid_length
        region = segment.region_at(position)
        is_there = check_shape(region, position, stop, entry.physical_offset) > 0
        hashes = entry_hashes(region, position, stop) if is_there else None
        if hashes is None:
            missing += 1
            continue
        foreign += entry.key_hash not in hashes
        tag_hash = tag_entry_hash(region, position, stop)
        if tag_hash is not None and entry.physical_offset not in ends:
            tagged += 1
            kept += _has_entry(index_file, number, tag_hash, entry.physical_offset)
    return ProbeResult(fits=not foreign and missing * 4 <= seen, has_tags=tagged > 0 and kept == tagged)


def sampled_entries(entries: int) -> Iterator[int]:
    """The numbers of the entries of a file that are compared with the log, ascending."""
    numbers = {*range(1, min(entries, SAMPLE) + 1), *range(max(1, entries - SAMPLE + 1), entries + 1)}
    if entries > 2 * SAMPLE:
        numbers.update(SAMPLE + (entries - 2 * SAMPLE) * number // (SAMPLE - 1) for number in range(SAMPLE))
    yield from sorted(numbers)


def _has_entry(index_file: IndexFile, number: int, key_hash: int, physical_offset: int) -> bool:
    """Whether a file has an entry for a hash and an offset: beside a known one, or in the hash's chain."""
    first, last = max(1, number - NEIGHBOURS), min(index_file.shape.entries, number + NEIGHBOURS)
    if any(near[:2] == (key_hash, physical_offset) for near in ENTRY.iter_unpack(index_file.rows(first, last))):
        return True
    for steps, (_, entry) in enumerate(index_file.chain(key_hash)):
        if (entry.key_hash, entry.physical_offset) == (key_hash, physical_offset):
            return True
        if steps > CHAIN_LIMIT or (index_file.shape.ascending and entry.physical_offset < physical_offset):
            return False
    return False
