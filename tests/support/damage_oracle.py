"""What a damaged store still has to answer: by loops over bytes, from the reference documents alone.

Nothing here imports the project.
"""

from collections.abc import Iterable

from oracles import BLANK_MAGIC, Record, property_crc_holds, read_record, signed

TOLERATED_MS = 1000
MOST_CANDIDATES = 16


def intact(data: bytes, position: int, base: int = 0) -> Record | None:
    """The record at a position whose place, lengths and checksums all hold."""
    record = read_record(data, position, base + position)
    if record is None or not property_crc_holds(data[position : position + record.total_size]):
        return None
    return record


def is_blank(data: bytes, position: int) -> bool:
    """Whether a BLANK starts there."""
    return len(data) - position >= 8 and signed(data, position + 4, 4) % 2**32 == BLANK_MAGIC


def valid_end(data: bytes, base: int = 0, left_over: Iterable[int] = ()) -> tuple[int, list[tuple[int, int]]]:
    """Where the valid data of a last segment end, and the damage before: positions, and [start, stop) in the log."""
    position, newest, damage = 0, 0, []
    while True:
        record = intact(data, position, base)
        if record is not None:
            position, newest = position + record.total_size, record.store_timestamp
            continue
        if is_blank(data, position):
            return position, damage
        following = _continuation(data, position, base, newest, set(left_over))
        if following is None:
            return position, damage
        damage.append((base + position, base + following))
        position = following


def _continuation(data: bytes, position: int, base: int, newest: int, left_over: set[int]) -> int | None:
    shape = read_record(data, position, base + position, check_crc=False)
    if shape is not None and is_blank(data, position + shape.total_size):
        return position + shape.total_size
    starts = [position + shape.total_size] if shape is not None else []
    found = (at for at in range(position + 1, len(data) - 90) if intact(data, at, base))
    starts += [at for at, _ in zip(found, range(MOST_CANDIDATES), strict=False)]
    for at in starts:
        record = intact(data, at, base)
        if record and record.store_timestamp >= newest - TOLERATED_MS and base + at not in left_over:
            return at
    return None
