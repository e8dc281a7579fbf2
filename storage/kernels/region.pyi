"""Memory that kernels read and write, held by the buffer protocol for as long as anybody may look at it."""

from typing import final

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer, WriteableBuffer

@final
class Region:
    """Contiguous bytes that kernels read."""

    def __new__(cls, buffer: ReadableBuffer) -> Region:
        """Hold a buffer; raises BufferError or TypeError for what has none that is contiguous."""
    def __len__(self) -> int: ...
    @property
    def size(self) -> int:
        """How many bytes."""
    def __bytes__(self) -> bytes:
        """A copy of all of them."""

@final
class Column:
    """An array of whole numbers that a kernel reads; kernels make it themselves of the arrays that they are given."""

    def __new__(cls, array: npt.NDArray[np.integer], item_bytes: int) -> Column:
        """Hold an array of one dimension; raises ValueError for items that are no integers of so many bytes."""

@final
class Room:
    """An array of whole numbers that a kernel writes."""

    def __new__(cls, array: npt.NDArray[np.integer] | WriteableBuffer, item_bytes: int) -> Room:
        """Hold an array of one dimension; raises ValueError for items that are no integers of so many bytes."""
