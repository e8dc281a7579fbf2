"""What one unit of a queue is worth, by the word of the record that it leads to.

A unit has no checksum: it is sound when the record behind it says this topic, queue and queue offset. Of a message that
left the log nothing can be asked any more, so its unit is believed where it fits those around it. Any other unit says
nothing, neither that the queue ends there nor that its message expired: it was damaged, never written, or left over
from a log that was cut (store-format §6.3). Sound units ascend by physical offset.
"""

from enum import Enum
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from protocol.message_layout import INT
from storage.files.waiting import Lookup
from storage.kernels.records import MAGIC, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET, SYS_FLAG
from storage.log.commit_log import CommitLog
from storage.log.segment_end import is_blank
from storage.queue.queue_record import QueueName
from storage.queue.unit_struct import FILLER_SIZE

EMPTY: Final = -3
"""Stands for the physical offset of a unit that is all zero."""

BROKEN: Final = -2
"""Stands for the physical offset of a unit that no broker writes: something was written there, and was damaged."""

FILLER: Final = -1
"""Stands for the physical offset of a filler unit, which belongs before the first message of the queue."""

Places = npt.NDArray[np.int64]


class Standing(Enum):
    """What a unit is worth."""

    SOUND = "leads to its message, or to where nothing of the log is left that could speak against it"
    EXPIRED = "its message is expired, or it is a filler: the queue begins behind it"
    DOUBTFUL = "says nothing: damaged, never written, or left over"


class JudgedUnits(Protocol):
    """The units of a queue by their numbers, which ascend without a gap but where a file is lost."""

    name: QueueName

    @property
    def log(self) -> CommitLog:
        """The log that the units point into."""
        ...

    @property
    def log_end(self) -> int:
        """The physical offset at which the log ends."""
        ...

    def standing(self, number: int) -> Lookup[Standing]:
        """What a unit is worth."""
        ...

    def physical_offset(self, number: int) -> Lookup[int]:
        """Physical offset in a unit as it stands in its file, or one of the numbers that stand for none."""
        ...

    def blocks(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The units [start, stop) file by file, ascending: of each file the first number, and the one behind its last.

        Of numbers that lie in no file there is no block.
        """
        ...

    def physical_offsets(self, first: int, stop: int) -> Lookup[Places]:
        """Physical offsets in the units of one block."""
        ...

    def claim(self, number: int) -> Lookup[int | None]:
        """The queue offset that the record of a unit claims; None without one."""
        ...


def places_of(units: npt.NDArray[Any], valid: npt.NDArray[np.bool_]) -> Places:
    """Physical offsets of units, of those that are not `valid` the number that stands for what they are."""
    places = units["physical_offset"].astype(np.int64)
    places[(places == 0) & (units["size"] == FILLER_SIZE)] = FILLER
    broken = np.flatnonzero(~valid)
    if broken.size:
        content = np.ascontiguousarray(units[broken]).view(np.uint8).reshape(broken.size, -1)
        places[broken] = np.where(content.any(axis=1), BROKEN, EMPTY)
    return places


def record_of_unit(log: CommitLog, physical_offset: int, size: int) -> Lookup[memoryview | Standing]:
    """The record that a valid unit leads to, its checksums unseen, or what the unit is worth where there is none.

    A unit that leads to a damaged record is believed where something of its head is left, and its size leads to the
    next one.
    """
    if not 0 <= physical_offset < log.end or size <= 0:
        return Standing.DOUBTFUL
    if physical_offset < log.minimum:  # where no record is cut in two
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
    following = yield from log.unchecked_record_at_lookup(behind)
    return Standing.DOUBTFUL if following is None else Standing.SOUND


def _has_head(log: CommitLog, physical_offset: int, size: int) -> Lookup[bool]:
    """Whether anything speaks for a damaged record at a physical offset: its size, its magic, or its own offset."""
    head = yield from log.record_lookup(physical_offset, SYS_FLAG)
    if head is None:
        return False
    own = int.from_bytes(head[PHYSICAL_OFFSET:SYS_FLAG], "big") == physical_offset
    return own or INT.unpack_from(head)[0] == size or INT.unpack_from(head, MAGIC)[0] in (MAGIC_V1, MAGIC_V2)
