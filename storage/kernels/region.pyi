"""Memory that kernels read and write, held by the buffer protocol for as long as anybody may look at it."""

from typing import final

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer

@final
class Region:
    """Contiguous bytes that kernels read."""

    def __new__(cls, buffer: ReadableBuffer) -> Region:
        """Hold a buffer; raises BufferError or TypeError for what has none that is contiguous."""
    def __len__(self) -> int: ...
    @property
    def size(self) -> int:
        """How many bytes."""
    @property
    def address(self) -> int:
        """Where the first byte lies, 0 for no bytes: for kernels that are compiled at run time."""

@final
class Room:
    """An array of whole numbers that a kernel writes; kernels make it themselves of the arrays that they are given."""

    def __new__(cls, array: npt.NDArray[np.signedinteger | np.uint8], item_bytes: int) -> Room:
        """Hold an array of one dimension; raises ValueError for items that are no integers of so many bytes."""
