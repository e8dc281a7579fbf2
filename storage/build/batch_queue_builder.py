"""Build a queue of batches from runs of its units.

A unit's place has nothing to do with its queue offset, so lost batches leave no gap. Units come in the order of the
log; one that points no farther than the last is a repetition. Where the queue that is to be replaced was born with a
later queue offset 0, it is born there again, as in :mod:`storage.build.queue_builder`. Source: store-format §5.8.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from storage.build.queue_builder import QueueSummary
from storage.build.queue_file_writer import QueueFileWriter
from storage.build.queue_units import physical_offset_of
from storage.queue.batch_consume_queue import UNIT, UNIT_DTYPE

Units = npt.NDArray[np.void]


class BatchQueueBuilder:
    """Writes the files of one queue of batches into `directory`; runs come in the order of the log."""

    def __init__(self, directory: Path, file_size: int, *, born_at: Callable[[], int | None] | None = None) -> None:
        """Start an empty queue; nothing is on disk before there is something to write."""
        self._directory, self._file_size, self._born_at = directory, file_size, born_at
        self._writer = QueueFileWriter(directory, file_size)
        self._first = -1
        self._last = b""
        self._units = self._dropped = self._earlier_life = self._unreadable = 0

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
        whole = (batches["base_offset"] >= 0) & (batches["batch_size"] > 0) & (batches["size"] > 0)
        whole &= batches["physical_offset"] > self.last_physical_offset
        if not whole.all():
            self._dropped += int(whole.size - whole.sum())
            batches = batches[whole]
        self._append(self._since_birth(batches))

    def settle(self) -> int:
        """End the runs; return the next queue offset, before anything is added to it."""
        return self._next_offset()

    def extend(self, next_offset: int, _log_end: int) -> None:
        """Let the queue go on to an offset that it had before its last batches were lost.

        A unit that repeats the last record stands in for the last lost message: readers find it by that number.
        """
        if not self._last or next_offset <= self._next_offset():
            return
        unit = np.frombuffer(self._last, UNIT_DTYPE).copy()
        self._unreadable += next_offset - self._next_offset()
        unit["base_offset"], unit["batch_size"] = next_offset - 1, 1
        self._last = unit.tobytes()
        self._writer.append(self._last)

    def finish(self) -> QueueSummary:
        """Bring to the files what is in memory; that they outlive a power failure is `fsync_tree`'s."""
        files = self._writer.finish()
        return QueueSummary(
            first=max(self._first, 0),
            next_offset=self._next_offset(),
            units=self._units,
            unreadable=self._unreadable,
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
        data = batches.tobytes()
        if self._first < 0:
            self._first = int(batches["base_offset"][0])
        self._writer.append(data)
        self._last = data[-UNIT.size :]
        self._units += len(batches)
