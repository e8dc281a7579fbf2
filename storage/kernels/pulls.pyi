"""One pull over the units of a plain queue (store-format §5.4), as long as nothing odd is met.

Each unit takes the way of :func:`storage.query.get_message.get_message`: the limits, the filter, the record. A record
that is not there, not intact or not the queue's, a filler, a lost or present extension: all that is for the caller to
look at otherwise.
"""

from typing import Final, final

from _typeshed import ReadableBuffer
from typing_extensions import disjoint_base

from storage.kernels.sql92 import Program
from storage.kernels.store_view import FileView, LogView

MAXIMUM_FOUND: Final = 32
"""What a broker returns of one pull at most."""

EVERYTHING: Final = 0
BY_TAG: Final = 1
BY_EXPRESSION: Final = 2

ODD: Final = -1
"""Something met needs more than a kernel."""
UNITS_COLD: Final = -2
"""Units are not in memory."""
RECORD_COLD: Final = -3
"""A record is not in memory."""

@disjoint_base
class Choice:
    """How a filter chooses."""

    def __init__(
        self,
        kind: int,
        codes: ReadableBuffer | None = None,
        program: Program | None = None,
        has_bits: bool = False,
    ) -> None:
        """`codes` are of tags their hashes, `program` is of an expression.

        `has_bits` says that extension units may speak of the filter. Raises ValueError for an expression without one.
        """
    @property
    def kind(self) -> int:
        """EVERYTHING, BY_TAG or BY_EXPRESSION."""
    @property
    def program(self) -> Program | None:
        """The compiled expression."""
    @property
    def cost(self) -> int:
        """What deciding one message may take: steps and names of the expression, else 1."""
    @property
    def has_bits(self) -> bool:
        """Whether extension units may speak of the filter, so that a kernel has to leave them alone."""

@final
class Pulled:
    """What a pull found."""

    @property
    def passed(self) -> int:
        """Units that were gone through; else why the pull has to be made otherwise."""
    @property
    def records(self) -> list[memoryview]:
        """The records, slices of their segments' maps, ascending."""
    @property
    def decided(self) -> int:
        """Messages for which an expression was evaluated."""
    @property
    def cold_file(self) -> FileView | None:
        """The file of which something is not in memory."""
    @property
    def cold_position(self) -> int:
        """Position of the bytes that are not in memory."""
    @property
    def cold_length(self) -> int:
        """How many bytes are not in memory."""

def pull(
    log: LogView,
    file: FileView,
    position: int,
    first: int,
    stop: int,
    queue_id: int,
    topic: bytes,
    choice: Choice,
    queue_offset: int,
    scan: int,
    messages: int,
    record_bytes: int,
    tick: int,
) -> Pulled:
    """Pull from a queue offset on: up to `messages`, MAXIMUM_FOUND at most, and `record_bytes`; one at least.

    Up to `scan` units are scanned. Units `first` to `stop` are in the file from a position on; raises ValueError where
    the file is too short for them. Units around the scanned ones only show whether these are in order.
    """
