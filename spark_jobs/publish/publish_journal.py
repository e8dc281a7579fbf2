"""What a publishing is about to do, so that the next run can end it after a kill at any moment.

One msgpack file in the work directory, written whole before the first rename and never changed: the inodes
that the names have show how far the renames got.
"""

from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import StoreError
from spark_jobs.run.work_directory import write_whole
from storage.files.direct_writer import fsync_directory

VERSION: Final = 1


class JournalEntry(msgspec.Struct, frozen=True):
    """One thing that is published: the inodes of the new and, if there is one, of the old."""

    name: str
    staged: str
    new: int
    old: int | None


class Journal(msgspec.Struct, frozen=True):
    """`root` is the inode of the store's directory; `lock` are inode and time of the last change of its lock file.

    `source` is the caller's name for what the new was made from.
    """

    version: int
    store: str
    root: int
    lock: tuple[int, int]
    source: str
    time: str
    entries: tuple[JournalEntry, ...]


def write_journal(path: Path, journal: Journal) -> None:
    """Write a journal so that it is there whole or not at all, even after a power failure."""
    write_whole(path, msgspec.msgpack.encode(journal))
    fsync_directory(path.parent)


def read_journal(path: Path) -> Journal | None:
    """The journal of a publishing that was not ended, None if there is none; StoreError where it is no journal."""
    try:
        journal = msgspec.msgpack.decode(path.read_bytes(), type=Journal)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(
            path,
            what=f"is not a journal of a publishing ({error}); look for names with .new- and .bak- in the "
            "store, restore by hand what is missing, then remove this file",
        ) from error
    if journal.version != VERSION:
        raise StoreError(path, what="was written by another version, finish it with that one: version",
                         expected=VERSION, found=journal.version)  # fmt: skip
    return journal


def remove_journal(path: Path) -> None:
    """The publishing has ended, and that is known; nothing is done where there is no journal."""
    if path.exists():
        path.unlink()
        fsync_directory(path.parent)
