"""Units for which the log has no message of their queue: what they are, and whether that is as it should be."""

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from spark_jobs.verify.findings import STRAY_UNIT, UNIT, Discrepancies, FoundAt
from spark_jobs.verify.log_table import LogTable
from spark_jobs.verify.unit_files import UnitFiles, Units
from storage.queue.unit_struct import FILLER_SIZE

STRAY_KINDS: Final = ("expired", "fillers", "lost", "stand_ins", "beyond")
"""What is counted: units of messages that have expired; fillers before the first; units that point to where the log is
lost; those that stand in for lost ones; and, at the end, those that point beyond the log's end."""

Flags = npt.NDArray[np.bool_]


class Neighbours(NamedTuple):
    """The units of messages right before and behind (one each, or none), and whether nothing comes before or behind."""

    before: Units
    behind: Units
    is_front: bool
    is_tail: bool


def judge_strays(
    units: Units,
    place: int,
    files: UnitFiles,
    around: Neighbours,
    log: LogTable,
    findings: Discrepancies,
    counts: dict[str, int],
) -> list[int]:
    """Judge units that stand from a place on; what is as it should be is counted, the rest are findings.

    Returns the places of those that point to no message of the queue.
    """
    offsets = units["physical_offset"].astype(np.int64)
    written = (offsets >= 0) & (units["size"] > 0)
    filler = (offsets == 0) & (units["size"] == FILLER_SIZE) & (units["tags_code"] == 0)
    expired = written & ~filler & (offsets < log.minimum) & around.is_front
    lost = written & ~filler & log.are_lost(offsets)
    beyond = written & (offsets >= log.end) & around.is_tail
    stands_in = _stand_ins(units, offsets, filler, around, log)
    kinds = (expired, filler & around.is_front, lost, stands_in, beyond)
    explained = np.zeros(len(units), np.bool_)
    for name, flags in zip(STRAY_KINDS, kinds, strict=True):
        counts[name] = counts.get(name, 0) + int((flags & ~explained).sum())
        explained |= flags
    zeros = ~units.view(np.uint8).reshape(len(units), -1).any(axis=1)
    if not around.is_tail:
        _say_zeros(place, files, np.flatnonzero(zeros & ~explained), findings)
    strays: list[int] = np.flatnonzero(~explained & ~zeros).tolist()
    for i in strays:
        path, position = files.where(place + i)
        found = f"size {units['size'][i]}, tags code {units['tags_code'][i]}, which is no message of this queue"
        expected = "a message of this queue" if not around.is_tail else "the end of the queue"
        findings.add(STRAY_UNIT, FoundAt(path, f"unit {place + i}", position, int(offsets[i])), expected, found)
    return [place + i for i in strays]


def _stand_ins(units: Units, offsets: npt.NDArray[np.int64], filler: Flags, around: Neighbours, log: LogTable) -> Flags:
    """Which units stand in for lost messages, as a rebuild writes them (:mod:`storage.build.queue_units`)."""
    start = int(around.before["physical_offset"][0]) if around.before.size else log.minimum
    stop = int(around.behind["physical_offset"][0]) if around.behind.size else log.end
    if not log.loses_between(start, stop) and not (around.is_front and log.minimum < log.segment_size):
        return np.zeros(len(units), np.bool_)
    found: Flags = filler.copy() if not around.is_front else np.zeros(len(units), np.bool_)
    for neighbour in (around.before, around.behind):
        if neighbour.size:
            found |= units == neighbour[0]
    out_of_segment = log.segment_size - offsets % log.segment_size + 1
    unreadable: Flags = (offsets == start) & (units["size"] == out_of_segment) & (units["tags_code"] == 0)
    return found | unreadable


def _say_zeros(place: int, files: UnitFiles, zeros: npt.NDArray[np.int64], findings: Discrepancies) -> None:
    for run in np.split(zeros, np.flatnonzero(np.diff(zeros) != 1) + 1):
        if run.size:
            first, count = place + int(run[0]), int(run.size)
            path, position = files.where(first)
            name = f"unit {first}" if count == 1 else f"units {first} to {first + count - 1}"
            findings.add(UNIT, FoundAt(Path(path), name, position), "units, for others follow", "zeros", count)
