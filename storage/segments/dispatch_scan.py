"""Scan a segment for what a broker's dispatch makes of it: index entries and queue units, as packed columns.

The caller reads the segment in pieces and shows them one after the other; what a scan has gathered is taken now and
then, at the latest when it is full. Memory is bounded by the number of records of a block, whatever the log holds.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.index.entry_columns import EntryColumns
from storage.kernels import dispatch, queue_table
from storage.kernels import dispatch_memory as at
from storage.kernels.memory import address_of
from storage.kernels.properties import PROPERTIES
from storage.kernels.records import MAXIMUM_PIECES

PLAIN: Final = queue_table.PLAIN
BATCH: Final = queue_table.BATCH
LIGHT: Final = queue_table.LIGHT
"""Kinds of runs: plain units, units of batches, plain units of a light queue (which lead to no extension)."""

RECORDS: Final = 1 << 17
ENTRIES_PER_RECORD: Final = 8
NAME_BYTES_PER_RECORD: Final = 32

Numbers = npt.NDArray[np.int64]


class Reason:
    """Why a step ended; plain numbers, as the kernel gives them."""

    NEED_MORE: Final = dispatch.NEED_MORE
    """The record at the position reaches beyond what is there, or fewer than eight bytes are."""
    LIMIT: Final = dispatch.LIMIT
    """The position is the limit, or behind it."""
    BLANK: Final = dispatch.BLANK
    """The segment ends here."""
    ZERO: Final = dispatch.ZERO
    """Eight zero bytes: nothing was written here."""
    DAMAGE: Final = dispatch.DAMAGE
    """There is no valid record; the code says why."""
    FULL: Final = dispatch.FULL
    """Take the block, then go on."""


class Step(NamedTuple):
    """Where a run ended, why (:class:`Reason`), and for damage a ``BAD_`` code of :mod:`storage.kernels.records`."""

    position: int
    reason: int
    code: int


@dataclass(frozen=True, slots=True)
class DispatchBlock:
    """What the records of the physical range [first_offset, end_offset) lead to. All arrays are its own."""

    first_offset: int
    end_offset: int
    records: int
    """All valid ones, with entries and units or without."""
    last_record: int
    """Offset of the last of them, −1 without one; ``last_timestamp``: when it was stored, ms, 0 without one."""
    last_timestamp: int
    record_offsets: npt.NDArray[np.uint32]
    """As in :class:`EntryColumns`, in the order in which a broker puts them."""
    record_timestamps: Numbers
    record_entries: npt.NDArray[np.uint16]
    record_tagged: npt.NDArray[np.uint8]
    """1 where the last of a record's entries is that of its tag."""
    hashes: npt.NDArray[np.int32]
    queues: list[tuple[bytes, int]]
    """Topic as stored and queue id, in the order in which the log first has them; one for each kind."""
    runs: Numbers
    """int64[k, 5]: number in ``queues``, kind, first queue offset, units, position in ``units``. Queue by queue.

    Plain units of a run have consecutive queue offsets; batches are one run a queue, whatever their offsets.
    """
    units: npt.NDArray[np.uint8]
    """Units as they stand in the files of the queues: 20 bytes each, 46 for a batch."""
    unit_timestamps: Numbers
    """When the message of each unit (of any kind) was stored, ms; empty unless asked for."""

    @property
    def entries(self) -> EntryColumns:
        """The index entries alone."""
        return EntryColumns(
            self.first_offset, self.record_offsets, self.record_timestamps, self.record_entries, self.hashes
        )


class DispatchScan:
    """A scan over the records of one segment after the other; see :meth:`run` and :meth:`take`."""

    def __init__(
        self,
        *,
        tags: bool,
        checksums: bool,
        delays: Sequence[int],
        lmq: bool,
        batch_topics: Collection[bytes],
        units: bool = True,
        entries: bool = True,
        ext: bool = False,
        records: int = RECORDS,
    ) -> None:
        """Get ready for blocks of up to ``records`` records.

        ``tags``: brokers from 5.4 on put an entry for the tag. ``delays``: ms of each delay level. ``lmq``: make units
        for light queues. ``batch_topics``: topics whose units are of batches. ``ext``: give the units' store times.
        """
        self._batch_topics = list(batch_topics)  # the kernel knows them by address
        self._wants_timestamps = ext
        room = records + MAXIMUM_PIECES
        topics = [(address_of(name), len(name)) for name in self._batch_topics]
        self._batch_table = np.array(topics, np.int64).reshape(-1, 2)
        self._delays = np.array(delays, np.int64)
        self._state = np.zeros(at.STATE, np.int64)
        self._scratch = np.zeros(PROPERTIES + 1, np.int64)
        self._rows = np.empty((records, at.ROW), np.int64)
        self._hashes = np.empty(records * ENTRIES_PER_RECORD + MAXIMUM_PIECES, np.int32)
        self._units = np.empty((room, queue_table.UNIT_ROW), np.int64)
        self._queues = np.empty((room, queue_table.QUEUE_ROW), np.int64)
        self._names = np.empty(max(records * NAME_BYTES_PER_RECORD, 2 * dispatch.NAME_ROOM), np.uint8)
        self._table = np.zeros(1 << (2 * room - 1).bit_length(), np.int32)
        self._memory = at.DispatchMemory(
            wants_tags=int(tags),
            wants_checksums=int(checksums),
            wants_light=int(lmq),
            wants_entries=int(entries),
            wants_units=int(units),
            delays=self._delays.ctypes.data,
            delay_levels=self._delays.size,
            batch_topics=self._batch_table.ctypes.data,
            batch_topic_count=len(topics),
            state=self._state.ctypes.data,
            found=self._scratch.ctypes.data,
            parsed=self._scratch[PROPERTIES:].ctypes.data,
            rows=self._rows.ctypes.data,
            row_room=len(self._rows),
            hashes=self._hashes.ctypes.data,
            hash_room=self._hashes.size,
            units=self._units.ctypes.data,
            unit_room=room,
            queues=self._queues.ctypes.data,
            queue_room=room,
            names=self._names.ctypes.data,
            name_room=self._names.size,
            table=self._table.ctypes.data,
            table_mask=self._table.size - 1,
        )
        self._first_offset = self._end_offset = -1
        self._reset()

    def run(self, address: int, position: int, available: int, base: int, boundary: int, limit: int) -> Step:
        """Dispatch the records that start in [position, limit) of a buffer, as far as there are any and there is room.

        ``address`` is where the buffer lies, of which ``available`` bytes may be read, and ``base`` the physical offset
        of its first byte; the next segment starts at ``boundary``, or would start there. Runs between two calls of
        :meth:`take` go forward in the log.
        """
        state = self._state
        if self._first_offset < 0:
            self._first_offset = state[at.FIRST_OFFSET] = base + position
        state[at.CODE] = 0
        ended = int(dispatch.dispatch_records(address, position, available, base, boundary, limit, self._memory))
        self._end_offset = base + (ended >> 3)
        return Step(ended >> 3, ended & 7, int(state[at.CODE]))

    def take(self) -> DispatchBlock:
        """What has been gathered since this was last asked for; the scan goes on with nothing."""
        state = self._state.tolist()
        rows, hashes = self._rows[: state[at.ROWS]], self._hashes[: state[at.ENTRIES]]
        queues, runs, units, timestamps = self._sort_units(state[at.UNITS], state[at.QUEUES])
        block = DispatchBlock(
            first_offset=max(self._first_offset, 0),
            end_offset=max(self._end_offset, 0),
            records=state[at.RECORDS],
            last_record=state[at.LAST_RECORD],
            last_timestamp=state[at.LAST_TIMESTAMP],
            record_offsets=rows[:, at.ROW_OFFSET].astype(np.uint32),
            record_timestamps=rows[:, at.ROW_TIMESTAMP].copy(),
            record_entries=rows[:, at.ROW_ENTRIES].astype(np.uint16),
            record_tagged=rows[:, at.ROW_TAGGED].astype(np.uint8),
            hashes=hashes.copy(),
            queues=queues,
            runs=runs,
            units=units,
            unit_timestamps=timestamps,
        )
        self._reset()
        return block

    def _sort_units(
        self, unit_count: int, queue_count: int
    ) -> tuple[list[tuple[bytes, int]], Numbers, npt.NDArray[np.uint8], Numbers]:
        """Queues, runs, units and their store times."""
        table = self._queues[:queue_count]
        is_batch = table[:, queue_table.KIND] == BATCH
        sizes = np.where(is_batch, queue_table.BATCH_BYTES, queue_table.PLAIN_BYTES) * table[:, queue_table.COUNT]
        runs = np.empty((int(table[:, queue_table.RUNS].sum()), queue_table.RUN_ROW), np.int64)
        units = np.empty(int(sizes.sum()), np.uint8)
        timestamps = np.empty(unit_count if self._wants_timestamps else 0, np.int64)
        cursors = np.empty((queue_count, queue_table.CURSOR_ROW), np.int64)
        queue_table.share_space(table, queue_count, cursors)
        queue_table.sort_units(
            self._memory.units,
            unit_count,
            self._memory.queues,
            cursors.ctypes.data,
            runs.ctypes.data,
            units.ctypes.data,
            timestamps.ctypes.data if self._wants_timestamps else 0,
        )
        return self._queue_names(table[table[:, queue_table.COUNT] > 0]), runs, units, timestamps

    def _queue_names(self, table: Numbers) -> list[tuple[bytes, int]]:
        names = self._names.data
        columns = table[:, [queue_table.NAME, queue_table.NAME_LENGTH, queue_table.QUEUE_ID]].tolist()
        return [(bytes(names[name : name + length]), queue_id) for name, length, queue_id in columns]

    def _reset(self) -> None:
        if self._state[at.QUEUES]:
            self._table.fill(0)
        self._state.fill(0)
        self._state[at.LAST_RECORD] = -1
        self._first_offset = -1
