"""SQL92 expressions over the properties of a message, compiled to steps and evaluated without making an object.

A program is built step by step, in the order in which the steps are taken. Each lays one outcome on a stack; some take
those of the steps before from there first.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer

from storage.kernels.region import Region

FALSE: Final = 0
"""What an expression, or a condition in it, comes to for a message; only TRUE delivers it."""
TRUE: Final = 1
UNKNOWN: Final = 2
FAILED: Final = 3
"""A text that had to be read as a number or as a truth value is none."""

BELOW: Final = 1
"""Where the left side of a comparison may stand to the right one."""
SAME: Final = 2
ABOVE: Final = 4

ANYWHERE: Final = 0
"""Where a text is searched for."""
AT_START: Final = 1
AT_END: Final = 2

PROPERTY: Final = 0
"""What a side of a comparison is, which goes with a name or a value; with OUTCOME goes None."""
TEXT: Final = 1
INT32: Final = 2
INT64: Final = 3
DOUBLE: Final = 4
OUTCOME: Final = 5

LONGEST_PROPERTIES: Final = 32767
"""Bytes of the properties of a stored message at most."""

TRIMMED: Final[str]
"""The characters that Java cuts from both ends of a double."""

@final
class Program:
    """A compiled expression; shared by threads once it is finished."""

    def __new__(cls, names: Iterable[str]) -> Program:
        """Begin a program over properties of these names, which are ASCII."""
    def constant(self, outcome: int) -> None:
        """Lay an outcome on the stack."""
    def truth(self, name: str) -> None:
        """Lay there whether a property is a truth value: UNKNOWN where it is missing, else FALSE."""
    def compare(self, stands: int, left_kind: int, left: Any, right_kind: int, right: Any) -> None:
        """Compare two sides: TRUE where the left one stands to the right one as said.

        Those of kind OUTCOME are taken from the stack, where the right one lies above the left one.
        """
    def search(self, where: int, kind: int, subject: str, wanted: str, is_negated: bool) -> None:
        """Look for a text in another, or in a property; FALSE where that is missing."""
    def look_up(self, name: str, texts: Iterable[str], is_negated: bool) -> None:
        """Whether a property is one of some texts; UNKNOWN where it is missing."""
    def negate(self) -> None:
        """Turn the uppermost outcome round."""
    def forget(self) -> None:
        """Make the uppermost outcome UNKNOWN."""
    def ask_unknown(self, is_negated: bool) -> None:
        """Lay whether the uppermost outcome is UNKNOWN in its place."""
    def join(self, is_any: bool) -> int:
        """Join the two uppermost outcomes by AND, or by OR; the number of the step, for :meth:`land`."""
    def land(self, join: int) -> None:
        """Let the step that follows be the next one where the outcome of a join is decided."""
    def finish(self) -> None:
        """Add no more steps; raises ValueError unless one outcome lies on the stack."""
    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """What the expression says of a message: None for UNKNOWN. Raises FilterEvaluationError where it fails."""
    def decide(self, properties: ReadableBuffer) -> int:
        """What it says of a message with this block of properties: FALSE, TRUE, UNKNOWN or FAILED."""

def decide_records(
    program: Program,
    region: Region,
    positions: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    outcomes: npt.NDArray[np.uint8],
) -> None:
    """What an expression says of each of some messages, whose blocks of properties lie in a region.

    Around a block a record must lie: ValueError is raised for one that does not lie in the region, or at its start.
    """

def in_order(text: str) -> tuple[int, bytes]:
    """The key by which texts are ordered where they are looked up: shorter ones first."""

def integer_of(text: str, bits: int) -> int:
    """The number that `Integer.parseInt` reads, or for 64 bits `Long.parseLong`. Raises FilterEvaluationError."""

def double_of(text: str) -> float:
    """The number that `Double.parseDouble` reads. Raises FilterEvaluationError."""
