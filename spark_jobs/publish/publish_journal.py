"""What a publishing is about to do, so that the next run can end it after a kill at any moment.

One msgpack file in the work directory, written whole before the first rename and never changed: the inodes
that the names have show how far the renames got. It counts only if it belongs to who runs the job, and what it names is
one of the things that jobs publish, staged by a run beside it: nothing else is ever moved by what a file says.
"""

from pathlib import Path, PurePath
from typing import Final

import msgspec

from protocol.errors import StoreError
from spark_jobs.publish.publish_names import ORDER
from spark_jobs.run.work_directory import RUN_NAME, STAGED, write_whole
from storage.files.direct_writer import fsync_directory
from storage.files.own_directories import read_own
from storage.layout.backup_names import TIME

VERSION: Final = 1


class JournalEntry(msgspec.Struct, frozen=True):
    """One thing that is published: where it was staged, and the inodes of the new and, if there is one, of the old."""

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
    """The journal of a publishing that was not ended, or None.

    Raises StoreError where it is no journal, or names what no job publishes; PlantedFile for one of somebody else.
    """
    try:
        journal = msgspec.msgpack.decode(read_own(path), type=Journal)
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
    names = [entry.name for entry in journal.entries]
    if not set(names) <= set(ORDER) or len(set(names)) < len(names) or not TIME.fullmatch(journal.time):
        raise StoreError(path, what="names what no job publishes: remove it; names and time",
                         expected=f"some of {', '.join(ORDER)}", found=f"{names!r}, {journal.time!r}")  # fmt: skip
    for entry in journal.entries:
        staged_path(path, entry)
    return journal


def staged_path(journal: Path, entry: JournalEntry) -> Path:
    """Where a thing was staged, beside the journal wherever that lies now; StoreError for any other place."""
    run, directory, name = ("", *PurePath(entry.staged).parts)[-3:]
    if directory != STAGED or name != entry.name:
        raise StoreError(journal, what=f"names {entry.staged!r}, where no job stages {entry.name!r}: remove it")
    return journal.parent.joinpath(*filter(RUN_NAME.fullmatch, [run]), directory, name)


def remove_journal(path: Path) -> None:
    """The publishing has ended, and that is known; nothing is done where there is no journal."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    fsync_directory(path.parent)
