"""Check everything that could prevent a publishing, before anything of a store is changed."""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from spark_jobs.publish.publish_names import FILES, ORDER, backup_path, check_time, incoming_path
from storage.files.own_directories import kind_of, user_text

SAME_FILE_SYSTEM: Final = "the work directory must be on the store's file system: choose another one"
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Staged:
    """One finished thing that is to become `name` in the store; `synced` says that its files were fsynced already."""

    name: str
    path: Path
    synced: bool = False


def check_publishing(store: Path, staged: Sequence[Staged], time: str) -> None:
    """Raise StoreError where one of the things cannot be published; nothing is changed."""
    check_time(time)
    names = [each.name for each in staged]
    if not set(names) <= set(ORDER) or len(set(names)) < len(names):
        raise StoreError(store, expected=f"some of {', '.join(ORDER)}, each once", found=", ".join(names))
    try:
        root = os.stat(store)
    except FileNotFoundError:
        root = None
    if root is None or not os.access(store, os.W_OK | os.X_OK):
        raise StoreError(store, what="cannot be written to: make it writable, or write beside the store with --out")
    for each in staged:
        _check_staged(each, store, root)
        _check_target(store, each.name, root)
        for path in (incoming_path(store, each.name, time), backup_path(store, each.name, time)):
            status = _status(path)
            if status is not None:
                raise StoreError(path, what=f"exists already: move it away ({kind_of(status)}), nothing was changed")


def check_targets(store: Path, names: Iterable[str]) -> None:
    """Raise StoreError where a store has something that cannot be replaced; for before anything is built."""
    root = os.stat(store)
    for name in names:
        _check_target(store, name, root)


def _check_staged(staged: Staged, store: Path, root: os.stat_result) -> None:
    status = _status(staged.path)
    if status is None:
        raise StoreError(staged.path, what=f"is missing, so {store / staged.name} was left as it is")
    _check_kind(staged.path, status, staged.name)
    if status.st_dev != root.st_dev:
        raise StoreError(staged.path, what=f"and {store} lie on different file systems; {SAME_FILE_SYSTEM}")


def _check_target(store: Path, name: str, root: os.stat_result) -> None:
    target = store / name
    status = _status(target)
    if status is None:
        return
    if stat.S_ISLNK(status.st_mode):
        whose = f"a link to {os.readlink(target)}: a rename would replace the link of {user_text(status.st_uid)}"
        raise StoreError(target, what=f"is {whose}; "
                         "write beside the store with --out and put it there by hand")  # fmt: skip
    _check_kind(target, status, name)
    if status.st_dev != root.st_dev or _is_mounted(target):
        raise StoreError(target, what="is a mount point, which cannot be renamed; "
                         "write beside the store with --out and put it there by hand")  # fmt: skip


def _check_kind(path: Path, status: os.stat_result, name: str) -> None:
    if name in FILES and not stat.S_ISREG(status.st_mode):
        raise StoreError(path, what=f"is not a regular file but {kind_of(status)}, nothing was changed")
    if name not in FILES and not stat.S_ISDIR(status.st_mode):
        raise StoreError(path, what=f"is not a directory but {kind_of(status)}, nothing was changed")


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(path, what=f"cannot be examined: {error.strerror}") from error


def _is_mounted(path: Path) -> bool:
    """Whether something is mounted there, be it from the same file system."""
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return False
    places = {_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), line.split(b" ", 5)[4]) for line in lines}
    return os.fsencode(os.path.realpath(path)) in places
