"""What is known of a queue stays known while messages come to it: only the new units are looked at.

A queue ends where a fresh look would find its end (:mod:`.queue_end`): behind its last sound unit.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from storage.files.recently_used import RecentlyUsed
from storage.files.waiting import LONG_SCAN, Lookup
from storage.kernels.records import MINIMUM_SIZE
from storage.log.commit_log import CommitLog
from storage.queue.queue_end import end_behind, find_end, last_sound
from storage.queue.queue_files import QueueFiles
from storage.queue.unit_standing import EMPTY, JudgedUnits, Standing

REMEMBERED = 16_384
"""Queues whose ends stay known; of each some hundred bytes, and the list of its files."""

GROWTH_FOR_UNIT: Final = 4096
"""Bytes that the log grows for each unit behind the end of a queue that is judged anew: some microseconds of work."""


class Known(NamedTuple):
    """What was found out about a queue, in numbers of units: it ends at ``end``; units stand up to ``written``.

    ``generation`` tells when its directory was found; ``log_minimum`` and ``log_end`` are those of the log that it was
    held against, ``looked`` its end when all behind the queue's end was looked at last. ``last`` is the last unit of
    the queue: one that was deleted and made anew may have the same names and inodes. ``note`` is what else the queue
    wants to know again.
    """

    generation: object
    files: QueueFiles
    log_minimum: int
    log_end: int
    minimum: int
    end: int
    written: int
    last: tuple[int, ...] | None
    looked: int = 0
    note: object = None

    def renewed(self, generation: object, log: CommitLog, capacity: int) -> "Known | None":
        """The same for the files that are there now, None where they are others; ``capacity`` units fit those known."""
        is_listed = generation is self.generation and log.minimum == self.log_minimum
        if is_listed and not (self.may_be_full(log.end, capacity) and self.files.has_successor()):
            return self
        files = self.files.renewed()
        return self._replace(generation=generation, files=files) if files.continues(self.files) else None

    def may_be_full(self, log_end: int, capacity: int) -> bool:
        """Whether the messages that may have come are enough to fill the last file.

        What stands in the file does not tell: its last units may be lost, while the next file goes on.
        """
        room = capacity - max(self.written, self.end)
        place = 0 if self.last is None else self.last[0]
        return log_end - place >= MINIMUM_SIZE * room


class QueueMemory(NamedTuple):
    """What earlier looks at a queue have found out, and where goes what this one does; by default nothing and nowhere.

    ``generation`` tells when the queue's directory was found; ``keep`` is called with what is known once the queue has
    been measured.
    """

    generation: object = None
    known: Known | None = None
    keep: Callable[[Known], None] | None = None


NEAR_UNITS: Final = 4096
"""Units behind the known end that are looked at each time, where units are left over behind it."""

MOST_JUDGED: Final = 64
"""Of those, how many are held against the log at most: more are judged with all the others."""

KnownQueues = RecentlyUsed[Known]


def end_after(units: JudgedUnits, known: Known, first: int, written: int, *, is_mended: bool = True) -> Lookup[int]:
    """Where a queue ends of which something is known, and whose units begin with ``first``: the new ones are judged.

    Where units of an older log are overwritten one by one, ``written`` stays, and there is no need to judge those that
    follow again and again: they are when the log has grown so much that the cost is small beside. ``is_mended`` off:
    the messages of damaged units behind the last sound one are looked for elsewhere.
    """
    if units.log_end < known.log_end:
        return (yield from find_end(units, first, known.end))
    if written > known.written:
        end = yield from find_end(units, known.end, written)
        return (yield from end_behind(units, first, end, written, is_followed=True)) if is_mended else end
    if is_judged_anew(units, known, written):
        end = yield from find_end(units, known.end, written)
        if is_mended:
            end = yield from end_behind(units, first, end, written, is_followed=True, is_sure=True)
        return end
    end, step = known.end, 1
    while end + step <= written:
        if (yield from units.standing(end + step - 1)) is Standing.SOUND:
            end, step = end + step, 1
        else:
            step *= 2
    if end == written:
        return end
    behind = (yield from units.physical_offset(end - 1)) if end > first else EMPTY
    last = yield from last_sound(units, end, min(written, end + NEAR_UNITS), behind, MOST_JUDGED)
    return end if last is None else last + 1


def is_judged_anew(units: JudgedUnits, known: Known, written: int) -> bool:
    """Whether the log has grown so much that all units behind the known end are judged anew."""
    return units.log_end - known.looked > max(4 * LONG_SCAN, GROWTH_FOR_UNIT * (written - known.end))
