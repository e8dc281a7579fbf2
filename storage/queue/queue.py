"""The interface of all queues of a topic, whichever format their units have on disk.

A queue is the list of a topic's messages in one of its queue ids: pointers into the commit log, numbered by queue
offset. It is made of parts: mostly of one, of several where a tier has its older messages, and of what nobody has
between two of them. Queues are snapshots: their beginning and end are found once, when first asked for (store-format
§5.3, §6.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from storage.arrays import np, npt
from storage.files.waiting import Lookup
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit, is_extension_address
from storage.queue.queue_hole import QueueHole
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_record import QueueName
from storage.queue.unit_standing import JudgedUnits
from storage.queue.unit_struct import Unit

NO_TIMESTAMP: Final = -1
"""The store time that is given for a message that cannot be read, here and on the wire."""


class TimeBoundary(Enum):
    """The message that a search for a time finds if no message, or several messages, have that time."""

    LOWER = "lower"
    """The first message at that time or after it."""
    UPPER = "upper"
    """The last message at that time or before it."""


@dataclass(frozen=True, slots=True)
class ConsumeQueueEntry:
    """One pointer of a queue, with the tags code of its extension unit if it has one.

    `size` is that of the whole record in bytes. `tags_code` is a tag's hash (sign-extended), in the schedule topic a
    delivery time, and if the extension unit is lost its address. `batch_size` messages share the record, from
    `queue_offset` on.
    """

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    extension: ConsumeQueueExtUnit | None = None
    batch_size: int = 1

    @property
    def valid_tags_code(self) -> int | None:
        """The tags code, or None where it is only the address of a lost extension unit."""
        return None if is_extension_address(self.tags_code) else self.tags_code


class Queue(Protocol):
    """One queue of a topic. Queue offsets outside `min_offset` … `max_offset − 1` have no entry.

    Plain methods, and bounds that are not known yet, wait for the disk; a look-up yields where it would have to wait.
    """

    def measured(self) -> Lookup[Queue]:
        """Find out where the queue begins and ends; return the queue."""
        ...

    @property
    def name(self) -> QueueName:
        """Topic and queue id as records spell them."""
        ...

    @property
    def topic(self) -> str:
        """The topic, as its directory is named."""
        ...

    @property
    def queue_id(self) -> int:
        """The number of this queue in its topic."""
        ...

    @property
    def unit_size(self) -> int:
        """Bytes of one unit on disk; a pull's limit of scanned units is given in bytes."""
        ...

    @property
    def has_batches(self) -> bool:
        """Whether a record of the queue may contain several messages."""
        ...

    @property
    def parts(self) -> Sequence[QueuePart]:
        """The parts of the queue, in order, from `min_offset` to `max_offset`."""
        ...

    def source_at(self, queue_offset: int) -> SourceQueue | None:
        """Return what reads the part with a queue offset, also of one outside of the queue; None in a gap."""
        ...

    @property
    def min_offset(self) -> int:
        """The first queue offset whose message the log still has; `max_offset` where there is none."""
        ...

    @property
    def max_offset(self) -> int:
        """The queue offset that the next message would get; 0 for a queue that never had one."""
        ...

    def entry_at(self, queue_offset: int) -> ConsumeQueueEntry | None:
        """The entry of one message, or None where the queue has none."""
        ...

    def entries(self, queue_offset: int, count: int) -> list[ConsumeQueueEntry]:
        """Return the entries of up to `count` queue offsets from `queue_offset` on; empty if that one has none."""
        ...

    def entries_lookup(self, queue_offset: int, count: int) -> Lookup[list[ConsumeQueueEntry]]:
        """`entries` as a look-up."""
        ...

    def message_in_log(self, queue_offset: int) -> int | None:
        """Return the physical offset of the message with a queue offset; None where it is lost.

        If its unit is damaged or lost the log is searched; raises BeingSearched meanwhile.
        """
        ...

    def sound_from(self, queue_offset: int) -> int:
        """The first queue offset from `queue_offset` on whose unit leads to its message, else `max_offset`."""
        ...

    def store_timestamp_at(self, queue_offset: int) -> int:
        """Return the store time in ms of the message at a queue offset, −1 where it cannot be read."""
        ...

    def store_timestamp_at_lookup(self, queue_offset: int) -> Lookup[int]:
        """`store_timestamp_at` as a look-up."""
        ...

    def offset_by_timestamp(self, timestamp: int, boundary: TimeBoundary) -> int:
        """Return the queue offset for a time (ms), between `min_offset` and `max_offset`."""
        ...

    def offset_by_timestamp_lookup(self, timestamp: int, boundary: TimeBoundary) -> Lookup[int]:
        """`offset_by_timestamp` as a look-up."""
        ...


class SourceQueue(Queue, JudgedUnits, Protocol):
    """A queue whose units all lead into one log: a whole queue, or what reads a part of one."""

    @property
    def holes(self) -> QueueHoles:
        """What the log has in the place of damaged or lost units, as far as it was searched."""
        ...

    def walk(self, queue_offset: int, maximum: int) -> Lookup[Iterable[Unit] | None]:
        """Return up to `maximum` units of one file, from `queue_offset` on; None where that one has no unit."""
        ...

    def unit_arrays(self) -> Iterator[Lookup[npt.NDArray[np.void]]]:
        """Yield look-ups of the units of all messages, array by array, of files or made of the log; some come twice.

        The units have physical offset and tags code, which is ANY_TAG where it cannot be trusted. The look-ups are to
        be made in their order. They raise BeingSearched while the log is searched.
        """
        ...

    def hole_at(self, queue_offset: int) -> QueueHole:
        """Return the hole around a unit that leads to no message, searched in the log. Raises BeingSearched."""
        ...

    def hole_at_lookup(self, queue_offset: int) -> Lookup[QueueHole]:
        """`hole_at` as a look-up."""
        ...

    def is_doubtful(self, queue_offset: int) -> bool:
        """Return whether a unit is lost, or points to a place where its message cannot be."""
        ...

    def is_doubtful_lookup(self, queue_offset: int) -> Lookup[bool]:
        """`is_doubtful` as a look-up."""
        ...

    def extension_at(self, tags_code: int) -> Lookup[ConsumeQueueExtUnit | None]:
        """Return the extension unit whose address is in a unit's tags code; None where it is lost."""
        ...


@dataclass(frozen=True, slots=True)
class QueuePart:
    """Queue offsets from `first` up to `stop`, which `queue` reads; it may reach further. None: no log has them."""

    first: int
    stop: int
    queue: SourceQueue | None
