"""The interface of all queues of a topic, whichever format their units have on disk.

A queue is the list of a topic's messages in one of its queue ids: pointers into the commit log, numbered by queue
offset. It is made of parts: mostly of one, of several where a tier has its older messages, and of what nobody has
between two of them. Queues are snapshots: their beginning and end are found once, when first asked for (store-format
§5.3, §6.6).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Self

from storage.arrays import np, npt
from storage.files.waiting import Lookup, finish
from storage.kernels.store_view import FileView
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


class UnitRange(NamedTuple):
    """Units of queue offsets from `first` up to `stop`, one behind the other in a file from `position` (bytes) on.

    The file is one of a queue, or made of the log: a part of the queue as the pull kernel reads it.
    """

    file: FileView
    position: int
    first: int
    stop: int


class Queue:
    """One queue of a topic. Queue offsets outside `min_offset` … `max_offset − 1` have no entry.

    Plain methods, and bounds that are not known yet, wait for the disk; a look-up yields where it would have to wait.
    """

    __slots__ = ()
    name: QueueName
    """Topic and queue id as records spell them."""
    unit_size: int
    """Bytes of one unit on disk; a pull's limit of scanned units is given in bytes."""
    has_batches: bool
    """Whether a record of the queue may contain several messages."""

    @property
    def topic(self) -> str:
        """The topic, as its directory is named."""
        return self.name.topic

    @property
    def queue_id(self) -> int:
        """The number of this queue in its topic."""
        return self.name.queue_id

    @property
    @abstractmethod
    def is_measured(self) -> bool:
        """Whether it is known where the queue begins and ends."""

    @abstractmethod
    def measured(self) -> Lookup[Self]:
        """Find out where the queue begins and ends; return the queue."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[QueuePart]:
        """The parts of the queue, in order, from `min_offset` to `max_offset`; the last is the store's own."""

    @abstractmethod
    def source_at(self, queue_offset: int) -> SourceQueue | None:
        """Return what reads the part with a queue offset, also of one outside of the queue; None in a gap."""

    @property
    @abstractmethod
    def min_offset(self) -> int:
        """The first queue offset whose message the log still has, after any filler; `max_offset` if there is none.

        Of a queue of batches without units it is −1, as a broker answers.
        """

    @property
    @abstractmethod
    def max_offset(self) -> int:
        """The queue offset that the next message would get; 0 for a queue that never had one."""

    def entry_at(self, queue_offset: int) -> ConsumeQueueEntry | None:
        """The entry of the record that contains one message, or None where the queue has none."""
        return next(iter(self.entries(queue_offset, 1)), None)

    def entries(self, queue_offset: int, count: int) -> list[ConsumeQueueEntry]:
        """`entries_lookup` for a thread that may wait."""
        return finish(self.entries_lookup(queue_offset, count))

    @abstractmethod
    def entries_lookup(self, queue_offset: int, count: int) -> Lookup[list[ConsumeQueueEntry]]:
        """Return the entries of the records that contain any of `count` queue offsets from `queue_offset` on.

        None come behind one that has no unit; for batches without one the log is searched, which raises BeingSearched
        meanwhile. Physical offsets are those of the part's own log.
        """

    def message_in_log(self, queue_offset: int) -> int | None:
        """`message_in_log_lookup` for a thread that may wait."""
        return finish(self.message_in_log_lookup(queue_offset))

    @abstractmethod
    def message_in_log_lookup(self, queue_offset: int) -> Lookup[int | None]:
        """Return the physical offset of the record with a queue offset, in its part's log; None where it is lost.

        If its unit is damaged or lost the log is searched; raises BeingSearched meanwhile. None too if the unit is not
        doubtful, but its message is expired, or damaged itself.
        """

    @abstractmethod
    def sound_from(self, queue_offset: int) -> int:
        """The first queue offset from `queue_offset` on whose message can be read, else `max_offset`. Waits.

        Messages count that the log has in the place of damaged or lost units. Raises BeingSearched.
        """

    def store_timestamp_at(self, queue_offset: int) -> int:
        """`store_timestamp_at_lookup` for a thread that may wait."""
        return finish(self.store_timestamp_at_lookup(queue_offset))

    @abstractmethod
    def store_timestamp_at_lookup(self, queue_offset: int) -> Lookup[int]:
        """Return the store time in ms of the message at a queue offset, −1 where it cannot be read."""

    def offset_by_timestamp(self, timestamp: int, boundary: TimeBoundary) -> int:
        """`offset_by_timestamp_lookup` for a thread that may wait."""
        return finish(self.offset_by_timestamp_lookup(timestamp, boundary))

    @abstractmethod
    def offset_by_timestamp_lookup(self, timestamp: int, boundary: TimeBoundary) -> Lookup[int]:
        """Return the queue offset for a time (ms), between `min_offset` and `max_offset`, as a broker finds it."""


class SourceQueue(Queue, JudgedUnits):
    """A queue whose units all lead into one log: a whole queue, or what reads a part of one."""

    __slots__ = ()
    holes: QueueHoles
    """What the log has in the place of damaged or lost units, as far as it was searched."""

    @abstractmethod
    def walk(self, queue_offset: int, maximum: int) -> Lookup[Iterable[Unit] | None]:
        """Return up to `maximum` units of one file, from the record with `queue_offset` on; None where it has none."""

    def units_at(self, queue_offset: int, count: int) -> Lookup[UnitRange | None]:
        """Return the units of one file around a queue offset, for the kernel that pulls `count` of them from there on.

        None where it cannot: of batches, and where units beside those of the file speak against its first or last one,
        which it does not see.
        """
        yield from ()
        return None

    def is_tag_suspect(self, queue_offset: int) -> Lookup[bool]:
        """Return whether the tag in a unit may not be that of its message, since a unit beside it is damaged.

        So it may be if the unit does not lead between the messages of its neighbours.
        """
        yield from ()
        return False

    @property
    @abstractmethod
    def unit_count(self) -> int:
        """How many units `unit_arrays` goes through; waits if it is not known where the queue begins and ends."""

    @abstractmethod
    def unit_arrays(self) -> Iterator[Lookup[npt.NDArray[np.void]]]:
        """Yield look-ups of the units of all messages, array by array, of files or made of the log; some come twice.

        The units have physical offset and tags code, which is ANY_TAG where it cannot be trusted. The look-ups are to
        be made in their order. They raise BeingSearched while the log is searched.
        """

    def hole_at_lookup(self, queue_offset: int) -> Lookup[QueueHole]:
        """Return the hole around a unit that leads to no message, searched in the log. Raises BeingSearched."""
        return self.holes.find(self, queue_offset)

    @abstractmethod
    def is_doubtful_lookup(self, queue_offset: int) -> Lookup[bool]:
        """Return whether a unit is lost, or points to a place where its message cannot be.

        One whose message is expired, or damaged itself, is not doubtful.
        """

    @abstractmethod
    def extension_at(self, tags_code: int) -> Lookup[ConsumeQueueExtUnit | None]:
        """Return the extension unit whose address is in a unit's tags code; None where it is lost."""


@dataclass(frozen=True, slots=True)
class QueuePart:
    """Queue offsets from `first` up to `stop`, which `queue` reads; it may reach further. None: no log has them."""

    first: int
    stop: int
    queue: SourceQueue | None
