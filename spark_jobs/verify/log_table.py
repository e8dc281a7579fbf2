"""What the tasks of a verification must know of the log that was scanned: where it ends, and where its blocks lie."""

import os
from bisect import bisect_right
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from spark_jobs.build.place_entries import EntryBlock
from spark_jobs.run.work_directory import WorkDirectory, write_whole
from storage.build.existing_queue import ReadableLog

NAME: Final = "log.msgpack"

Flags = npt.NDArray[np.bool_]


class LogTable(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """The log as it was scanned: records from `minimum` up to `end`, without the `lost` ranges [from, to).

    `is_live`: a broker writes to the store; `may_lag`: what is missing at the end of queues and index may come yet.
    `segments` are base offsets and paths; `blocks` all blocks of index entries, in the order of the log.
    """

    minimum: int
    end: int
    lost: tuple[tuple[int, int], ...]
    segment_size: int
    is_live: bool
    may_lag: bool
    segments: tuple[tuple[int, str], ...]
    blocks: tuple[EntryBlock, ...]

    def write(self, work: WorkDirectory) -> None:
        """Leave it in the work directory."""
        write_whole(work.root / NAME, msgspec.msgpack.encode(self))

    @classmethod
    def read(cls, work: WorkDirectory) -> "LogTable":
        """As the driver left it."""
        return msgspec.msgpack.decode((work.root / NAME).read_bytes(), type=cls)

    @cached_property
    def extent(self) -> ReadableLog:
        """What can be read of the log."""
        return ReadableLog(self.minimum, self.end, self.lost)

    def are_lost(self, physical_offsets: npt.NDArray[Any]) -> Flags:
        """Which offsets lie where the log holds no intact records."""
        return self.extent.are_lost(physical_offsets)

    def loses_between(self, start: int, stop: int) -> bool:
        """Whether anything of [start, stop) is lost."""
        number = bisect_right(self._lost_ends, start)
        return number < len(self.lost) and self.lost[number][0] < stop

    @cached_property
    def _lost_ends(self) -> list[int]:
        return [end for _, end in self.lost]

    def expired_below(self) -> int:
        """Below which physical offset a broker has deleted segments since; `minimum` where none runs."""
        if not self.is_live:
            return self.minimum
        return next((base for base, path in self.segments if os.path.exists(path)), self.end)

    def where(self, physical_offset: int) -> tuple[str, int]:
        """The segment that a physical offset lies in, and the byte there."""
        number = max(bisect_right(self.segments, physical_offset, key=lambda segment: segment[0]) - 1, 0)
        base, path = self.segments[number]
        return path, physical_offset - base

    @cached_property
    def ranks(self) -> npt.NDArray[np.int64]:
        """Index entries before each block, and in all."""
        return np.cumsum([0, *(block.entries for block in self.blocks)], dtype=np.int64)
