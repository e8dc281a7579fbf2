"""A queue of several parts by queue offset: what a tier has of it, what nobody has any more, what the store has.

A broker copies messages into its tier (`TieredMessageStore`) while they are in its log, and removes them from the log
later. So both have the same queue offsets, and for a while the same messages. What the store's own queue has is read
from there, as a broker does; what lies before it is read from the tier. Records of both are equal but for the physical
offset, which in a tier is the position in the tier's own log. Where a message that both should have differs, the tier
is that of another store: it is left out, and said so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.errors import StoreError
from storage.files.waiting import Lookup, plainly
from storage.kernels.records import PHYSICAL_OFFSET, SYS_FLAG
from storage.queue.batch_consume_queue import BatchConsumeQueue
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.queue import ConsumeQueueEntry, QueuePart, SourceQueue, TimeBoundary
from storage.queue.queue_record import NamedQueue, QueueName


class OtherTier(StoreError):
    """A queue of a tier holds other messages than the queue of the store."""


class JoinedQueue(NamedQueue):
    """A queue of several parts, the last of which is the store's own; made by :func:`join`.

    An offset in a gap is answered by the part behind it.
    """

    __slots__ = ("_own", "name", "parts")
    has_batches = False
    sound_part: Final = None

    def __init__(self, parts: Sequence[QueuePart], own: SourceQueue) -> None:
        self.parts, self._own = tuple(parts), own
        self.name: QueueName = own.name

    @property
    def is_measured(self) -> bool:
        """Whether it is known where the queue begins and ends: always, else it could not be joined."""
        return True

    def measured(self) -> Lookup[JoinedQueue]:
        """Return the queue; it is known where it begins and ends."""
        yield from ()
        return self

    @property
    def own(self) -> SourceQueue:
        """The last part, which is the store's own."""
        return self._own

    @property
    def unit_size(self) -> int:
        """Bytes of one unit on disk."""
        return self._own.unit_size

    @property
    def min_offset(self) -> int:
        """The first queue offset of the first part."""
        return self.parts[0].first

    @property
    def max_offset(self) -> int:
        """The queue offset after the last message."""
        return self.parts[-1].stop

    def source_at(self, queue_offset: int) -> SourceQueue | None:
        """Return what reads the part with a queue offset; None in a gap."""
        return next((part.queue for part in self.parts if queue_offset < part.stop), self._own)

    def _at(self, queue_offset: int) -> SourceQueue:
        return self.source_at(queue_offset) or self._own

    def entry_at(self, queue_offset: int) -> ConsumeQueueEntry | None:
        """The entry of one message, whose physical offset is one of its part's log; None where the queue has none."""
        return self._at(queue_offset).entry_at(queue_offset)

    def entries_lookup(self, queue_offset: int, count: int) -> Lookup[list[ConsumeQueueEntry]]:
        """Return the entries of up to `count` queue offsets from `queue_offset` on; empty if that one has none."""
        found: list[ConsumeQueueEntry] = []
        for part in self.parts:
            at = queue_offset + len(found)
            if part.queue is not None and at < part.stop:
                found += yield from part.queue.entries_lookup(at, min(count - len(found), part.stop - at))
                if queue_offset + len(found) < part.stop:
                    break
        return found

    entries = plainly(entries_lookup)

    def message_in_log(self, queue_offset: int) -> int | None:
        """Return the physical offset of the message with a queue offset, in its part's log; None where it is lost."""
        return self._at(queue_offset).message_in_log(queue_offset)

    def sound_from(self, queue_offset: int) -> int:
        """The first queue offset from `queue_offset` on whose unit leads to its message, else `max_offset`. Waits."""
        for part in self.parts:
            if part.queue is not None and queue_offset < part.stop:
                found = part.queue.sound_from(max(queue_offset, part.first))
                if found < part.stop:
                    return found
        return self.max_offset

    def store_timestamp_at_lookup(self, queue_offset: int) -> Lookup[int]:
        """Return the store time in ms of the message at a queue offset, −1 where it cannot be read."""
        return (yield from self._at(queue_offset).store_timestamp_at_lookup(queue_offset))

    store_timestamp_at = plainly(store_timestamp_at_lookup)

    def offset_by_timestamp_lookup(self, timestamp: int, boundary: TimeBoundary) -> Lookup[int]:
        """Return the queue offset for a time (ms): in the last part that begins at that time or earlier."""
        (tier, *_), seam = self.parts, self.parts[-1].first
        if seam < self.max_offset:
            begins = yield from self._own.store_timestamp_at_lookup(self._own.sound_from(seam))
            if 0 <= begins <= timestamp:
                found = yield from self._own.offset_by_timestamp_lookup(timestamp, boundary)
                is_first = boundary is TimeBoundary.LOWER and found <= seam and begins == timestamp
                if not is_first:
                    return found
        assert tier.queue is not None
        found = yield from tier.queue.offset_by_timestamp_lookup(timestamp, boundary)
        # A tier goes on into what the store has too; no part knows messages between the tier's end and the seam.
        if found >= tier.stop:
            return max(tier.stop - 1, tier.first) if boundary is TimeBoundary.UPPER else seam
        return found

    offset_by_timestamp = plainly(offset_by_timestamp_lookup)


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
