"""Whether a store may have plain queues of which nothing is seen: then a queue that is not found is not an empty one.

A broker makes a message's queue, with its directory, right after it has stored the message. So a store with messages of
plain queues in its log and without one directory of such a queue has lost its queues; it does not lack messages.
"""

from typing import Final

from storage.files.waiting import Allowance, Lookup, Wait
from storage.log.commit_log import CommitLog, Segment
from storage.log.segment_end import BLANK_BYTES, is_blank
from storage.queue.queue_record import is_queued, queue_place

PATIENT_LOOK: Final = 64
"""Records that a look-up looks at before it asks for a thread that may wait; mostly the first one decides."""


class UnlistedQueues:
    """The plain queues of a store that has no directory of any; each record of its log is looked at once."""

    def __init__(self) -> None:
        self._looked_up_to = -1
        self._are_missed = False

    def are_missed_by(self, commit_log: CommitLog, batch_topics: frozenset[str]) -> Lookup[bool]:
        """Whether the log has a message of a topic other than these, which have queues of batches.

        Where the log is damaged there may be one.
        """
        allowance = Allowance(PATIENT_LOOK)
        for segment in commit_log.segments:
            place = max(segment.base_offset, self._looked_up_to)
            while not self._are_missed and place < segment.end:
                if allowance.is_used_up_by(1):
                    yield Wait("looking for messages of plain queues")
                record = yield from commit_log.record_at_lookup(place)
                if record is None:
                    self._are_missed = not _ends_at(segment, place)
                    break
                own = queue_place(record)
                self._are_missed = own is not None and is_queued(record) and own[2] not in batch_topics
                place = self._looked_up_to = place + len(record)
        return self._are_missed


def _ends_at(segment: Segment, physical_offset: int) -> bool:
    """Whether the BLANK that closes a segment stands at a physical offset, or fewer bytes than one needs."""
    position = physical_offset - segment.base_offset
    return position > segment.file.size - BLANK_BYTES or is_blank(
        segment.file, position, segment.boundary - segment.base_offset
    )
