"""Build a queue of batches from runs of its units.

A unit's place has nothing to do with its queue offset. But a broker that is asked for an offset that no unit has leads
its consumers back, to the batch before or to offset 0, again and again (`BatchConsumeQueue.rollNextFile` is 0): so in
the place of lost batches stands a unit of all their offsets that repeats the batch before them. Units come in the order
of the log; one that points no farther than the last is a repetition. Where the queue that is to be replaced was born
with a later queue offset 0, it is born there again, as in :mod:`storage.build.queue_builder`. Source: store-format
§5.8.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from storage.build.queue_builder import QueueSummary
from storage.build.queue_file_writer import QueueFileWriter
from storage.build.queue_units import physical_offset_of
from storage.queue.batch_consume_queue import UNIT, UNIT_DTYPE
from storage.queue.unit_standing import are_valid

Units = npt.NDArray[np.void]

MOST_MESSAGES = np.iinfo(np.int16).max
"""Queue offsets that one unit can have."""


class BatchQueueBuilder:
    """Writes the files of one queue of batches into `directory`; runs come in the order of the log."""

    def __init__(self, directory: Path, file_size: int, *, born_at: Callable[[], int | None] | None = None) -> None:
        """Start an empty queue; nothing is on disk before there is something to write."""
        self._directory, self._file_size, self._born_at = directory, file_size, born_at
        self._writer = QueueFileWriter(directory, file_size)
        self._first = -1
        self._last = b""
        self._units = self._dropped = self._earlier_life = self._repeated = 0

    @property
    def pending(self) -> int:
        """Bytes in memory."""
        return self._writer.pending

    @property
    def last_physical_offset(self) -> int:
        """Where the record of the last unit so far starts; −1 without one."""
        return physical_offset_of(self._last) if self._last else -1

    def flush(self) -> None:
        """Bring to the files what is in memory."""
        self._writer.flush()

    def put_run(self, _first: int, units: memoryview, _timestamps: npt.NDArray[np.int64] | None = None) -> None:
        """Add units as they are; they contain their base offsets."""
        batches = np.frombuffer(units, UNIT_DTYPE)
        # A unit that a broker takes for none would end the queue when it next starts.
        whole = are_valid(batches) & (batches["physical_offset"] > self.last_physical_offset)
        if not whole.all():
            self._dropped += int(whole.size - whole.sum())
            batches = batches[whole]
        self._append(self._since_birth(batches))

    def settle(self) -> int:
        """End the runs; return the next queue offset, before anything is added to it."""
        return self._next_offset()

    def extend(self, next_offset: int, _log_end: int) -> None:
        """Let the queue go on to an offset that it had before its last batches were lost."""
        if self._last and next_offset > self._next_offset():
            self._last = self._stand_in(self._next_offset(), next_offset)

    def finish(self) -> QueueSummary:
        """Bring to the files what is in memory; that they outlive a power failure is `fsync_tree`'s."""
        files = self._writer.finish()
        return QueueSummary(
            first=max(self._first, 0),
            next_offset=self._next_offset(),
            units=self._units,
            repeated=self._repeated,
            dropped=self._dropped,
            earlier_life=self._earlier_life,
            files=files,
            bytes=files * self._file_size,
        )

    def _next_offset(self) -> int:
        if not self._last:
            return 0
        _, _, _, _, base_offset, batch_size, _, _ = UNIT.unpack(self._last)
        return int(base_offset + batch_size)

    def _since_birth(self, batches: Units) -> Units:
        """Leave out what an earlier topic of the name left in the log, once the birth of the present one is found."""
        births = np.flatnonzero(batches["base_offset"] == 0)
        if self._born_at is None or not births.size or not (self._last or births[-1]):
            return batches
        born_at = self._born_at()
        for number in births.tolist():
            if (self._last or number) and batches["physical_offset"][number] == born_at:
                self._earlier_life += self._units + number
                self._writer.discard()
                self._writer = QueueFileWriter(self._directory, self._file_size)
                self._first, self._last, self._units = -1, b"", 0
                return batches[number:]
        return batches

    def _append(self, batches: Units) -> None:
        if not len(batches):
            return
        if self._first < 0:
            self._first = int(batches["base_offset"][0])
        behind = batches["base_offset"].astype(np.int64) + batches["batch_size"]
        reached = np.concatenate(([self._next_offset() if self._last else self._first], behind[:-1]))
        written = 0
        for number in np.flatnonzero(batches["base_offset"] > reached).tolist():
            self._write(batches[written:number])
            self._stand_in(int(reached[number]), int(batches["base_offset"][number]))
            written = number
        self._write(batches[written:])
        self._units += len(batches)

    def _write(self, batches: Units) -> None:
        if len(batches):
            data = batches.tobytes()
            self._writer.append(data)
            self._last = data[-UNIT.size :]

    def _stand_in(self, start: int, stop: int) -> bytes:
        """Let the batch before a gap stand in for those that had its queue offsets; the last of its units."""
        unit = np.frombuffer(self._last, UNIT_DTYPE).copy()
        self._repeated += stop - start
        while start < stop:
            unit["base_offset"], unit["batch_size"] = start, min(stop - start, MOST_MESSAGES)
            self._writer.append(unit.tobytes())
            start += MOST_MESSAGES
        return unit.tobytes()
