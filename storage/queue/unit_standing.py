"""The standing of a unit: whether it leads to its message, by the record at the place that it points to.

A unit has no checksum: it is sound if the record has the same topic, queue and queue offset. If the message has left
the log there is no record to compare with, and the unit is expired if it fits those around it. Any other unit is
doubtful: it was damaged, never written, or left over from a log that was cut (store-format §6.3), and it does not show
that the queue ends there or that its message expired. Sound units ascend by physical offset.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Reversible
from enum import Enum
from typing import Any, Final, TypeAlias

from protocol.message_layout import INT
from storage.arrays import np, npt
from storage.files.waiting import Lookup
from storage.kernels.records import MAGIC, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET, SYS_FLAG
from storage.log.commit_log import CommitLog
from storage.log.segment_end import is_blank
from storage.queue._damaged_run import DamagedRun
from storage.queue.queue_files import QueueFiles
from storage.queue.queue_record import QueueName
from storage.queue.unit_struct import FILLER_SIZE

EMPTY: Final = -3
"""The number that replaces the physical offset of a unit that is all zero."""

BROKEN: Final = -2
"""The number that replaces the physical offset of a unit with values that no broker writes, which is damaged."""

FILLER: Final = -1
"""The number that replaces the physical offset of a filler unit, which is before the first message of the queue."""

Places: TypeAlias = "npt.NDArray[np.int64]"


class Standing(Enum):
    """Whether a unit can be trusted."""

    SOUND = "leads to its message, or to where nothing of the log is left that could speak against it"
    EXPIRED = "its message is expired, or it is a filler: the queue begins behind it"
    DOUBTFUL = "says nothing: damaged, never written, or left over"
    LEFT_OVER = "behind the queue's end, of a log that was cut: only all units there together show it"


class JudgedUnits:
    """The units of a queue in its files by their numbers, which have no gaps except where a file is lost."""

    __slots__ = ()
    name: QueueName
    """Topic and queue id as records spell them."""
    unit_size: int
    """Bytes of a unit."""
    has_batches: bool
    """Whether a record of the queue may contain several messages, so that numbers are not queue offsets."""

    @property
    @abstractmethod
    def log(self) -> CommitLog:
        """The log that the units point into."""

    @property
    @abstractmethod
    def files(self) -> QueueFiles:
        """The files as they were listed."""

    @abstractmethod
    def around(self, queue_offset: int) -> DamagedRun:
        """Return the run of queue offsets around one whose unit leads to no message; waits for the disk."""

    @abstractmethod
    def standing(self, number: int) -> Lookup[Standing]:
        """Return the standing of a unit."""

    @abstractmethod
    def physical_offset(self, number: int) -> Lookup[int]:
        """Return the physical offset in a unit, or one of EMPTY, BROKEN and FILLER."""

    @abstractmethod
    def blocks(self, start: int, stop: int) -> Reversible[tuple[int, int]]:
        """Return the units in [start, stop) file by file: the first number of each block, and the one after its last.

        Numbers that are in no file, or in a hole of one, are in no block.
        """

    @abstractmethod
    def physical_offsets(self, first: int, stop: int) -> Lookup[Places]:
        """Return the physical offsets in the units of one block, as `physical_offset` does."""

    @abstractmethod
    def claim(self, number: int) -> Lookup[int | None]:
        """Return the queue offset in the record of a unit; None without such a record."""


def are_valid(units: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which units have values that a broker writes, of a plain queue or of batches; others are damaged or not written.

    A broker's recovery ends a queue at the first unit that is not valid.
    """
    valid: npt.NDArray[np.bool_] = (units["physical_offset"] >= 0) & (units["size"] > 0)
    if "batch_size" in (units.dtype.names or ()):
        valid &= (units["base_offset"] >= 0) & (units["batch_size"] > 0)
    return valid


def is_implausible(log: CommitLog, physical_offset: int, size: int) -> bool:
    """Whether a unit has values that no unit in its queue's range can have, so that its tag cannot be trusted."""
    return size <= 0 or not log.minimum <= physical_offset < log.end


def places_of(units: npt.NDArray[Any]) -> Places:
    """Return the physical offsets of units, with EMPTY, BROKEN or FILLER for those that lead nowhere."""
    places = units["physical_offset"].astype(np.int64)
    places[(places == 0) & (units["size"] == FILLER_SIZE)] = FILLER
    broken = np.flatnonzero(~are_valid(units))
    if broken.size:
        content = np.ascontiguousarray(units[broken]).view(np.uint8).reshape(broken.size, -1)
        places[broken] = np.where(content.any(axis=1), BROKEN, EMPTY)
    return places


def record_of_unit(log: CommitLog, physical_offset: int, size: int) -> Lookup[memoryview | Standing]:
    """Return the record that a valid unit leads to, or the unit's standing if there is none.

    The record's checksums are not verified. A unit that leads to a damaged record is sound if a part of the record's
    head is intact, and the next record starts where the unit's size says.
    """
    if not 0 <= physical_offset < log.end or size <= 0:
        return Standing.DOUBTFUL
    if physical_offset < log.minimum:  # the log begins with a whole record
        return Standing.EXPIRED if physical_offset + size <= log.minimum else Standing.DOUBTFUL
    record = yield from log.unchecked_record_at_lookup(physical_offset)
    if record is not None:
        return record
    segment = log.segment_of(physical_offset)
    if segment is None:  # a file of the log is lost
        return Standing.SOUND
    behind = physical_offset + size
    if behind > segment.end or not (yield from _has_head(log, physical_offset, size)):
        return Standing.DOUBTFUL
    if behind == segment.end or is_blank(
        segment.file, behind - segment.base_offset, segment.boundary - segment.base_offset
    ):
        return Standing.SOUND
    start = yield from log.record_start_lookup(behind)
    following = yield from log.unchecked_record_at_lookup(start)
    return Standing.DOUBTFUL if following is None else Standing.SOUND


def _has_head(log: CommitLog, physical_offset: int, size: int) -> Lookup[bool]:
    """Whether a damaged record at a physical offset has the right size, magic or physical offset."""
    head = yield from log.record_lookup(physical_offset, SYS_FLAG)
    if head is None:
        return False
    own = int.from_bytes(head[PHYSICAL_OFFSET:SYS_FLAG], "big") == physical_offset
    return own or INT.unpack_from(head)[0] == size or INT.unpack_from(head, MAGIC)[0] in (MAGIC_V1, MAGIC_V2)
