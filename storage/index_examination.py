"""What one index file is worth: its shape, whether it belongs to the log, and what it covers; found once, kept while
the file stays as it is.

A file that a broker goes on filling is looked at again only where it grew (:mod:`storage.index_growth`).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from storage.commit_log import CommitLog
from storage.index_coverage import find_gaps
from storage.index_file import DEFAULT_SLOTS, IndexFile, determine_shape, read_header
from storage.index_growth import grown_shape
from storage.index_mark import read_mark
from storage.index_probe import probe_index_file
from storage.index_shape import IndexShape
from storage.mapped_file import FileIdentity, MappedFile
from storage.state_cache import StateCache

KEYS_LEFT_OUT = "was compacted with keys left out, or from an index that lacked some"

Counts = tuple[int, int]
"""Slots and entries of an index file."""


@dataclass(frozen=True, slots=True)
class CoveringFile:
    """A sound index file that belongs to the log; ``has_tags``: it keeps an entry for each tagged record."""

    index: IndexFile
    has_tags: bool


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found out about a file in a certain state, when its header counted ``index_count``.

    ``covering`` is None for a file of no use, and ``problem`` says why. A file without entries covers nothing yet.
    """

    file: MappedFile
    identity: FileIdentity
    index_count: int
    covering: CoveringFile | None
    problem: str | None = None


def examine(
    file: MappedFile, commit_log: CommitLog, hints: Sequence[int], vouched: Counts | None, cache: StateCache
) -> Examined:
    """Look at a whole file, unless the cache knows it in this state; ``hints`` are likely slot counts. Waits."""
    identity = identity_now(file)
    index_count = read_header(file).index_count
    known = cache.shape_of(file.path, identity)
    if known is not None and known[3] == _identities(commit_log, known[0]):
        shape, sound, has_tags, _ = known
        cache.note_shape(file.path, identity, *known)
    else:
        found = determine_shape(file, [*hints, DEFAULT_SLOTS], vouched)
        if found is None:
            problem = (
                f"{file.path}: no slot count reproduces its slots and pointers; its range is scanned from the log "
                "(--index-slots and --index-entries tell the counts if you know them)"
            )
            return Examined(file, identity, index_count, None, problem)
        shape, sound, has_tags = _hold_against_log(IndexFile(file, found), commit_log)
        cache.note_shape(file.path, identity, shape, sound, has_tags, _identities(commit_log, shape))
    if not sound:
        problem = f"{file.path}: its entries do not belong to this log; its range is scanned from the log"
        return Examined(file, identity, index_count, None, problem)
    mark = read_mark(file.view, shape.slots) if shape.compacted else None
    if mark is not None and not mark.is_complete:
        problem = (
            f"{file.path} {KEYS_LEFT_OUT}: its range is scanned from the log "
            "(rocketlens compact index --from-log makes a whole one)"
        )
        return Examined(file, identity, index_count, None, problem)
    return Examined(file, identity, index_count, CoveringFile(IndexFile(file, shape), has_tags))


def examine_again(
    known: Examined, commit_log: CommitLog, hints: Sequence[int], vouched: Counts | None, cache: StateCache
) -> Examined:
    """Look at what came to a file since; the same object where there is nothing new. Waits for the disk."""
    index_count = read_header(known.file).index_count
    if index_count == known.index_count:
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
    index = IndexFile(known.file, shape)
    has_tags = covering.has_tags or (_may_have_tags(index) and probe_index_file(index, commit_log).has_tags)
    return replace(known, index_count=shape.entries + 1, covering=CoveringFile(index, has_tags))


def identity_now(file: MappedFile) -> FileIdentity:
    """The state of a mapped file, or where that cannot be told the one it was mapped in."""
    try:
        return FileIdentity.of(os.fstat(file.fileno()))
    except OSError:
        return file.identity


def _hold_against_log(index: IndexFile, commit_log: CommitLog) -> tuple[IndexShape, bool, bool]:
    """Shape with all gaps known, whether the file belongs to the log, and whether it keeps tag entries."""
    if not index.shape.entries:
        return index.shape, True, False
    probe, shape = probe_index_file(index, commit_log), index.shape
    has_tags = probe.has_tags and _may_have_tags(index)
    if not (probe.fits and (shape.ascending or shape.compacted)):  # no broker's entries fall in physical offset
        return shape, False, has_tags
    return replace(shape, gaps=find_gaps(index, commit_log, has_tags)), True, has_tags


def _may_have_tags(index: IndexFile) -> bool:
    """Whether nothing but a sample can tell that a file lacks tag entries."""
    mark = read_mark(index.file.view, index.shape.slots) if index.shape.compacted else None
    return mark is None or mark.has_tags


def _identities(commit_log: CommitLog, shape: IndexShape) -> list[FileIdentity]:
    """The states of the segments that a file's entries point into: what was found out holds as long as these do."""
    return [
        segment.file.identity
        for segment in commit_log.segments
        if segment.base_offset <= shape.maximum and segment.base_offset + segment.file.size > shape.minimum
    ]
