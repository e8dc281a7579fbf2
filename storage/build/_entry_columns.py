"""Index entries as columns, on their way from a scan into an index file."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class EntryColumns(NamedTuple):
    """Index entries: of each record that has any its offset, store time and number of entries, then all hashes."""

    first_offset: int
    record_offsets: npt.NDArray[np.uint32]
    """Counted from ``first_offset``."""
    record_timestamps: npt.NDArray[np.int64]
    record_entries: npt.NDArray[np.uint16]
    hashes: npt.NDArray[np.int32]

    def stop_of(self, physical_offset: int) -> int:
        """Where the entries of the record at a physical offset end; 0 without one."""
        distance = physical_offset - self.first_offset
        record = int(np.searchsorted(self.record_offsets, max(distance, 0)))
        if record == len(self.record_offsets) or self.record_offsets[record] != distance:
            return 0
        return int(self.record_entries[: record + 1].sum(dtype=np.int64))
