"""Whether the records of a queue are numbered without gap or repeat, as a broker numbers them.

A broker counts a queue's messages from 0. The log may begin anywhere; where messages of it are lost their numbers are,
too; a topic that was deleted and made again starts over at 0. Everything else is a record that says a wrong number;
which one shows when the next is seen, and what of it is told already when the queue's units have been.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np

from spark_jobs.verify.findings import QUEUE_OFFSET, Discrepancies, FoundAt
from spark_jobs.verify.log_table import LogTable
from spark_jobs.verify.unit_files import Units

MOST_DOUBTS: Final = 100_000
"""Records out of order of a queue that are kept to be judged at its end; more are counted."""


class Doubt(NamedTuple):
    """A message that does not follow those before it, or follows none (`expected` −1)."""

    physical_offset: int
    expected: int
    found: int


class Numbering:
    """Numbers of one queue's messages; `by_offset`: units stand by queue offset, else (batches) in order.

    `is_light`: copies of a message, retried or dead, bear the numbers of light queues that the first one got.
    """

    def __init__(self, log: LogTable, findings: Discrepancies, *, by_offset: bool, is_light: bool = False) -> None:
        """No message has been seen."""
        self.by_offset, self.is_light = by_offset, is_light
        self._log, self._findings = log, findings
        self._next = -1
        self._last_offset = log.minimum
        self._ordinal = 0
        self._doubt: Doubt | None = None
        self._doubts: list[Doubt] = []

    def take(self, first: int, units: Units) -> tuple[int, bool]:
        """Look at a run of messages, of consecutive queue offsets from `first` on.

        Returns the number of the first one's unit, and whether the queue starts over with it.
        """
        if not self.by_offset:
            return self._take_batches(units), False
        offset, count = int(units["physical_offset"][0]), len(units)
        restarts = first == 0 and self._next > 0
        if first == self._next or self.is_light:
            self._confirm()
        elif not self._explains(first, offset):
            self._confirm()
            self._raise_doubt(Doubt(offset, self._next, first), count)
        self._next, self._last_offset = first + count, int(units["physical_offset"][-1])
        return first, restarts

    def finish(self, strays: Collection[int], unitless: Collection[int]) -> None:
        """There are no more messages; tell what is out of order, unless the units have told it.

        `strays`: places whose units point to what is no message of the queue any more: the record that left a gap in
        the numbers bears another queue. `unitless`: numbers of messages without unit: of two with one number it is the
        other that does not belong here.
        """
        self._confirm()
        for doubt in self._doubts:
            gap = range(doubt.expected, min(doubt.found, doubt.expected + len(strays) + 1))
            if doubt.found in unitless if not gap else all(place in strays for place in gap):
                continue
            self._say(doubt)

    def _explains(self, first: int, offset: int) -> bool:
        """Whether a number that does not follow is right: messages are lost, or the one before is wrong."""
        if self._next >= 0 and first > self._next and self._log.loses_between(self._last_offset, offset):
            self._confirm()
            return True
        doubt = self._doubt
        if doubt is None or first == 0 or (doubt.expected >= 0 and first not in (doubt.expected, doubt.expected + 1)):
            return False
        self._say(doubt if doubt.expected >= 0 else doubt._replace(expected=first - 1))
        self._doubt = None
        return True

    def _confirm(self) -> None:
        """Settle a doubt: the queue offset is what the record says, a beginning, a new beginning, or out of order."""
        if self._doubt is not None:
            self._out_of_order(self._doubt)
        self._doubt = None

    def _out_of_order(self, doubt: Doubt) -> None:
        if doubt.expected < 0 or not doubt.found:
            return
        if len(self._doubts) < MOST_DOUBTS:
            self._doubts.append(doubt)
        else:
            self._findings.more(QUEUE_OFFSET, 1)

    def _raise_doubt(self, doubt: Doubt, count: int) -> None:
        """Wait for the message that follows a single one; several in order are right among themselves."""
        if count == 1 and not (doubt.expected < 0 and doubt.found == 0):
            self._doubt = doubt
        else:
            self._out_of_order(doubt)

    def _take_batches(self, units: Units) -> int:
        """Batches of one run: each begins where the one before it ends, or the queue starts over."""
        bases, sizes = units["base_offset"].astype(np.int64), units["batch_size"].astype(np.int64)
        offsets = units["physical_offset"].astype(np.int64)
        expected = np.concatenate([[self._next], (bases + sizes)[:-1]])
        before = np.concatenate([[self._last_offset], offsets[:-1]])
        for i in np.flatnonzero((bases != expected) & (expected >= 0) & (bases != 0)).tolist():
            if bases[i] < expected[i] or not self._log.loses_between(int(before[i]), int(offsets[i])):
                self._say(Doubt(int(offsets[i]), int(expected[i]), int(bases[i])))
        self._next, self._last_offset = int(bases[-1] + sizes[-1]), int(offsets[-1])
        number, self._ordinal = self._ordinal, self._ordinal + len(units)
        return number

    def _say(self, doubt: Doubt) -> None:
        path, position = self._log.where(doubt.physical_offset)
        expected = f"queue offset {doubt.expected}"
        self._findings.add(
            QUEUE_OFFSET, FoundAt(path, "record", position, doubt.physical_offset), expected, str(doubt.found)
        )
