"""Make a staged file or directory fit to take its place in a store: on the disk, and its owner's."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from protocol.errors import StoreError
from storage.files.direct_writer import fsync_directory

FILE_MODES = 0o666


def settle_tree(root: Path, like: os.stat_result, *, synced: bool) -> None:
    """Fsync a file, or a directory with all that is in it, and give all of it the owner and the rights of `like`.

    A broker runs as a user of its own and opens every file for writing. Only what this process made is given away:
    files with a second name, and files of others, are in the store already and stay as they are. Those that are
    `synced` already are not fsynced again.
    """
    rights = stat.S_IMODE(like.st_mode)
    for path, status in _walk(root):
        if stat.S_ISDIR(status.st_mode):
            _settle(path, status, like, rights, needs_sync=True)
        elif not stat.S_ISREG(status.st_mode):
            raise StoreError(path, what="is neither a file nor a directory, nothing of it was published")
        elif status.st_nlink == 1 and status.st_uid == os.geteuid():
            _settle(path, status, like, rights & FILE_MODES, needs_sync=not synced)
        elif not synced:
            _settle(path, status, status, stat.S_IMODE(status.st_mode), needs_sync=True)
    fsync_directory(root.parent)


def give_to_owner(descriptor: int, like: os.stat_result) -> None:
    """Give an open file the owner of `like`, and its group where that is allowed; OSError if it stays another's."""
    status = os.fstat(descriptor)
    if status.st_uid != like.st_uid:
        os.fchown(descriptor, like.st_uid, like.st_gid)
    elif status.st_gid != like.st_gid:
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, -1, like.st_gid)


def _walk(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below a path and itself, what is in a directory before the directory."""
    status = os.lstat(root)
    if stat.S_ISDIR(status.st_mode):
        for name in os.listdir(root):
            yield from _walk(root / name)
    yield root, status


def _settle(path: Path, status: os.stat_result, like: os.stat_result, rights: int, *, needs_sync: bool) -> None:
    belongs = (status.st_uid, status.st_gid) == (like.st_uid, like.st_gid)
    if belongs and stat.S_IMODE(status.st_mode) == rights and not needs_sync:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        give_to_owner(descriptor, like)
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != rights:
            os.fchmod(descriptor, rights)
        os.fsync(descriptor)
    except PermissionError as error:
        whose = f"cannot be given to the store's owner (user {like.st_uid})"
        way_out = "run this as that user or as root" if os.geteuid() else "run this as that user"
        raise StoreError(path, what=f"{whose}: {way_out}") from error
    finally:
        os.close(descriptor)
