"""What all queues of a topic have in common, whatever their units look like on disk.

A queue is the list of a topic's messages in one of its queue ids: pointers into the commit log, numbered by queue
offset. Queues are snapshots: where they end and begin is found out once, when first asked for (store-format §5.3,
§6.6).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from storage.files.waiting import Lookup
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit, is_extension_address
from storage.queue.queue_holes import QueueHole
from storage.queue.queue_record import QueueName

NO_TIMESTAMP: Final = -1
"""What stands for the store time of a message that cannot be read, here as on the wire."""


SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Where messages of a delay level wait, those of level n in queue n − 1.

In the place of a tag their units say when they are due.
"""

SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
"""Topics that every broker has and calls its own, stored or not (remoting-protocol §4.3)."""

Unit = tuple[int, int, int, int, int]
"""One unit as a pull walks over it: queue offset, queue offset after it, physical offset, record size, tags code."""


class TimeBoundary(Enum):
    """Which message answers a search for a time that no message, or that several messages have."""

    LOWER = "lower"
    """The first message at that time or after it."""
    UPPER = "upper"
    """The last message at that time or before it."""


@dataclass(frozen=True, slots=True)
class ConsumeQueueEntry:
    """One pointer of a queue, its extension resolved.

    `size` is that of the whole record. `tags_code` is a tag's hash (sign-extended), a delivery time in the schedule
    topic, or, where the extension unit is lost, still its address. `batch_size` messages share the record, from
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
        """The tags code, or None where only the address of a lost extension unit is left of it."""
        return None if is_extension_address(self.tags_code) else self.tags_code


class Queue(Protocol):
    """One queue of a topic. Queue offsets outside `min_offset` … `max_offset − 1` have no entry.

    Plain methods, and bounds that are not known yet, wait for the disk; a look-up says so where it would have to.
    """

    def measured(self) -> Lookup["Queue"]:
        """This queue once it is known where it begins and ends."""
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
        """Bytes of one unit on disk; limits on how far a pull scans are in bytes of units."""
        ...

    @property
    def has_batches(self) -> bool:
        """Whether a record of it may hold several messages."""
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
        """The entries of up to `count` queue offsets from one on; empty where there is none at the first."""
        ...

    def entries_lookup(self, queue_offset: int, count: int) -> Lookup[list[ConsumeQueueEntry]]:
        """`entries` as a look-up."""
        ...

    def walk(self, queue_offset: int, maximum: int) -> Lookup[Iterable[Unit] | None]:
        """Up to `maximum` units from one on, within one file as a pull reads them; None where there is no unit."""
        ...

    def message_in_log(self, queue_offset: int) -> int | None:
        """Where the message of a queue offset starts, by the log where its unit is damaged or lost; None where it is.

        Raises BeingSearched while the log is being searched.
        """
        ...

    def hole_at(self, queue_offset: int) -> QueueHole:
        """What the log has of the messages of a unit that leads nowhere and of those around it. Raises as above."""
        ...

    def hole_at_lookup(self, queue_offset: int) -> Lookup[QueueHole]:
        """`hole_at` as a look-up."""
        ...

    def is_doubtful(self, queue_offset: int) -> bool:
        """Whether a unit is lost, or points to no place at which its message may have been."""
        ...

    def is_doubtful_lookup(self, queue_offset: int) -> Lookup[bool]:
        """`is_doubtful` as a look-up."""
        ...

    def sound_from(self, queue_offset: int) -> int:
        """The first queue offset from one on whose unit leads to its message; `max_offset` without one."""
        ...

    def extension_at(self, tags_code: int) -> Lookup[ConsumeQueueExtUnit | None]:
        """The extension unit whose address stands in a unit's tags code; None where it is lost."""
        ...

    def store_timestamp_at(self, queue_offset: int) -> int:
        """When the message at a queue offset was stored (ms), or −1 where it cannot be read."""
        ...

    def store_timestamp_at_lookup(self, queue_offset: int) -> Lookup[int]:
        """`store_timestamp_at` as a look-up."""
        ...

    def offset_by_timestamp(self, timestamp: int, boundary: TimeBoundary) -> int:
        """The queue offset for a time (ms), between `min_offset` and `max_offset`."""
        ...

    def offset_by_timestamp_lookup(self, timestamp: int, boundary: TimeBoundary) -> Lookup[int]:
        """`offset_by_timestamp` as a look-up."""
        ...

    def offsets_with_tag(self, tag_hash: int, from_physical: int, to_physical: int) -> npt.NDArray[np.int64]:
        """Physical offsets in [from, to) of the messages whose tag may have a hash (32 bits), ascending.

        A message whose extension unit is lost may have any, and so may one whose unit is damaged or lost: it is looked
        for in the log. Raises BeingSearched.
        """
        ...

    def offsets_with_tag_lookup(
        self, tag_hash: int, from_physical: int, to_physical: int
    ) -> Lookup[npt.NDArray[np.int64]]:
        """`offsets_with_tag` as a look-up."""
        ...
