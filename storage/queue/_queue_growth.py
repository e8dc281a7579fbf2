"""Keeps what is known of a queue while messages are added to it, so that only the new units are checked.

The result is the end that a search without this knowledge would find (:mod:`.queue_end`).
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from storage.files.recently_used import RecentlyUsed
from storage.files.waiting import LONG_SCAN, Lookup
from storage.kernels.records import MINIMUM_SIZE
from storage.log.commit_log import CommitLog
from storage.queue._queue_end import find_end, last_sound
from storage.queue.queue_files import QueueFiles
from storage.queue.unit_standing import EMPTY, JudgedUnits, Standing

REMEMBERED = 16_384
"""Number of queues whose ends are kept; each takes some hundred bytes, and the list of its files."""

GROWTH_FOR_UNIT: Final = 4096
"""Bytes that the log has to grow for each unit after the end of a queue before all these units are judged anew."""


class KnownEnd(NamedTuple):
    """The results for a queue, in numbers of units: it ends at ``end``; units are written up to ``written``.

    ``generation`` identifies the listing in which its directory was found. ``log_minimum`` and ``log_end`` are those of
    the log that its units were compared with; ``looked`` is the end of the log when all units after the queue's end
    were checked last. ``last`` is the last unit of the queue, to recognize a queue that was deleted and made anew with
    the same names and inodes. ``note`` is further knowledge of the queue itself.
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

    def renewed(self, generation: object, log: CommitLog, capacity: int) -> "KnownEnd | None":
        """Return the results for the files that exist now, None if they changed.

        ``capacity`` is the number of units for which the known files have room.
        """
        is_listed = generation is self.generation and log.minimum == self.log_minimum
        if is_listed and not (self.may_be_full(log.end, capacity) and self.files.has_successor()):
            return self
        files = self.files.renewed()
        return self._replace(generation=generation, files=files) if files.continues(self.files) else None

    def may_be_full(self, log_end: int, capacity: int) -> bool:
        """Whether the log has grown by enough messages to fill the last file.

        The content of the file does not decide that: its last units may be lost although the next file has been begun.
        """
        room = capacity - max(self.written, self.end)
        place = 0 if self.last is None else self.last[0]
        return log_end - place >= MINIMUM_SIZE * room


class QueueMemory(NamedTuple):
    """The earlier results for a queue, and the function that keeps the new ones; by default there is neither.

    ``generation`` identifies the listing in which the queue's directory was found. ``keep`` is called with the results
    once the queue's beginning and end are found.
    """

    generation: object = None
    known: KnownEnd | None = None
    keep: Callable[[KnownEnd], None] | None = None


NEAR_UNITS: Final = 4096
"""Units after the known end that are checked each time, if units are left over there."""

MOST_JUDGED: Final = 64
"""Most of those units that are compared with their records; if there are more, all units are judged anew later."""

KnownQueues = RecentlyUsed[KnownEnd]


def end_after(units: JudgedUnits, known: KnownEnd, first: int, written: int) -> Lookup[int]:
    """Return the number after the last sound unit, by judging those that came; its units begin with ``first``.

    While left-over units of an older log are overwritten one by one, ``written`` does not change. The units after the
    new ones are then judged only when the log has grown so much that this costs little.
    """
    if units.log.end < known.log_end:
        return (yield from find_end(units, first, known.end))
    if written > known.written or is_judged_anew(units, known, written):
        return (yield from find_end(units, known.end, written))
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


def is_judged_anew(units: JudgedUnits, known: KnownEnd, written: int) -> bool:
    """Whether the log has grown so much that all units after the known end are judged anew."""
    return units.log.end - known.looked > max(4 * LONG_SCAN, GROWTH_FOR_UNIT * (written - known.end))
