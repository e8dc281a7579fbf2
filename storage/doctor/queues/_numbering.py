"""Whether the records of a queue are numbered without gap or repeat, as a broker numbers them.

A broker counts a queue's messages from 0. The log may begin anywhere; where messages of it are lost their numbers are,
too; a topic that was deleted and made again starts over at 0. Everything else is a record with a wrong number.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

import numpy as np

from storage.doctor.finding import Findings, FoundAt, Kind
from storage.doctor.log.scanned_log import Numbers, ScannedLog
from storage.doctor.queues.unit_files import Units

PIECE: Final = 1 << 16


class OutOfOrder(NamedTuple):
    """A message that does not follow those before it; `is_sure`: those behind it confirm that."""

    physical_offset: int
    expected: int
    found: int
    is_sure: bool

    def note(self, log: ScannedLog, findings: Findings) -> None:
        """Note the finding."""
        path, position = log.where(self.physical_offset)
        at = FoundAt(path, "record", position, self.physical_offset)
        findings.note(Kind.QUEUE_OFFSET, at, f"queue offset {self.expected}", str(self.found))


def check_numbers(
    numbers: Numbers, offsets: Numbers, following: int, before: int, log: ScannedLog
) -> Iterator[OutOfOrder]:
    """Find messages of a queue that are out of order by number and physical offset.

    `following` is the number that should come first, −1 where none is known; the message `before` lies at an offset.
    """
    expected = np.concatenate([[following], numbers[:-1] + 1])[: len(numbers)]
    breaks = np.flatnonzero(numbers != expected).tolist()
    explained = -1
    for at, behind in zip(breaks, [*breaks[1:], len(numbers)], strict=False):
        should, number, offset = int(expected[at]), int(numbers[at]), int(offsets[at])
        last = int(offsets[at - 1]) if at else before
        if at == explained or (0 <= should < number and log.loses_between(last, offset)):
            continue
        after = int(numbers[behind]) if behind == at + 1 < len(numbers) else 0
        # A single one, and the next goes on without it. Where the queue begins, only that says what it should be.
        if after and (after in (should, should + 1) if should >= 0 else number):
            explained = behind
            yield OutOfOrder(offset, should if should >= 0 else after - 1, number, True)
        elif should >= 0 and number:
            yield OutOfOrder(offset, should, number, False)


def check_batches(
    read: Callable[[int, int], Units],
    count: int,
    following: int,
    before: int,
    stood_in: Collection[int],
    log: ScannedLog,
    findings: Findings,
) -> None:
    """Check batches, whose messages `read` gives: each begins where the one before ends, or the queue starts over.

    Units that stand in for lost batches begin at the numbers `stood_in`.
    """
    for first in range(0, count, PIECE):
        units = read(first, min(PIECE, count - first))["unit"]
        bases, offsets = units["base_offset"].astype(np.int64), units["physical_offset"].astype(np.int64)
        ends = bases + units["batch_size"]
        expected = np.concatenate([[following], ends[:-1]])
        earlier = np.concatenate([[before], offsets[:-1]])
        for i in np.flatnonzero((bases != expected) & (expected >= 0) & (bases != 0)).tolist():
            is_lost = log.loses_between(int(earlier[i]), int(offsets[i])) or int(expected[i]) in stood_in
            if bases[i] < expected[i] or not is_lost:
                OutOfOrder(int(offsets[i]), int(expected[i]), int(bases[i]), True).note(log, findings)
        following, before = int(ends[-1]), int(offsets[-1])
