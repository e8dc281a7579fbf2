"""The names under which things are published into a store, their order, and the backups that are left there.

    NAME.new-TIME   the new, until it takes its place (only while a publishing is under way or was killed)
    NAME.bak-TIME   the old, from then on

TIME is a moment as yyyyMMddHHmmss in UTC, the same for all that is published together.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from protocol.errors import ConfigError, StoreError
from storage.files.direct_writer import fsync_directory
from storage.layout.backup_names import BACKUP, INCOMING, KEPT, TIME
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CHECKPOINT, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX

ORDER: Final = (CONSUME_QUEUE_EXT, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX, CHECKPOINT)
"""Queue units point into the extension, and index files are kept or deleted by the checkpoint."""
FILES: Final = frozenset({CHECKPOINT})
"""The names of files; all others are directories."""


def incoming_path(store: Path, name: str, time: str) -> Path:
    """Where the new waits in the store for its place."""
    return store / f"{name}.{INCOMING}-{time}"


def backup_path(store: Path, name: str, time: str) -> Path:
    """Where the old is kept."""
    return store / f"{name}.{BACKUP}-{time}"


def check_time(time: str) -> None:
    """Raise ConfigError where a text is not the time of a backup."""
    if not TIME.fullmatch(time):
        raise ConfigError(f"{time!r} is not the time of a backup, expected yyyyMMddHHmmss, 14 digits")


def find_backups(store: Path, time: str | None = None) -> list[Path]:
    """The backups that publishing left in a store, of one time or all, in the order of their names."""
    if time is not None:
        check_time(time)
    return sorted(path for path, kind, found in _kept(store) if kind == BACKUP and time in (None, found))


def find_unfinished(store: Path) -> list[Path]:
    """Find what a publishing left on its way in a store; without a journal it may be the old or the new."""
    return sorted(path for path, kind, _ in _kept(store) if kind == INCOMING)


def drop_backups(store: Path, time: str | None = None) -> list[Path]:
    """Delete the backups of one time, or all, and return what they were; nothing else of the store is touched.

    Raises StoreError, and deletes nothing, where a backup is the only one left of its kind.
    """
    found = find_backups(store, time)
    for path in found:
        name = path.name.split(".", 1)[0]
        if not os.path.lexists(store / name):
            raise StoreError(path, what=f"is kept, for {store / name} is missing: run the rebuild again, "
                             "or rename the backup back")  # fmt: skip
    try:
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    except OSError as error:
        raise StoreError(path, what=f"cannot be deleted: {error}") from error
    fsync_directory(store)
    return found


def _kept(store: Path) -> Iterator[tuple[Path, str, str]]:
    """Find everything with one of our names, as (path, "bak" or "new", time)."""
    try:
        entries = list(os.scandir(store))
    except OSError as error:
        raise StoreError(store, what=f"cannot be listed: {error.strerror}") from error
    for entry in entries:
        match = KEPT.fullmatch(entry.name)
        if match is not None and match[1] in ORDER and _is_right_kind(entry, match[1]):
            yield Path(entry.path), match[2], match[3]


def _is_right_kind(entry: "os.DirEntry[str]", name: str) -> bool:
    if name in FILES:
        return entry.is_file(follow_symlinks=False)
    return entry.is_dir(follow_symlinks=False)
