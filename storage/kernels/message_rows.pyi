"""Choose records of a stretch of the log, and note where their parts lie: the rows that columns are gathered from.

A choice is made by what can be read of a record in place: topic, queue, queue offset, store time, tag. Bodies
are read only to hold those of the chosen records against their checksums, and where they hold a batch, of which each
message is chosen by itself.
"""

from collections.abc import Iterable
from typing import Final, final

import numpy as np
import numpy.typing as npt

from storage.kernels.region import Region

NEED_MORE: Final = 10
"""Why a run ended, besides the `AT_` codes and OUTPUT_FULL: the record at its end is not there as a whole."""

FLAG: Final = 16
"""Positions in a record."""
QUEUE_OFFSET: Final = 20
BORN_TIMESTAMP: Final = 40

ROW_FIELDS: Final[tuple[str, ...]]
"""Numbers of a row, int64 each, in their order: positions from the start of the region, and lengths.

The length of keys, tag or unique key is −1 where a message has none, and where nobody asked. `inner` is the number of a
message in its batch, whose record `position` is that of, and −1 for a record that is one message.
"""

@final
class RowQuery:
    """Which records are wanted; None is any. Ranges include both ends."""

    def __new__(
        cls,
        *,
        topics: Iterable[bytes] | None,
        tags: Iterable[bytes] | None,
        queue_ids: npt.NDArray[np.int32] | None,
        times: tuple[int, int],
        queue_offsets: tuple[int, int],
        names: bool,
        checksums: bool,
        apart: bool = True,
    ) -> RowQuery:
        """`names`: note where keys, tag and unique key lie; `checksums`: hold the chosen records against theirs.

        `apart`: take batches apart, where they are such as they should be; else they stay what they are as records.
        """

@final
class Choice:
    """How a run went."""

    @property
    def position(self) -> int:
        """Where it ended."""
    @property
    def rows(self) -> int:
        """How many were written."""
    @property
    def records(self) -> int:
        """How many were passed, wanted or not."""
    @property
    def last(self) -> int:
        """Position of the last of these, −1 without one."""
    @property
    def reason(self) -> int:
        """Why it ended: AT_LIMIT, AT_BLANK, AT_DAMAGE, OUTPUT_FULL, AT_NOTHING, NEED_MORE or AT_PACKED."""
    @property
    def code(self) -> int:
        """The `BAD_` code of damage, else 0."""

def choose_records(
    region: Region,
    position: int,
    limit: int,
    stop: int,
    base: int,
    boundary: int,
    wanted: RowQuery,
    table: npt.NDArray[np.int64],
) -> Choice:
    """Write a row for each wanted message of the records that start in [position, limit), up to AT_PACKED.

    Bytes up to `stop` are there. The region's first byte has the physical offset `base`; the next segment starts at
    `boundary`. `table` has room for whole rows.
    """

def load_numbers(
    region: Region, positions: npt.NDArray[np.int64], distance: int, bits: int, numbers: npt.NDArray[np.int64]
) -> None:
    """Read a number of 32 or 64 bits so many bytes behind each of some positions."""
