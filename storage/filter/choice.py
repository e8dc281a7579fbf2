"""A filter as kernels take it, its *choice*: that of a pull as an object, that of a search as native i64 at an address.

| index | content |
|---|---|
| 0 | EVERYTHING, BY_TAG, or BY_EXPRESSION |
| 1 | how many codes, or names of properties, follow |
| 2 | the address of the texts, to which positions refer |
| 3 | how many steps an expression has |
| 4 | whether extension units may speak of the filter, so that the kernel has to leave them alone |
| 5 … | of tags: their hashes, unsigned 32 bits |
| 5 … | of an expression: of each name its position and length, then the steps, six numbers each |

A step computes one condition of an expression, or joins those that are computed; see
:mod:`storage.kernels.expression`.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from storage.kernels import pulls
from storage.kernels.pulls import BY_EXPRESSION, BY_TAG, EVERYTHING
from storage.kernels.sql92 import Program

__all__ = ["BY_EXPRESSION", "BY_TAG", "EVERYTHING", "Choice", "choice_of_tags"]

KIND = 0
COUNT = 1
TEXTS = 2
STEP_COUNT = 3
HAS_BITS = 4
FIRST = 5

NAME_LENGTH = 2
STEP_LENGTH = 6
"""Numbers of a name, and of a step: what it does, the number of the property, and what it needs besides."""

MOST_NAMES = 8
MOST_STEPS = 256
DEEPEST = 30
"""Outcomes that wait to be joined."""


class Choice(pulls.Choice):
    """A choice and the memory that it lies in; `address` holds as long as it does, 0 for one that is no such table."""

    __slots__ = ("_numbers", "_texts", "address")

    def __init__(
        self,
        kind: int,
        numbers: Sequence[int] = (),
        *,
        count: int = 0,
        texts: bytes = b"",
        steps: int = 0,
        has_bits: bool = False,
        program: Program | None = None,
        has_address: bool = True,
    ) -> None:
        """Lay out what the module's table says; ``numbers`` are those from the fifth on."""
        super().__init__(kind, np.array(numbers if kind == BY_TAG else (), np.uint32), program, has_bits)
        self._texts = np.frombuffer(texts + b"\0", np.uint8)
        self._numbers = np.array([kind, count, self._texts.ctypes.data, steps, has_bits, *numbers], np.int64)
        self.address: int = self._numbers.ctypes.data if has_address else 0


def choice_of_tags(codes: Iterable[int]) -> Choice:
    """The choice of messages by the hashes of their tags."""
    codes = list(codes)
    return Choice(BY_TAG, codes, count=len(codes))


CHOICE_OF_EVERYTHING = Choice(EVERYTHING)
