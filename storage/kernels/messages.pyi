"""Find messages of queues in the log, where the queues' own units do not lead to them, and make their units.

A light queue (``%LMQ%``) is searched by what its messages say of it in their properties (store-format §2.10).
"""

from typing import Final, final

import numpy as np
import numpy.typing as npt

from storage.kernels.region import Region

ANY_OFFSET: Final[int]
"""In the place of the first queue offset: whatever message comes first of the queue."""

NOT_FOUND: Final[int]
"""The physical offset in the unit of a message that was not found."""

@final
class MessageSearch:
    """Messages of one queue that are looked for, and the units of those that the log has."""

    def __new__(
        cls, topic: bytes, queue_id: int, first: int, units: npt.NDArray[np.uint8], beyond: int
    ) -> MessageSearch:
        """A search for the messages of the queue offsets from ``first`` on, one for each of the ``units``.

        These are bytes as in a plain queue's file (store-format §5.1). The physical offset in a unit is NOT_FOUND
        before its message is found. ``beyond`` messages of the queue with later offsets may come before nothing more is
        looked for. Raises ValueError for a negative offset but ANY_OFFSET, and for units that are no bytes.
        """
    @property
    def left(self) -> int:
        """How many of them are still to be found, 0 when nothing more is looked for."""

def find_messages(
    region: Region, position: int, stop: int, readable: int, base: int, boundary: int, searches: list[MessageSearch]
) -> int:
    """Make the units of messages whose records start in [position, stop), of some searches; where the search goes on.

    Positions are of a segment whose first byte has the physical offset ``base``, ``readable`` bounds reading,
    ``boundary`` is the physical offset at which the next segment starts. The search ends at ``stop``, behind it with
    the record that starts before it, at the BLANK that closes the segment, which is answered by ``readable``, or before
    where nothing more is looked for. Damaged records are no messages; behind damage it goes on at the next intact one.
    Raises ValueError where it was to read outside the region.
    """
