"""Which records of a segment may be what a content search looks for: headers and raw bytes, nothing is decoded.

A record that is passed over cannot match. One that is noted still has to be decoded and checked: its body may be
compressed, or its bytes may stand at a place that does not count.
"""

from collections.abc import Sequence
from typing import Final, final

import numpy as np
import numpy.typing as npt

from storage.kernels.region import Region
from storage.kernels.sql92 import Program

IN_BODY: Final = 1
"""Where bytes are looked for."""
IN_PROPERTIES: Final = 2

@final
class SearchQuery:
    """What is looked for; ranges include both ends."""

    def __new__(
        cls,
        *,
        topic: bytes | None,
        tag: bytes | None,
        key: bytes | None,
        key_is_start: bool,
        times: tuple[int, int],
        body_sizes: tuple[int, int],
        sender: bytes | None,
        network: tuple[bytes, bytes] | None,
        port: int | None,
        program: Program | None,
        place: int,
        needles: Sequence[tuple[bytes, int, int]],
        packings: Sequence[bytes],
    ) -> SearchQuery:
        """None is any.

        `key`: one of the business keys or the unique key, or with `key_is_start` what one of them starts with. `times`
        are store times in ms. `sender`: the property, with its separator, by which proxies name senders; a record that
        has it is noted whatever it says. `network`: address and mask of the born host of all others, 4 or 16 bytes
        each. One of two `needles` at most must lie in `place`, which is IN_BODY, IN_PROPERTIES, both, or 0; each comes
        with the positions of its two rarest bytes, the lower one first. A body that begins with one of `packings`, 16
        at most, may hold a needle unseen, and so may a batch where there are any.
        """

@final
class Selection:
    """How a walk over records went."""

    @property
    def position(self) -> int:
        """Where it ended."""
    @property
    def found(self) -> int:
        """How many records were noted."""
    @property
    def records(self) -> int:
        """How many were stepped over."""
    @property
    def reason(self) -> int:
        """Why it ended: AT_LIMIT, AT_BLANK, AT_DAMAGE or OUTPUT_FULL."""
    @property
    def code(self) -> int:
        """The `BAD_` code of damage, else 0."""

def select_records(
    region: Region,
    position: int,
    stop: int,
    readable: int,
    base: int,
    boundary: int,
    wanted: SearchQuery,
    found: npt.NDArray[np.int64],
) -> Selection:
    """Note in `found` the positions of the records that start in [position, stop) and may be wanted.

    `readable` bounds reading. The region's first byte has the physical offset `base`; the next segment starts at
    `boundary`.
    """

def find_needle(region: Region, position: int, stop: int, data: bytes, first: int, second: int) -> int:
    """Where a needle, with the positions of its rarest bytes, first lies wholly in [position, stop), or −1."""
