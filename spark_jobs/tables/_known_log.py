"""Whether a log is the one that a table was made of so far: what the table keeps of it is held against its bytes."""

import hashlib
from typing import Final

from protocol.errors import ConfigError, StoreError
from spark_jobs.read.log_ranges import LogRange, LogRanges
from spark_jobs.tables._table import KnownLog, Position

MARKED_BYTES: Final = 4096
"""Bytes at the start of a segment, and before a position, of which there is a digest."""


def position_at(found: LogRanges, physical_offset: int) -> Position:
    """The position behind a record of a log; raises StoreError where the log cannot be read."""
    segment = _segment_before(found, physical_offset)
    assert segment is not None, "something was read up to there"
    return Position(physical_offset, _mark(segment, physical_offset))


def check_log(found: LogRanges, position: Position, table: str) -> None:
    """Raise ConfigError for another log than the table's, and for one that was truncated.

    Where the segment has expired in which the last run ended, there is nothing that could be compared.
    """
    at, mark = position.physical_offset, position.mark
    if found.end < at:
        raise ConfigError(
            f"the log ends at {found.end}, but {table} has its messages up to {at}: it was truncated, or it is the log "
            "of another store; export into another table"
        )
    segment = _segment_before(found, at)
    if segment is None:
        return
    if segment.base_offset != mark.base_offset or _mark(segment, at) != mark:
        raise ConfigError(
            f"{segment.path} is not what {table} has the messages of up to {at}: it is the log of another store, or "
            "was truncated and written anew; export into another table"
        )


def _segment_before(found: LogRanges, physical_offset: int) -> LogRange | None:
    """The segment that holds the byte before a physical offset, or None."""
    inside = (each for each in found.ranges if each.base_offset < physical_offset <= each.base_offset + each.stop)
    return next(inside, None)


def _mark(segment: LogRange, physical_offset: int) -> KnownLog:
    end = physical_offset - segment.base_offset
    head = _digest(segment, 0, min(end, MARKED_BYTES))
    return KnownLog(segment.base_offset, head, _digest(segment, max(end - MARKED_BYTES, 0), end))


def _digest(segment: LogRange, start: int, stop: int) -> str:
    piece = memoryview(bytearray(stop - start))
    source = segment.source()
    try:
        filled = 0
        while filled < len(piece) and (count := source.read_into(piece[filled:], start + filled)):
            filled += count
    except OSError as error:
        raise StoreError(segment.path, what=f"cannot be read: {error.strerror}") from error
    finally:
        source.close()
    return hashlib.sha256(piece[:filled]).hexdigest()
