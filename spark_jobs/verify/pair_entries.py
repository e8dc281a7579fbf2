"""Pair the entries of an index file that match nothing with the keys of the log that have no entry.

Where an entry is damaged, one of the file's entries belongs to no key of the log, and one key of the log has no entry.
In a file that a broker wrote both stand at the same place of the sequence, so they are paired by it, and the finding
says which bytes are wrong, not that one is too many and another missing. In a file in another order they are paired by
what of the entry is intact, hash or physical offset.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_jobs.verify.log_table import LogTable
from spark_jobs.verify.match_entries import LogEntries, Matched, Numbers
from storage.index.index_copy import Entries
from storage.kernels.matching import REPEATED

MOST_PAIRED: Final = 100_000
"""Leftover entries of a file that are paired; with more it is not damage in places any more."""

Flags = npt.NDArray[np.bool_]


@dataclass
class Leftover:
    """What the entries of a file are that have no match, and what the log leads to that has none.

    `pairs`: (number, place in `unseen`) of entries that should be others; `strays`: numbers of entries that should not
    be; `missing`: entries that should be there, `dropped` how many a compaction may have left out; `repeated`: numbers
    of entries that are there already. Not to be complained of are `expired` entries (their records are gone), those
    into `lost` ranges of the log, `newer` ones than the scan, and `repeats` of a record that a broker dispatched again.
    Ranks and physical offsets of the first and the last entry are as the log has them, −1 without any match.
    """

    ordered: bool
    unseen: LogEntries
    strays: Numbers
    repeated: Numbers
    missing: LogEntries
    pairs: list[tuple[int, int]]
    first_rank: int
    last_rank: int
    first_offset: int = -1
    last_offset: int = -1
    dropped: int = 0
    expired: int = 0
    lost: int = 0
    newer: int = 0
    repeats: int = 0


def sort_out(entries: Entries, matched: Matched, log: LogTable, *, grows: bool) -> Leftover:
    """Judge what is left over of a file with these entries (from number 0 on); `grows`: a broker writes to it."""
    ranks = matched.ranks
    none = np.zeros(0, np.int64)
    bounds = matched.matching.lowest, matched.matching.highest
    left = Leftover(matched.is_ordered, matched.unseen, none, none, matched.unseen.take(slice(0)), [], *bounds)
    numbers = np.flatnonzero(ranks[1:] < 0) + 1
    first = int((ranks >= 0).argmax()) if matched.matches else len(ranks)
    wrong = _excuse(left, numbers, entries, matched, log, first=first, grows=grows)
    lenient = _of_other_brokers(matched)
    if matched.matches and 0 < wrong.size <= MOST_PAIRED:
        _pair(left, wrong, np.flatnonzero(ranks >= 0), ranks, entries, lenient)
        paired = {number for number, _ in left.pairs}
        wrong = np.array([number for number in wrong.tolist() if number not in paired], np.int64)
    is_repeat = ranks[wrong] <= REPEATED
    left.strays, left.repeated = wrong[~is_repeat], wrong[is_repeat]
    _note_missing(left, lenient)
    if matched.matches:
        left.first_offset = _offset_of(left.first_rank, left, ranks, entries)
        left.last_offset = _offset_of(left.last_rank, left, ranks, entries)
    return left


def _excuse(
    left: Leftover, numbers: Numbers, entries: Entries, matched: Matched, log: LogTable, *, first: int, grows: bool
) -> Numbers:
    """Count what is no damage; the other numbers. `first` is the number of the first entry with a match."""
    offsets = entries["physical_offset"][numbers].astype(np.int64)
    repeats = matched.ranks[numbers] <= REPEATED
    # Entries below the log's minimum were put before all others; in a compacted file they are anywhere.
    expired = (offsets >= 0) & (offsets < log.minimum) & ((numbers < first) | (not left.ordered))
    lost = log.are_lost(offsets)
    newer = (offsets >= log.end) if grows else np.zeros(len(numbers), np.bool_)
    boundary = repeats & _at_boundary(left, numbers, offsets, entries)
    left.expired, left.lost = int(expired.sum()), int(lost.sum())
    left.newer, left.repeats = int(newer.sum()), int(boundary.sum())
    return numbers[~(expired | lost | newer | boundary)]


def _at_boundary(left: Leftover, numbers: Numbers, offsets: Numbers, entries: Entries) -> Flags:
    """Which repeated entries a broker puts that recovers: those of the last record once more, all of them."""
    if left.ordered:
        again = entries["physical_offset"][numbers - 1].astype(np.int64) == offsets
    else:
        again = offsets == entries["physical_offset"][1:].astype(np.int64).max(initial=-1)
    whole: Flags = again & ~np.isin(offsets, left.unseen.physical_offsets)
    return whole


def _of_other_brokers(matched: Matched) -> Flags:
    """Which unseen entries are those of tags that a broker before 5.4 did not put, as far as this file shows."""
    unseen = matched.unseen
    if matched.first_tag < 0:
        return unseen.are_tags
    lenient: Flags = np.zeros(len(unseen.ranks), np.bool_)
    first, last = matched.matching.lowest, matched.matching.highest
    # Only where tags of this very file are left out before its first or behind its last one, so they are around it.
    for outside, inside in (
        (unseen.ranks < matched.first_tag, unseen.ranks > first),
        (unseen.ranks > matched.last_tag, unseen.ranks < last),
    ):
        if (unseen.are_tags & outside & inside).any():
            lenient |= unseen.are_tags & outside
    return lenient


def _pair(left: Leftover, wrong: Numbers, found: Numbers, ranks: Numbers, entries: Entries, lenient: Flags) -> None:
    """Find out which unseen entry each wrong one should be."""
    unseen = left.unseen
    inside = (unseen.ranks > left.first_rank) & (unseen.ranks < left.last_rank)
    rest, free = wrong, np.zeros(len(lenient), np.bool_)
    for candidates in (~lenient, lenient):
        free |= candidates
        free[[place for _, place in left.pairs]] = False
        if left.ordered:
            rest = _pair_in_place(left, rest, found, ranks, entries, free, surely=candidates is lenient)
        else:
            rest = _pair_alike(left, rest, np.flatnonzero(free & inside), entries)
    left.pairs.sort()
    places = unseen.ranks[[place for _, place in left.pairs]]
    left.first_rank = min(left.first_rank, int(places.min(initial=left.first_rank)))
    left.last_rank = max(left.last_rank, int(places.max(initial=left.last_rank)))


def _pair_in_place(
    left: Leftover, rest: Numbers, found: Numbers, ranks: Numbers, entries: Entries, free: Flags, *, surely: bool
) -> Numbers:
    """Pair runs of entries with unseen ones between the same good ones: alike ones, else as many; what remains."""
    remaining = []
    gaps = np.searchsorted(found, rest)
    for numbers in np.split(rest, np.flatnonzero(np.diff(gaps)) + 1):
        gap = int(np.searchsorted(found, numbers[0])) if numbers.size else 0
        places = _places_between(left.unseen.ranks, found, ranks, numbers, free)
        numbers = _pair_alike(left, numbers, places, entries)
        free[[place for _, place in left.pairs]] = False
        places = places[free[places]]
        # At the ends of a file entries of tags may be left out or not, so that places alone say little.
        if places.size == numbers.size and (surely or 0 < gap < len(found)):
            left.pairs += zip(numbers.tolist(), places.tolist(), strict=True)
            free[places] = False
        else:
            remaining.append(numbers)
    return np.concatenate([np.zeros(0, np.int64), *remaining])


def _places_between(unseen: Numbers, found: Numbers, ranks: Numbers, numbers: Numbers, free: Flags) -> Numbers:
    """Free places between the good entries around a run of others; at the ends of a file those right beside."""
    if not numbers.size:
        return numbers
    gap = int(np.searchsorted(found, numbers[0]))
    start = 0 if not gap else int(np.searchsorted(unseen, ranks[found[gap - 1]]))
    stop = len(unseen) if gap == len(found) else int(np.searchsorted(unseen, ranks[found[gap]]))
    places = start + np.flatnonzero(free[start:stop])
    if not gap:
        return places[-numbers.size :]
    return places[: numbers.size] if gap == len(found) else places


def _pair_alike(left: Leftover, numbers: Numbers, places: Numbers, entries: Entries) -> Numbers:
    """Pair entries with those of the unseen ones that have their physical offset, or their hash; what remains."""
    for name, column in (("physical_offset", left.unseen.physical_offsets), ("key_hash", left.unseen.hashes)):
        waiting: dict[int, list[int]] = defaultdict(list)
        for place in reversed(places[np.isin(column[places], entries[name][numbers].astype(column.dtype))].tolist()):
            waiting[int(column[place])].append(place)
        remaining = []
        taken = set()
        for number in numbers.tolist():
            candidates = waiting.get(int(entries[name][number]))
            if candidates:
                left.pairs.append((number, candidates.pop()))
                taken.add(left.pairs[-1][1])
            else:
                remaining.append(number)
        numbers = np.array(remaining, np.int64)
        places = np.array([place for place in places.tolist() if place not in taken], np.int64)
    return numbers


def _note_missing(left: Leftover, lenient: Flags) -> None:
    """What should be between the first and the last entry of the file, and is not."""
    unseen = left.unseen
    inside = (unseen.ranks > left.first_rank) & (unseen.ranks < left.last_rank) & ~lenient
    inside[[place for _, place in left.pairs]] = False
    if left.ordered:
        left.missing = unseen.take(inside)
    else:
        left.dropped = int(inside.sum())


def _offset_of(rank: int, left: Leftover, ranks: Numbers, entries: Entries) -> int:
    """Physical offset of the record of a rank that the file has, or should have."""
    place = int(np.searchsorted(left.unseen.ranks, rank))
    if place < len(left.unseen.ranks) and left.unseen.ranks[place] == rank:
        return int(left.unseen.physical_offsets[place])
    return int(entries["physical_offset"][int((ranks == rank).argmax())])
