"""Units for which the log has no message of their queue: what they are, and whether that is as it should be."""

from typing import Final, NamedTuple

import numpy as np

from spark_jobs.verify.findings import STRAY_UNIT, UNIT, Discrepancies, FoundAt
from spark_jobs.verify.log_table import Flags, LogTable, Numbers
from spark_jobs.verify.unit_files import UnitFiles, Units, are_zeros, zero_runs
from storage.doctor.words import LEFT_OVER_UNIT, MISPLACED_UNIT, unit_name
from storage.queue.unit_struct import FILLER_SIZE

STRAY_KINDS: Final = ("expired", "fillers", "lost", "stand_ins", "beyond")
"""What is counted: units of messages that have expired; fillers before the first; units that point to where the log is
lost; those that stand in for lost ones; and, at the end, those that point beyond the log's end."""


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
    filler = (offsets == 0) & (units["size"] == FILLER_SIZE) & (units["tags_code"] == 0)
    written = (offsets >= 0) & (units["size"] > 0) & ~filler
    kinds = {
        "expired": written & (offsets < log.minimum) & around.is_front,
        "fillers": filler & around.is_front,
        "lost": written & log.are_lost(offsets),
        "stand_ins": _stand_ins(units, offsets, filler, around, log),
        "beyond": written & (offsets >= log.end) & around.is_tail,
    }
    zeros = are_zeros(units)
    explained = np.zeros(len(units), np.bool_)
    for name, flags in kinds.items():
        counts[name] += int((flags & ~explained).sum())
        explained |= flags
    if not around.is_tail:
        for first, count, name in zero_runs(place, zeros & ~explained):
            path, position = files.where(place + first)
            findings.add(UNIT, FoundAt(path, name, position), "units, for others follow", "zeros", count)
    strays: list[int] = np.flatnonzero(~explained & ~zeros).tolist()
    words = LEFT_OVER_UNIT if around.is_tail else MISPLACED_UNIT
    for i in strays:
        path, position = files.where(place + i)
        found = f"{words.found} (size {units['size'][i]}, tags code {units['tags_code'][i]})"
        findings.add(STRAY_UNIT, FoundAt(path, unit_name(place + i), position, int(offsets[i])), words.expected, found)
    return [place + i for i in strays]


def _stand_ins(units: Units, offsets: Numbers, filler: Flags, around: Neighbours, log: LogTable) -> Flags:
    """Which units stand in for lost messages, as a rebuild writes them (:mod:`storage.build.queue_units`)."""
    start = int(around.before["physical_offset"][0]) if around.before.size else log.minimum
    stop = int(around.behind["physical_offset"][0]) if around.behind.size else log.end
    if not log.loses_between(start, stop) and not (around.is_front and log.minimum < log.segment_size):
        return np.zeros(len(units), np.bool_)
    found: Flags = filler & (not around.is_front)
    for neighbour in (around.before, around.behind):
        if neighbour.size:
            found |= units == neighbour[0]
    out_of_segment = log.segment_size - offsets % log.segment_size + 1
    found |= (offsets == start) & (units["size"] == out_of_segment) & (units["tags_code"] == 0)
    return found
