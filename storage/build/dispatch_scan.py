"""Scan a segment for what a broker's dispatch makes of it: index entries and queue units, as packed columns.

The caller reads the segment in pieces and shows them one after the other; what a scan has gathered is taken now and
then, at the latest when it is full. Memory is bounded by the number of records of a block, whatever the log holds.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.build._entry_columns import EntryColumns
from storage.kernels import dispatching
from storage.kernels.dispatching import DispatchMemory, Step
from storage.kernels.region import Region

__all__ = ["BATCH", "LIGHT", "PLAIN", "RECORDS", "DispatchBlock", "DispatchOptions", "DispatchScan", "Reason", "Step"]

PLAIN: Final = dispatching.PLAIN
BATCH: Final = dispatching.BATCH
LIGHT: Final = dispatching.LIGHT
"""Kinds of runs: plain units, units of batches, plain units of a light queue (which lead to no extension)."""

RECORDS: Final = 1 << 16

Numbers = npt.NDArray[np.int64]


class Reason:
    """Why a step ended; plain numbers, as the kernel gives them."""

    NEED_MORE: Final = dispatching.NEED_MORE
    """The record at the position reaches beyond what is there, or fewer than eight bytes are."""
    LIMIT: Final = dispatching.LIMIT
    """The position is the limit, or behind it."""
    BLANK: Final = dispatching.BLANK
    """The segment ends here."""
    ZERO: Final = dispatching.ZERO
    """Eight zero bytes: nothing was written here."""
    DAMAGE: Final = dispatching.DAMAGE
    """There is no valid record; the code says why."""
    FULL: Final = dispatching.FULL
    """Take the block, then go on."""


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
    """Units as they are in the files of the queues: 20 bytes each, 46 for a batch."""
    unit_timestamps: Numbers
    """When the message of each unit (of any kind) was stored, ms; empty unless asked for."""

    @property
    def entries(self) -> EntryColumns:
        """The index entries alone."""
        return EntryColumns(
            self.first_offset, self.record_offsets, self.record_timestamps, self.record_entries, self.hashes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """Options of a scan; by default it makes the index entries and queue units of a store without any peculiarities.

    ``tags``: brokers from 5.4 on put an entry for the tag. ``checksums`` of records are compared. ``delays``: ms of
    each delay level. ``lmq``: make units for light queues. ``batch_topics``: topics whose units are of batches.
    ``ext``: give the units' store times. Blocks are of up to ``records`` records.
    """

    tags: bool
    checksums: bool = False
    delays: Sequence[int] = ()
    lmq: bool = False
    batch_topics: Collection[bytes] = ()
    units: bool = True
    entries: bool = True
    ext: bool = False
    records: int = RECORDS


class DispatchScan:
    """A scan over the records of one segment after the other; see :meth:`run` and :meth:`take`."""

    def __init__(self, options: DispatchOptions) -> None:
        """Nothing is gathered yet."""
        self._memory = DispatchMemory(
            tags=options.tags,
            checksums=options.checksums,
            delays=options.delays,
            lmq=options.lmq,
            batch_topics=options.batch_topics,
            units=options.units,
            entries=options.entries,
            timestamps=options.ext,
            records=options.records,
        )

    def run(self, region: Region, position: int, available: int, base: int, boundary: int, limit: int) -> Step:
        """Dispatch the records that start in [position, limit) of a region, as far as there are any and there is room.

        ``available`` bytes of the region may be read, and ``base`` is the physical offset of its first byte; the next
        segment starts at ``boundary``, or would start there. Runs between two calls of :meth:`take` go forward in the
        log. Why a run ended, :class:`Reason` says.
        """
        return self._memory.run(region, position, available, base, boundary, limit)

    def take(self) -> DispatchBlock:
        """Return what was gathered since the last call; the scan goes on with nothing."""
        taken = self._memory.take()
        return DispatchBlock(
            first_offset=taken.first_offset,
            end_offset=taken.end_offset,
            records=taken.records,
            last_record=taken.last_record,
            last_timestamp=taken.last_timestamp,
            record_offsets=np.frombuffer(taken.record_offsets, np.uint32),
            record_timestamps=np.frombuffer(taken.record_timestamps, np.int64),
            record_entries=np.frombuffer(taken.record_entries, np.uint16),
            record_tagged=np.frombuffer(taken.record_tagged, np.uint8),
            hashes=np.frombuffer(taken.hashes, np.int32),
            queues=taken.queues,
            runs=np.frombuffer(taken.runs, np.int64).reshape(-1, dispatching.RUN_NUMBERS),
            units=np.frombuffer(taken.units, np.uint8),
            unit_timestamps=np.frombuffer(taken.unit_timestamps, np.int64),
        )
