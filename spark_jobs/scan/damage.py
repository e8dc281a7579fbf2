"""The kinds of damage that a scan finds in a log, each with what was expected there and what is."""

from collections.abc import Iterable
from typing import Final

from spark_jobs.run.report import Damage
from storage.doctor.words import damaged_record
from storage.log.damaged_ranges import ZEROS

MISSING: Final = "a segment"

__all__ = ["MISSING", "ZEROS", "behind_end", "missing_segment", "total_length", "unreadable"]


def unreadable(path: str, physical_offset: int, length: int, code: int) -> Damage:
    """Bytes where the log does not go on; `code` is ZEROS or of :mod:`storage.kernels.records`."""
    return Damage(path, physical_offset, length, *damaged_record(code))


def missing_segment(path: str, physical_offset: int, length: int) -> Damage:
    """A stretch of the log that no file holds; `path` is the directory."""
    return Damage(path, physical_offset, length, MISSING, "no file")


def behind_end(path: str, physical_offset: int, length: int) -> Damage:
    """What lies behind the place where a broker is going to cut its log."""
    return Damage(
        path, physical_offset, length, "nothing", "records behind damage, which a broker's recovery is going to cut off"
    )


def total_length(damages: Iterable[Damage]) -> int:
    """Bytes passed over in all."""
    return sum(damage.length for damage in damages)
