"""Examine one index file: its shape, whether it belongs to the log, and what it covers. The result is kept while the
file stays as it is.

A file that a broker goes on filling is looked at again only where it grew. One that there is no time to check is taken
for what it seems to be at a first look (:mod:`storage.index.index_glance`), and checked later.
"""

import os
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from storage.files.mapped_file import FileIdentity, MappedFile
from storage.index._index_coverage import find_gaps, find_new_gaps
from storage.index._index_shape import IndexShape
from storage.index.index_file import DEFAULT_SLOTS, IndexFile, determine_shape, read_header
from storage.index.index_glance import glance
from storage.index.index_mark import mark_of
from storage.index.index_probe import probe_index_file
from storage.index.state_cache import KnownShape, StateCache
from storage.kernels.indexes import check_growth
from storage.log.commit_log import CommitLog
from storage.ranges import Ranges

KEYS_LEFT_OUT = "was compacted with keys left out, or from an index that lacked some"

Counts = tuple[int, int]
"""Slots and entries of an index file."""


@dataclass(frozen=True, slots=True)
class CoveringFile:
    """A sound index file that belongs to the log; ``has_tags``: it keeps an entry for each tagged record.

    ``ranges`` are the physical offsets of the records that it covers; None: those from its first entry to its last, but
    for its gaps.
    """

    index: IndexFile
    has_tags: bool
    ranges: Ranges | None = None


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of examining a file in a certain state, when its header counted ``index_count``.

    ``covering`` is None for a file of no use, and ``problem`` says why. A file without entries covers nothing yet. A
    file that is not ``checked`` had a first look only; a ``is_rejected`` one stays so until it changes. ``ranges`` are
    those that a file of our own was made for.
    """

    file: MappedFile
    identity: FileIdentity
    index_count: int
    covering: CoveringFile | None
    problem: str | None = None
    checked: bool = True
    is_rejected: bool = False
    ranges: Ranges | None = None


def examine(
    file: MappedFile,
    commit_log: CommitLog,
    hints: Sequence[int],
    vouched: Counts | None,
    cache: StateCache,
    ranges: Ranges | None = None,
) -> Examined:
    """Look at a whole file, unless the cache knows it in this state; ``hints`` are likely slot counts. Waits.

    ``ranges`` are what a file of our own was made for (:mod:`storage.store._kept_entries`).
    """
    recalled = recall(file, commit_log, cache, ranges)
    if recalled is not None:
        return recalled
    identity = identity_now(file)
    index_count = read_header(file).index_count
    found = determine_shape(file, [*hints, DEFAULT_SLOTS], vouched)
    if found is None:
        problem = (
            f"{file.path}: no slot count reproduces its slots and pointers; its range is scanned from the log "
            "(give the counts by --index-slots and --index-entries if you know them)"
        )
        return Examined(file, identity, index_count, None, problem, ranges=ranges)
    shape, sound, has_tags = _hold_against_log(IndexFile(file, found), commit_log, is_own=ranges is not None)
    known = KnownShape(shape, sound, has_tags, _identities(commit_log, shape))
    cache.note_shape(file.path, identity, known)
    return _judged(file, identity, index_count, known, ranges)


def recall(file: MappedFile, commit_log: CommitLog, cache: StateCache, ranges: Ranges | None = None) -> Examined | None:
    """The examination that the cache has for a file in this state, None without one."""
    identity = identity_now(file)
    index_count = read_header(file).index_count
    known = cache.shape_of(file.path, identity)
    if known is None or known.segments != _identities(commit_log, known.shape):
        return None
    cache.note_shape(file.path, identity, known)
    return _judged(file, identity, index_count, known, ranges)


def look_over(
    file: MappedFile,
    commit_log: CommitLog,
    hints: Sequence[int],
    vouched: Counts | None,
    ranges: Ranges | None = None,
) -> Examined:
    """Look at a few entries of a file only; nothing is covered where those leave a doubt. Waits for the disk."""
    seems = glance(file, commit_log, hints, vouched)
    covering = None
    if seems is not None:
        index, has_tags = seems
        covering = CoveringFile(index, has_tags or ranges is not None, ranges)
    return Examined(file, identity_now(file), read_header(file).index_count, covering, checked=False, ranges=ranges)


def examine_again(
    known: Examined, commit_log: CommitLog, hints: Sequence[int], vouched: Counts | None, cache: StateCache
) -> Examined:
    """Look at what came to a file since; the same object where there is nothing new. Waits for the disk."""
    index_count = read_header(known.file).index_count
    if index_count == known.index_count or known.is_rejected or not known.checked:
        return known
    covering = known.covering
    if covering is None:
        # As often as a file doubles: looking at all of it once a second would be no cheap way to wait.
        grown_much = index_count >= 2 * known.index_count
        return examine(known.file, commit_log, hints, vouched, cache) if grown_much else known
    shape = grown_shape(covering.index, commit_log, covering.has_tags) if covering.index.shape.entries else None
    if shape is None:
        return examine(known.file, commit_log, hints, vouched, cache)
    if shape is covering.index.shape:
        return known
    index = covering.index.grown(shape)
    has_tags = covering.has_tags or (_may_have_tags(index) and probe_index_file(index, commit_log).has_tags)
    return replace(known, index_count=shape.entries + 1, covering=CoveringFile(index, has_tags))


def reject(known: Examined, commit_log: CommitLog, cache: StateCache, physical_offset: int) -> Examined:
    """A file whose entry for a physical offset leads to no record covers nothing, whatever else is right in it."""
    problem = (
        f"{known.file.path}: an entry points to physical offset {physical_offset}, inside a message; its range is "
        "scanned from the log"
    )
    if known.covering is not None:
        shape = known.covering.index.shape
        unsound = KnownShape(shape, False, False, _identities(commit_log, shape))
        cache.note_shape(known.file.path, known.identity, unsound)
    return replace(known, covering=None, problem=problem, checked=True, is_rejected=True)


def identity_now(file: MappedFile) -> FileIdentity:
    """The state of a mapped file now; the one in which it was mapped if the system refuses to say."""
    try:
        return FileIdentity.of(os.fstat(file.fileno()))
    except OSError:
        return file.identity


def _judged(
    file: MappedFile, identity: FileIdentity, index_count: int, known: KnownShape, ranges: Ranges | None
) -> Examined:
    if not known.is_sound:
        problem = f"{file.path}: its entries do not belong to this log; its range is scanned from the log"
        return Examined(file, identity, index_count, None, problem, ranges=ranges)
    mark = mark_of(file, known.shape.slots) if known.shape.compacted else None
    if mark is not None and not mark.is_complete:
        problem = (
            f"{file.path} {KEYS_LEFT_OUT}: its range is scanned from the log "
            "(rocketlens compact index --from-log makes a whole one)"
        )
        return Examined(file, identity, index_count, None, problem)
    covering = CoveringFile(IndexFile(file, known.shape), known.has_tags, ranges)
    return Examined(file, identity, index_count, covering, ranges=ranges)


def _hold_against_log(index: IndexFile, commit_log: CommitLog, *, is_own: bool) -> tuple[IndexShape, bool, bool]:
    """Shape with all gaps known, whether the file belongs to the log, and whether it keeps tag entries.

    One that ``is_own`` keeps them, and its ranges say what it lacks: distances between its entries say nothing.
    """
    if not index.shape.entries:
        return index.shape, True, False
    probe, shape = probe_index_file(index, commit_log), index.shape
    has_tags = is_own or (probe.has_tags and _may_have_tags(index))
    if not (probe.fits and (shape.ascending or shape.compacted)):  # no broker's entries fall in physical offset
        return shape, False, has_tags
    return replace(shape, gaps=() if is_own else find_gaps(index, commit_log, has_tags)), True, has_tags


def _may_have_tags(index: IndexFile) -> bool:
    """Whether only a sample can show that a file has no tag entries."""
    mark = mark_of(index.file, index.shape.slots) if index.shape.compacted else None
    return mark is None or mark.has_tags


def _identities(commit_log: CommitLog, shape: IndexShape) -> list[FileIdentity]:
    """The states of the segments that a file's entries point into: what was found out holds as long as these do."""
    return [
        segment.file.identity
        for segment in commit_log.segments
        if segment.base_offset <= shape.maximum and segment.base_offset + segment.file.size > shape.minimum
    ]


def grown_shape(index_file: IndexFile, commit_log: CommitLog, has_tags: bool) -> IndexShape | None:
    """The file's shape as it is now, as far as the log reaches; the same where no entry came to it.

    Looked at are the entries put since it was last looked at and the records they belong to, nothing else. The header's
    count is the last thing that a broker changes for an entry but for the two end fields (store-format §3.4), so
    entries up to it are whole.

    None where new entries do not hold together with those before; then the whole file is to be examined. For a file
    that has entries, and whose offsets never fall, or a compacted one.
    """
    shape = index_file.shape
    entries = _entries_below(index_file, commit_log.end)
    if entries <= shape.entries:
        return shape
    if index_file.entry(shape.entries + 1).physical_offset < shape.maximum:
        return None
    if check_growth(index_file.file.region, shape.slots, shape.entries, entries, index_file.capacity):
        return None
    maximum = index_file.entry(entries).physical_offset
    grown = index_file.grown(replace(shape, entries=entries, maximum=maximum))
    return replace(grown.shape, gaps=find_new_gaps(grown, shape, commit_log, has_tags))


def _entries_below(index_file: IndexFile, end: int) -> int:
    """How many of the entries that the header counts belong to records that start before ``end``."""
    counted = min(index_file.header.index_count - 1, index_file.capacity)
    if counted <= index_file.shape.entries:
        return index_file.shape.entries
    new = range(index_file.shape.entries + 1, counted + 1)
    return index_file.shape.entries + bisect_left(new, end, key=lambda number: index_file.entry(number).physical_offset)
