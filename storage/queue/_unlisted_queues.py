"""Finds out whether a store has lost all directories of plain queues, so that a missing queue is not an empty one.

A broker makes a message's queue, with its directory, right after it has stored the message. So a store with messages of
plain queues in its log, but without any directory of such a queue, has lost its queues, not its messages.
"""

from typing import Final

from storage.files.waiting import Allowance, Lookup, Wait
from storage.log.commit_log import CommitLog, Segment
from storage.log.segment_end import BLANK_BYTES, is_blank
from storage.queue.queue_record import is_queued, queue_place

PATIENT_LOOK: Final = 64
"""Records that a look-up reads before it asks for a thread that may wait; mostly the first one decides."""


class UnlistedQueues:
    """The plain queues of a store without any directory of one; each record of its log is read once."""

    def __init__(self) -> None:
        self._looked_up_to = -1
        self._are_missed = False

    def are_missed_by(self, commit_log: CommitLog, batch_topics: frozenset[str]) -> Lookup[bool]:
        """Return whether the log has a message of another topic than `batch_topics`, which have queues of batches.

        True too if the log is damaged, because such a message may have been there.
        """
        allowance = Allowance(PATIENT_LOOK)
        for segment in commit_log.segments:
            place = max(segment.base_offset, self._looked_up_to)
            while not self._are_missed and place < segment.end:
                if allowance.is_used_up_by(1):
                    yield Wait("looking for messages of plain queues")
                place = yield from commit_log.record_start_lookup(place)
                if place >= segment.end:  # entries without a message close the segment
                    break
                record = yield from commit_log.record_at_lookup(place)
                if record is None:
                    self._are_missed = not _ends_at(segment, place)
                    break
                own = queue_place(record)
                self._are_missed = own is not None and is_queued(record) and own[2] not in batch_topics
                place = self._looked_up_to = place + len(record)
        return self._are_missed


def _ends_at(segment: Segment, physical_offset: int) -> bool:
    """Whether the records of a segment end at a physical offset: with a BLANK, or with too few bytes for one."""
    position = physical_offset - segment.base_offset
    return position > segment.file.size - BLANK_BYTES or is_blank(
        segment.file, position, segment.boundary - segment.base_offset
    )
