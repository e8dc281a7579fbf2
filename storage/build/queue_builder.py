"""Build a plain queue from runs of its units, so that a stock broker goes on with it and consumers find their offsets.

Where the log is whole the files are those that a broker builds from it, byte for byte (store-format §5.2): the first
one starts where the first queue offset's file does, with filler units up to it; a queue offset that was there already
is left out; queue offset 0 behind others (the topic was deleted, and made again while its files survived) is appended.
Three things are done otherwise, for the sake of consumers:

* Queue offsets that no record has (damage, a missing segment) keep their places, see :mod:`storage.build.queue_units`;
  a broker would move up all that follows.
* One record whose number fits neither the one before it nor the one behind it, which are neighbours but for it, takes
  the place between them.
* Where the queue that is to be replaced was born with the later queue offset 0, it is born there again: a broker would
  bring the deleted topic's messages back, and leave out as many of the new ones.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from storage.build.queue_ext_builder import QueueExtBuilder
from storage.build.queue_file_writer import QueueFileWriter
from storage.build.queue_units import PRE_BLANK, GapFilling, physical_offset_of, share_gap, unreadable_unit
from storage.files.mapped_file import LARGEST_OFFSET
from storage.queue.consume_queue import UNIT

FARTHEST_JUMP: Final = 1 << 20
"""Lost queue offsets at one place that are believed and replaced; with more, units are appended as a broker does."""

LARGEST_QUEUE_OFFSET: Final = LARGEST_OFFSET // UNIT.size - (1 << 31)

Timestamps = npt.NDArray[np.int64]


class QueueCounts(msgspec.Struct):
    """Counts of a queue's units while they are put."""

    units: int = 0
    """Units of records; not those that stand in for lost ones."""
    pre_blank: int = 0
    """Fillers before the first unit."""
    repeated: int = 0
    """Lost messages in whose place a neighbour is delivered once more."""
    unreadable: int = 0
    """Lost messages in whose place nothing is delivered."""
    dropped: int = 0
    """Records whose queue offset another one has, or that have none that is possible."""
    misnumbered: int = 0
    """Records that took the place that their neighbours leave, not the one they claim."""
    shifted: int = 0
    """Records behind a jump too far to be believed: they stand where a broker would put them."""
    restarts: int = 0
    """Records with queue offset 0 that were appended behind others."""


class QueueSummary(QueueCounts, kw_only=True):
    """Counts and extent of a whole queue."""

    first: int = 0
    """The queue offset of the first unit from the log."""
    next_offset: int = 0
    """The queue offset that a broker gives to the next message."""
    earlier_life: int = 0
    """Records of a deleted topic that bore the same name."""
    ext_units: int = 0
    """Extension units, all without a filter bitmap."""
    files: int = 0
    bytes: int = 0
    """Of all files, holes included."""


class QueueBuilder:
    """Writes the files of one plain queue into `directory`; runs come in the order of the log.

    `extension`: for stores with CQ-ext. `born_at`, which is called at most once, returns the physical offset to which
    the first unit of the replaced queue points, or None. `repeat` off: see `share_gap`.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        segment_size: int,
        *,
        extension: QueueExtBuilder | None = None,
        born_at: Callable[[], int | None] | None = None,
        repeat: bool = True,
        farthest_jump: int = FARTHEST_JUMP,
    ) -> None:
        """Start an empty queue; nothing is on disk before there is something to write."""
        self._directory, self._file_size, self._segment_size = directory, file_size, segment_size
        self._extension, self._born_at, self._repeat = extension, born_at, repeat
        self._farthest_jump = farthest_jump
        self._writer: QueueFileWriter | None = None
        self._first = 0
        self._next = -1
        self._last = b""
        self._held: tuple[int, memoryview, Timestamps | None] | None = None
        self._counts = QueueCounts()
        self._earlier_life = 0

    @property
    def pending(self) -> int:
        """Bytes in memory."""
        return self._writer.pending if self._writer else 0

    @property
    def last_physical_offset(self) -> int:
        """Where the record of the last unit so far starts; −1 without one."""
        return physical_offset_of(self._last) if self._last else -1

    def flush(self) -> None:
        """Bring to the files what is in memory."""
        if self._writer:
            self._writer.flush()

    def put_run(self, first: int, units: memoryview, timestamps: Timestamps | None = None) -> None:
        """Add units of consecutive queue offsets from `first` on; with an extension, `timestamps` for each unit.

        The run is copied, unless it is a single unit out of order: that is held until the next call.
        """
        if self._held is not None:
            self._release(first)
        if first == self._next:
            self._append(self._extended(units, timestamps))
        elif len(units) == UNIT.size:
            self._held = first, memoryview(bytes(units)), None if timestamps is None else timestamps.copy()
        else:
            self._place(first, units, timestamps)

    def settle(self) -> int:
        """End the runs; return the next queue offset, before anything is added to it."""
        if self._held is not None:
            self._release(None)
        return max(self._next, 0)

    def extend(self, next_offset: int, log_end: int) -> None:
        """Let the queue go on to an offset that it had before its last messages were lost (after `settle`).

        Without units there is nothing to extend: such a queue is carried over as it was.
        """
        lost = next_offset - self._next
        if not self._last or not 0 < lost <= self._farthest_jump:
            return
        unreadable, repeated = self._share(lost - 1, log_end)
        # Last of all comes a unit that can be read: from it a broker learns up to where the queue covers the log.
        self._fill(unreadable, self._last, repeated + 1)

    def finish(self) -> QueueSummary:
        """Bring to the files what is in memory; that they outlive a power failure is `fsync_tree`'s."""
        next_offset = self.settle()
        files = self._writer.finish() if self._writer else 0
        return QueueSummary(
            first=self._first,
            next_offset=next_offset,
            earlier_life=self._earlier_life,
            ext_units=self._extension.finish() if self._extension else 0,
            files=files,
            bytes=files * self._file_size,
            **msgspec.structs.asdict(self._counts),
        )

    def _release(self, following: int | None) -> None:
        """Place the single unit that was held, now that it is known how the queue goes on."""
        assert self._held is not None
        (first, units, timestamps), self._held = self._held, None
        if following is not None and first != following - 1:
            # Nothing before it: then only a number that the next one falls behind is wrong for certain.
            expected = self._next if self._next >= 0 else following - 1 if 0 < following < first else -1
            if expected >= 0 and following == expected + 1:
                first = expected
                self._counts.misnumbered += 1
        self._place(first, units, timestamps)

    def _place(self, first: int, units: memoryview, timestamps: Timestamps | None) -> None:
        """Add a run wherever it belongs."""
        if not 0 <= first <= LARGEST_QUEUE_OFFSET:
            self._counts.dropped += len(units) // UNIT.size
            return
        if first == 0 and self._next > 0 and not self._is_reborn(units):
            self._counts.restarts += 1
            self._append(self._extended(units[: UNIT.size], None if timestamps is None else timestamps[:1]))
            first, units, timestamps = 1, units[UNIT.size :], None if timestamps is None else timestamps[1:]
        if first < self._next:
            known = min(self._next - first, len(units) // UNIT.size)
            self._counts.dropped += known
            first, units = first + known, units[known * UNIT.size :]
            timestamps = None if timestamps is None else timestamps[known:]
        if not len(units):
            return
        units = self._extended(units, timestamps)
        if self._writer is None:
            self._start(first, units)
        elif first - self._next <= self._farthest_jump:
            self._bridge(first - self._next, units)
        else:
            self._counts.shifted += len(units) // UNIT.size
        self._append(units)

    def _is_reborn(self, units: memoryview) -> bool:
        """Start over where the queue that is replaced did."""
        if self._born_at is None:
            return False
        birth = self._born_at()
        self._born_at = lambda: birth  # each call reads a file, and a bad log restarts often
        if birth != physical_offset_of(units):
            return False
        self._earlier_life += self._counts.units + self._counts.dropped
        self._counts = QueueCounts()
        if self._writer:
            self._writer.discard()
        if self._extension:
            self._extension.discard()
        self._writer, self._next, self._last = None, -1, b""
        return True

    def _start(self, first: int, units: memoryview) -> None:
        """Open the first file, with fillers up to the first unit."""
        start = first * UNIT.size
        start -= start % self._file_size
        self._writer = QueueFileWriter(self._directory, self._file_size, start)
        self._first, self._next = first, start // UNIT.size
        blank = first - self._next
        unit = bytes(units[: UNIT.size])
        # A broker that starts on a log from 0 on takes fillers for messages, and the minimum lies among them. Passing
        # over them costs it the messages behind them only in the log's first segment, where the filler points.
        in_first_segment = physical_offset_of(unit) < self._segment_size
        _, repeated = share_gap(blank, in_one_segment=in_first_segment, repeat=self._repeat and in_first_segment)
        self._writer.fill(PRE_BLANK, blank - repeated)
        self._writer.fill(unit, repeated)
        self._counts.pre_blank += blank - repeated
        self._counts.repeated += repeated
        self._next = first

    def _bridge(self, count: int, units: memoryview) -> None:
        """Stand in for `count` lost units before a run."""
        unit = bytes(units[: UNIT.size])
        unreadable, repeated = self._share(count, physical_offset_of(unit))
        self._fill(unreadable, unit, repeated)

    def _share(self, count: int, physical_offset: int) -> GapFilling:
        """How `count` units are replaced between the last one and one that points to a physical offset."""
        in_one_segment = self.last_physical_offset // self._segment_size == physical_offset // self._segment_size
        return share_gap(count, in_one_segment=in_one_segment, repeat=self._repeat)

    def _fill(self, unreadable: int, unit: bytes, repeated: int) -> None:
        assert self._writer is not None
        self._writer.fill(unreadable_unit(self._last, self._segment_size), unreadable)
        self._writer.fill(unit, repeated)
        self._next += unreadable + repeated
        self._counts.unreadable += unreadable
        self._counts.repeated += repeated

    def _extended(self, units: memoryview, timestamps: Timestamps | None) -> memoryview:
        """The units as they are written: with an extension, the addresses of its units are their tags codes."""
        if self._extension is None or timestamps is None:
            return units
        return self._extension.put(units, timestamps)

    def _append(self, units: memoryview) -> None:
        """Add units where the queue is."""
        assert self._writer is not None
        self._writer.append(units)
        self._last = bytes(units[-UNIT.size :])
        count = len(units) // UNIT.size
        self._next += count
        self._counts.units += count
