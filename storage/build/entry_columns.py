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
