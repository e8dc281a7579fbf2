"""A filter as the kernel of a pull takes it: native i64 at an address, its *choice*.

| index | content |
|---|---|
| 0 | EVERYTHING, or BY_TAG |
| 1 | how many codes follow |
| 2 … | hashes of the tags that are wanted, unsigned 32 bits |
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

EVERYTHING = 0
BY_TAG = 1
COUNT = 1
FIRST_CODE = 2

Choice = npt.NDArray[np.int64]


def choice_of_tags(codes: Iterable[int]) -> Choice:
    """The choice of messages by the hashes of their tags."""
    codes = list(codes)
    return np.array([BY_TAG, len(codes), *codes], np.int64)


CHOICE_OF_EVERYTHING: Choice = np.array([EVERYTHING, 0], np.int64)
