"""Which records are of a topic, or have one of its tags, by the units of the topic's queues.

A broker makes the units of a record behind all those of earlier records. So where a record has its unit, those before
it have theirs; what lies behind the last such record is to be scanned. Nothing is looked up by queues of which a file
is lost or a unit is suspect (:mod:`storage.queue.suspect_units`), nor by those of batches, whose messages have tags of
their own.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError
from protocol.java_hash import java_hash
from storage.filter.sql92 import parse
from storage.filter.sql92.form import All, Compared, OneOf
from storage.filter.sql92.node import PartKind, Type
from storage.filter.tag import parse_tag_expression
from storage.patterns.mask import mask_of
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.suspect_units import suspect_runs
from storage.queue.tag_search import offsets_with_tag
from storage.search._ascending import ascending
from storage.search._by_time import record_from
from storage.search.criteria import Criteria
from storage.store.snapshot import Snapshot

STEPS_BACK: Final = (4096, 1 << 16, 1 << 20, 1 << 24, 1 << 28, 1 << 32)
"""Bytes before the log's end at which a record with a unit is looked for."""
TRIED: Final = 64
"""Records in a row that are tried: prepared and rolled-back ones have no unit."""

TAGS: Final = "TAGS"
"""The property of the tag, in a SQL92 expression."""

Offsets = npt.NDArray[np.int64]
HasUnit: TypeAlias = Callable[[Snapshot, memoryview, int], bool]
"""Whether the queue of a record, which starts at a physical offset, has its unit."""


def has_unit(snapshot: Snapshot, record: memoryview, physical_offset: int) -> bool:
    """Ask the queue itself; waits for the disk."""
    return snapshot.queues.has_unit_of(record, physical_offset)


OffsetsInQueue: TypeAlias = Callable[[Snapshot, ConsumeQueue, tuple[str, ...] | None, int, int], Offsets | None]
"""Physical offsets as :func:`offsets_in_queue` gives them."""


def offsets_in_queue(
    snapshot: Snapshot, queue: ConsumeQueue, tags: tuple[str, ...] | None, start: int, stop: int
) -> Offsets | None:
    """Physical offsets in [start, stop) in the units of a queue, perhaps by their tags; None where not all are sound.

    For a tag there may be more. Waits for the disk.
    """
    first, end = queue.min_offset, queue.max_offset
    if end == 0 or suspect_runs(snapshot.commit_log, first, end, queue.unit_blocks()):
        return None
    if tags is None:
        offsets = (units["physical_offset"].astype(np.int64) for _, units in queue.unit_blocks())
        found = [each[(each >= start) & (each < stop)] for each in offsets]
    else:
        found = [offsets_with_tag(queue, java_hash(tag), start, stop) for tag in tags]
    return np.concatenate([np.empty(0, np.int64), *found])


def offsets_by_queue(
    snapshot: Snapshot,
    topic: str,
    tags: tuple[str, ...] | None,
    start: int,
    stop: int,
    in_queue: OffsetsInQueue = offsets_in_queue,
) -> Offsets | None:
    """Physical offsets in [start, stop), ascending, of a topic's records, perhaps by their tags; None: scan instead."""
    if snapshot.layout.lacks_queues or _lacks_queues(snapshot, topic):
        return None
    found = [np.empty(0, np.int64)]
    for queue in snapshot.queues.queues_of(topic):
        if not isinstance(queue, ConsumeQueue) or snapshot.queues.has_batches(topic):
            return None
        if snapshot.queues.is_in_tier(queue):  # its units point into another log
            return None
        offsets = in_queue(snapshot, queue, tags, start, stop)
        if offsets is None:
            return None
        found.append(offsets)
    return ascending(np.concatenate(found))


def required_tags(criteria: Criteria) -> tuple[str, ...] | None:
    """Tags of which each message that matches has one; None where it may have any tag, or none.

    An expression requires tags by `TAGS = 'a'` or `TAGS IN ('a', 'b')`, alone or joined with others by AND. Raises
    FilterSyntaxError.
    """
    if criteria.tag is not None:
        tags = parse_tag_expression(criteria.tag)
        return None if tags.matches_everything else tuple(sorted(tags.tags))
    if mask_of(criteria.masked).changes:
        return None  # an expression is judged by tags as they are shown
    waiting = [] if criteria.where is None else [parse(criteria.where).root]
    while waiting:  # they may be nested deeper than calls may be
        node = waiting.pop()
        form = node.form
        if isinstance(form, All):
            waiting += node.operands
        elif node.operands and node.operands[0].kind is PartKind.PROPERTY and node.operands[0].constant == TAGS:
            other = node.operands[-1]
            if form == Compared("EQUAL") and other.kind is PartKind.CONSTANT and other.type is Type.TEXT:
                return (other.constant,)
            if isinstance(form, OneOf) and not form.is_negated:
                return form.texts
    return None


def dispatched_to(snapshot: Snapshot, has_unit: HasUnit) -> int:
    """The physical offset up to which all records have their units; the log's start if it cannot be found."""
    log = snapshot.commit_log
    for distance in STEPS_BACK:
        place = max(log.end - distance, log.minimum)
        for _ in range(TRIED):
            found = record_from(log, place)
            record = None if found is None else log.record_at(found[0])
            if found is None or record is None:
                break
            if has_unit(snapshot, record, found[0]):
                return found[0] + len(record)
            place = found[0] + len(record)
        if log.end - distance <= log.minimum:
            break
    return log.minimum


def _lacks_queues(snapshot: Snapshot, topic: str) -> bool:
    """Whether a queue that the topic should have has no files."""
    try:
        ids = snapshot.queues.queue_ids(topic)
    except StoreError:  # which queues there are is not known
        return True
    config = snapshot.config.topics.get(topic)
    wanted = config.write_queue_nums if config else 0
    return not ids or wanted > len(ids)
