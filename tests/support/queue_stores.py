"""Stores of queues for tests: opened from what `store_writer` left behind, or written unit by unit."""

from collections.abc import Sequence
from pathlib import Path

from oracles import packed
from storage.log.commit_log import CommitLog
from storage.queue.queue_store import QueueStore
from store_files import write_file

PRE_BLANK_UNIT = (0, 0x7FFFFFFF, 0)


def open_queues(root: Path, directories: Sequence[Path] = ()) -> tuple[QueueStore, CommitLog]:
    """The queues of a store and the log they point into."""
    log = CommitLog.open(directories or [root / "commitlog"])
    return QueueStore(root, log), log


def unit_bytes(physical_offset: int, size: int, tags_code: int) -> bytes:
    """The 20 bytes of a unit."""
    return packed(physical_offset, 8) + packed(size, 4) + packed(tags_code, 8)


def write_units(directory: Path, start: int, units: Sequence[tuple[int, int, int]], file_size: int) -> None:
    """One queue file, named by its byte offset `start`, with units from its beginning and zeros behind them."""
    content = b"".join(unit_bytes(*unit) for unit in units)
    write_file(directory / f"{start:020d}", file_size, {0: content})
