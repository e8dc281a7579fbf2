"""Compare the queues with the log: does every sampled message, and every one of the last, have its unit?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from protocol.errors import BeingSearched, StoreError
from storage.amounts import counted
from storage.doctor._next_start import NextStart
from storage.doctor._opened_store import OpenedStore
from storage.doctor._sampling import Sample
from storage.doctor.finding import (
    ADVICE,
    CLEARED_BY_A_START,
    QUEUES,
    Finding,
    Findings,
    FoundAt,
    Kind,
    Known,
    Severity,
)
from storage.doctor.words import COMPARE, OF_ANOTHER_HISTORY
from storage.log.commit_log import CommitLog
from storage.log.segment_end import TOLERATED_MS
from storage.queue.queue_files import LOOKED_FOR
from storage.ranges import Ranges, merge

MOST_SOUGHT: Final = 200
"""Messages without a unit in their place that are looked for at other places of their queues."""


MOST_NAMED: Final = 20
"""Queues that are named in one finding."""


@dataclass(frozen=True, slots=True)
class QueueReach:
    """`end`: physical offset behind the last message that any queue has. `missing`: samples without their unit.

    `missing_light`: those in whose place a light queue has no unit, as if that were their only queue. `displaced`:
    those to which the unit of another place leads, since their records bear a wrong one.
    """

    end: int
    missing: tuple[Sample, ...]
    missing_light: tuple[Sample, ...] = ()
    displaced: tuple[Sample, ...] = ()

    def covered(self, samples: Sequence[Sample], log: CommitLog) -> Ranges:
        """Ranges of the log whose sampled messages have their units; DLedger's head goes with the first message."""
        first = log.record_start(log.minimum)
        gone = {sample.physical_offset for sample in self.missing}
        starts = [sample.physical_offset for sample in samples]
        stops = [*starts[1:], *(sample.end for sample in samples[-1:])]
        return merge(
            (log.minimum if start == first else start, stop)
            for start, stop in zip(starts, stops, strict=True)
            if start not in gone
        )


def measure_reach(store: OpenedStore, samples: Sequence[Sample]) -> QueueReach:
    """Look every sample up in its queue; all have a place where queues are derived from the log."""
    if not store.has_queue_files:
        return QueueReach(store.commit_log.end, ())
    missing = tuple(sample for sample in samples if sample.is_queued and not _has_unit(store, sample))
    displaced = tuple(sample for sample in missing[:MOST_SOUGHT] if _stands_elsewhere(store, sample))
    missing = tuple(sample for sample in missing if sample not in displaced)
    gone = {sample.physical_offset for sample in missing}
    # A place that a wrong unit has is not dispatched to any more, so that messages before it are no lag.
    held = [
        sample.end
        for sample in samples
        if sample.is_queued and (sample.physical_offset not in gone or _is_taken(store, sample))
    ]
    light = (
        replace(sample, topic=name, queue_id=0, queue_offset=offset)
        for sample in samples
        if sample.is_queued
        for name, offset in sample.light
    )
    in_files = (sample for sample in light if _is_in_files(store, sample))
    missing_light = tuple(sample for sample in in_files if not _has_unit(store, sample, is_copy=True))
    return QueueReach(max(held, default=store.commit_log.minimum), missing, missing_light, displaced)


def check_queue_reach(
    store: OpenedStore, samples: Sequence[Sample], reach: QueueReach, start: NextStart | None
) -> list[Finding]:
    """Report messages without a unit, behind the end of dispatch and before it; `start` is the next one, foretold.

    It clears a lag where it puts messages into queues from there on.
    """
    findings = Findings("queue-reach", Known.SAMPLED)
    if store.layout.lacks_queues:
        return []
    behind = [sample for sample in reach.missing if sample.physical_offset >= reach.end]
    if behind:
        lag = store.commit_log.end - reach.end
        found = f"no queue has the last {lag} bytes of the log, from message {behind[0].physical_offset} on"
        meaning = "these messages are found by offset and key, but nobody can consume them before a broker starts here"
        remedy = _remedy_of_lag(store, behind[0], start)
        step = _step_back(samples, behind[0])
        if step > TOLERATED_MS and not store.state.is_live:
            found += f", which were stored {step} ms before the one in front of them"
            meaning, remedy = OF_ANOTHER_HISTORY, COMPARE
        findings.add(
            Kind.LAG,
            Severity.INFO if store.state.is_live else Severity.WARNING,
            FoundAt(store.layout.consume_queue, _named(behind), physical_offset=behind[0].physical_offset),
            found,
            meaning,
            remedy,
            known=Known.LOOKED_AT,
        )
    before = [sample for sample in (*reach.missing, *reach.missing_light) if sample.physical_offset < reach.end]
    for topic, queue_id, first, count in _by_queue(before):
        _report_missing(store, findings, first, f"{topic} {queue_id}", count)
    severity, meaning, remedy = ADVICE["queues"][Kind.QUEUE_OFFSET]
    for topic, queue_id, first, count in _by_queue(reach.displaced):
        messages = counted(count, "sampled message")
        found = f"{messages} of {topic} {queue_id} in another place than they bear, first: {first.queue_offset}"
        at = FoundAt(store.layout.consume_queue / topic / str(queue_id), physical_offset=first.physical_offset)
        findings.add(Kind.QUEUE_OFFSET, severity, at, found, meaning, remedy)
    return findings.listed()


def _remedy_of_lag(store: OpenedStore, first: Sample, start: NextStart | None) -> str:
    """What gives messages their units that lie behind all that have any, from `first` on."""
    if store.state.is_live:
        return "nothing while a broker runs"
    is_passed = start is not None and any(each.dispatched_from > first.end for each in start.outcomes)
    return store.command(QUEUES) if is_passed else CLEARED_BY_A_START


def _report_missing(store: OpenedStore, findings: Findings, first: Sample, queue: str, count: int) -> None:
    known = first.topic in store.config.topics or not store.queues.absence_of(first.topic)
    if not known:
        found = f"{counted(count, 'sampled message')} of topic {first.topic}, which has no queues"
        meaning = "the topic was deleted, or its queues are lost"
        severity = Severity.INFO
    else:
        found = f"{counted(count, 'sampled message')} of {queue} without a unit, first: {first.queue_offset}"
        is_there = store.queues.has_directory(first.topic, first.queue_id)
        meaning = LOOKED_FOR if is_there else ADVICE["queues"][Kind.MISSING_UNIT].meaning
        severity = Severity.ERROR
    path = store.layout.consume_queue / first.topic / str(first.queue_id)
    at = FoundAt(path, physical_offset=first.physical_offset)
    findings.add(Kind.MISSING_UNIT, severity, at, found, meaning, store.command(QUEUES))


def _step_back(samples: Sequence[Sample], first: Sample) -> int:
    """By how many ms a message was stored before the newest of those in front of it."""
    before = (each.store_timestamp for each in samples if each.physical_offset < first.physical_offset)
    return max(before, default=first.store_timestamp) - first.store_timestamp


def _named(samples: Sequence[Sample]) -> str:
    """Topic and queue id of the queues that some messages belong to."""
    names = [f"{topic} {queue_id}" for topic, queue_id, _, _ in _by_queue(samples)]
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {counted(more, 'queue')} more" if more > 0 else "")


def _by_queue(samples: Iterable[Sample]) -> list[tuple[str, int, Sample, int]]:
    """Topic, queue, first sample and number of samples of each queue."""
    found: dict[tuple[str, int], tuple[Sample, int]] = {}
    for sample in samples:
        first, count = found.get((sample.topic, sample.queue_id), (sample, 0))
        found[sample.topic, sample.queue_id] = first, count + 1
    return [(topic, queue_id, first, count) for (topic, queue_id), (first, count) in found.items()]


def _is_in_files(store: OpenedStore, sample: Sample) -> bool:
    """Whether a light queue ought to have files: a broker that writes queues twice keeps it in RocksDB alone."""
    return store.queues.derived is None or store.queues.has_directory(sample.topic, sample.queue_id)


def _has_unit(store: OpenedStore, sample: Sample, *, is_copy: bool = False) -> bool:
    """Whether the unit at a message's queue offset points to it; in a light queue, to what it may be a copy of."""
    if store.queues.absence_of(sample.topic):
        return False
    try:
        queue = store.queues.queue(sample.topic, sample.queue_id)
        entry = None if queue is None else queue.entry_at(sample.queue_offset)
        if is_copy:
            return entry is not None or (queue is not None and sample.queue_offset < queue.min_offset)
    except (StoreError, BeingSearched):  # named where the queue's files are looked at
        return True
    # A zeroed unit points at offset 0, where the first message of a log may well be.
    return entry is not None and entry.physical_offset == sample.physical_offset and entry.size == sample.size


def _is_taken(store: OpenedStore, sample: Sample) -> bool:
    """Whether the unit at a message's queue offset leads to another record."""
    if store.queues.absence_of(sample.topic):
        return False
    try:
        queue = store.queues.queue(sample.topic, sample.queue_id)
        entry = None if queue is None else queue.entry_at(sample.queue_offset)
    except (StoreError, BeingSearched):  # named where the queue's files are looked at
        return False
    return entry is not None and entry.size > 0


def _stands_elsewhere(store: OpenedStore, sample: Sample) -> bool:
    """Whether a unit at another offset of a message's queue leads to it; units ascend by physical offset."""
    if store.queues.absence_of(sample.topic):
        return False
    try:
        queue = store.queues.queue(sample.topic, sample.queue_id)
        low, high = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        while queue is not None and low < high:
            middle = (low + high) // 2
            entry = queue.entry_at(middle)
            if entry is None:
                return False
            if entry.physical_offset == sample.physical_offset:
                return True
            low, high = (middle + 1, high) if entry.physical_offset < sample.physical_offset else (low, middle)
    except (StoreError, BeingSearched):  # named where the queue's files are looked at
        pass
    return False
