"""A queue of several parts by queue offset: what a tier has of it, what nobody has any more, what the store has.

A broker copies messages into its tier (`TieredMessageStore`) while they are in its log, and removes them from the log
later. So both have the same queue offsets, and for a while the same messages. What the store's own queue has is read
from there, as a broker does; what lies before it is read from the tier. Records of both are equal but for the physical
offset, which in a tier is the position in the tier's own log. Where a message that both should have differs, the tier
is that of another store: it is left out, and said so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from protocol.errors import StoreError
from storage.files.waiting import Lookup
from storage.kernels.records import PHYSICAL_OFFSET, SYS_FLAG
from storage.queue.batch_consume_queue import BatchConsumeQueue
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.queue import ConsumeQueueEntry, Queue, QueuePart, SourceQueue, TimeBoundary
from storage.queue.queue_record import QueueName


class OtherTier(StoreError):
    """A queue of a tier holds other messages than the queue of the store."""


class JoinedQueue(Queue):
    """A queue of several parts, the last of which is the store's own; made by :func:`join`.

    An offset in a gap is answered by the part behind it.
    """

    __slots__ = ("_parts", "name", "own", "unit_size")
    has_batches = False
    is_measured = True  # else it could not be joined
    sound_part: Final = None

    def __init__(self, parts: Sequence[QueuePart], own: SourceQueue) -> None:
        """Join `parts`, of which `own` is the last."""
        self._parts, self.own = tuple(parts), own
        self.name: QueueName = own.name
        self.unit_size: int = own.unit_size

    def measured(self) -> Lookup[Self]:
        yield from ()
        return self

    @property
    def parts(self) -> tuple[QueuePart, ...]:
        return self._parts

    @property
    def min_offset(self) -> int:
        return self._parts[0].first

    @property
    def max_offset(self) -> int:
        return self._parts[-1].stop

    def source_at(self, queue_offset: int) -> SourceQueue | None:
        return next((part.queue for part in self._parts if queue_offset < part.stop), self.own)

    def _at(self, queue_offset: int) -> SourceQueue:
        return self.source_at(queue_offset) or self.own

    def entries_lookup(self, queue_offset: int, count: int) -> Lookup[list[ConsumeQueueEntry]]:
        found: list[ConsumeQueueEntry] = []
        for part in self.parts:
            at = queue_offset + len(found)
            if part.queue is not None and at < part.stop:
                found += yield from part.queue.entries_lookup(at, min(count - len(found), part.stop - at))
                if queue_offset + len(found) < part.stop:
                    break
        return found

    def message_in_log_lookup(self, queue_offset: int) -> Lookup[int | None]:
        return self._at(queue_offset).message_in_log_lookup(queue_offset)

    def sound_from(self, queue_offset: int) -> int:
        for part in self.parts:
            if part.queue is not None and queue_offset < part.stop:
                found = part.queue.sound_from(max(queue_offset, part.first))
                if found < part.stop:
                    return found
        return self.max_offset

    def store_timestamp_at_lookup(self, queue_offset: int) -> Lookup[int]:
        return self._at(queue_offset).store_timestamp_at_lookup(queue_offset)

    def offset_by_timestamp_lookup(self, timestamp: int, boundary: TimeBoundary) -> Lookup[int]:
        """Return the queue offset for a time (ms): in the last part that begins at that time or earlier."""
        (tier, *_), seam = self.parts, self.parts[-1].first
        if seam < self.max_offset:
            begins = yield from self.own.store_timestamp_at_lookup(seam)
            if begins < 0:
                begins = yield from self.own.store_timestamp_at_lookup(self.own.sound_from(seam))
            if 0 <= begins <= timestamp:
                found = yield from self.own.offset_by_timestamp_lookup(timestamp, boundary)
                is_first = boundary is TimeBoundary.LOWER and found <= seam and begins == timestamp
                if not is_first:
                    return found
        assert tier.queue is not None
        found = yield from tier.queue.offset_by_timestamp_lookup(timestamp, boundary)
        # A tier goes on into what the store has too; no part knows messages between the tier's end and the seam.
        if found >= tier.stop:
            return max(tier.stop - 1, tier.first) if boundary is TimeBoundary.UPPER else seam
        return found


def join(
    tier: ConsumeQueue, own: ConsumeQueue | BatchConsumeQueue
) -> Lookup[ConsumeQueue | BatchConsumeQueue | JoinedQueue]:
    """Join the tier's part of a queue with the store's own; one of them where the other has no message.

    The store's own too where it begins as early, and for a queue of batches, which no tier keeps. Raises OtherTier
    where a message that both have differs.
    """
    yield from tier.measured()
    yield from own.measured()
    if isinstance(own, BatchConsumeQueue) or tier.min_offset >= tier.max_offset:
        return own
    seam = own.min_offset if own.min_offset < own.max_offset else max(own.max_offset, tier.max_offset)
    if tier.min_offset >= seam:
        return own
    if seam < min(tier.max_offset, own.max_offset):
        yield from _refuse_another(tier, own, seam)
    stop = min(seam, tier.max_offset)
    gap = [QueuePart(stop, seam, None)] if stop < seam else []
    last = QueuePart(seam, max(own.max_offset, seam), own)
    return JoinedQueue([QueuePart(tier.min_offset, stop, tier), *gap, last], own)


def _refuse_another(tier: ConsumeQueue, own: ConsumeQueue, queue_offset: int) -> Lookup[None]:
    """Raise OtherTier where the message at a queue offset is another one in the tier than in the store."""
    records = []
    for queue in (tier, own):
        unit = yield from queue.readable_unit(queue_offset)
        record = None if unit is None else (yield from queue.log.record_at_lookup(unit[0]))
        if record is None or queue.name.offset_in(record, 0 if unit is None else unit[0]) != queue_offset:
            return  # damaged: nothing is known
        records.append(bytes(record))
    cut = [record[:PHYSICAL_OFFSET] + record[SYS_FLAG:] for record in records]
    if cut[0] != cut[1]:
        what = f"at queue offset {queue_offset} holds another message than the store: it is the tier of another store"
        raise OtherTier(tier.files.directory, what=what)
