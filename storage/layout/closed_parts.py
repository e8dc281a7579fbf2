"""Parts of a store that cannot be opened though nothing is wrong with them: rights, and links that lead nowhere.

Readers take them for missing or damaged, and a rescue would leave them out. So they are looked for in front of all
else: each part that a broker's start or we would read is opened, and closed again.
"""

import errno
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from protocol.errors import StoreError
from storage.files.mapped_file import segment_offset
from storage.files.own_directories import user_text
from storage.layout.dledger import CHECKPOINT as LEDGER_CHECKPOINT
from storage.layout.dledger import DATA, is_ledger
from storage.layout.dledger import INDEX as LEDGER_INDEX
from storage.layout.store_layout import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    ROCKSDB_CONSUME_QUEUE,
)
from storage.layout.timer_log import TIMER_LOG, TIMER_WHEEL

MOST_OPENED: Final = 20_000
"""Files and directories that are opened, those of queues last: a quarter of a second. There may be 100,000 queues."""

MOST_CLOSED: Final = 1000
"""Parts that are named."""

RIGHTS: Final = frozenset({errno.EACCES, errno.EPERM})
NOWHERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""What opening a link says that leads to nothing, or round in a circle."""
GONE: Final = frozenset({errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT})
"""What a file system says whose server is away."""

LOCK: Final = "lock"
FORBIDDEN: Final = "its rights allow it, so something else forbids it: look at SELinux, AppArmor and how it is mounted"

_NEVER: Final = "lost+found"
"""What a file system has in its root; of no store."""
_OPENED: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class ClosedPart(NamedTuple):
    """A file or directory that cannot be opened, and why (`code`, an errno).

    `part` is the part of the store that it is or lies in; `target` is where a link leads that leads to nothing.
    """

    path: Path
    code: int
    part: Path
    target: str = ""

    @property
    def found(self) -> str:
        """A clause, for a person."""
        if self.target:
            return f"is a link, or below one, to {self.target}, which is not there"
        if self.code in RIGHTS:
            return f"may not be opened by {user_text(os.geteuid())}: {os.strerror(self.code)}"
        return f"cannot be opened: {os.strerror(self.code)}"


class _StorePart(NamedTuple):
    """A part of a store: how many levels lie below it, and the names of files that are read on the last one."""

    path: Path
    levels: int = 0
    is_read: Callable[[str], bool] = bool


def closed_parts(root: Path, directories: Sequence[Path] = (), *, log_only: bool = False) -> list[ClosedPart]:
    """The parts of a store that cannot be opened, at most `MOST_CLOSED`; `directories` are those of a log elsewhere.

    With `log_only` those of the log alone.
    """
    left, closed = MOST_OPENED, list[ClosedPart]()

    def open_below(part: _StorePart, path: Path, levels: int) -> None:
        nonlocal left
        if left <= 0 or len(closed) >= MOST_CLOSED:
            return
        left -= 1
        try:
            names = _names_in(path) if levels else _open(path)
        except OSError as error:
            if (found := _closed(path, error.errno or 0, part.path)) is not None:
                closed.append(found)
            return
        for name in names:
            if name != _NEVER and (levels > 1 or part.is_read(name)):
                open_below(part, path / name, levels - 1)

    open_below(_StorePart(root, 1, lambda _: False), root, 1)
    if not closed and os.path.isdir(root):  # what is no store at all is named by who opens it
        for part in _log_parts(root, directories) if log_only else _parts(root, directories):
            open_below(part, part.path, part.levels)
    return closed


def ways_in(closed: Iterable[ClosedPart], command: str) -> list[str]:
    """For each part what lets one in: a line for a shell, or a sentence; `command` is what was to read the store."""
    listed = list(closed)
    barriers = {each.path: _barrier(each.path) for each in listed if each.code in RIGHTS}
    owners = {status.st_uid for path, status, needed in barriers.values() if needed}
    others = owners - {os.geteuid()}
    parts = [each.part for each in listed]

    def way_in(each: ClosedPart) -> str:
        if each.target or each.code not in RIGHTS:
            return f"mount what holds {each.target or each.path}: no command of RocketLens does that"
        path, _, needed = barriers[each.path]
        if not needed:
            return FORBIDDEN
        if others:
            return _by_owner(owners, command)
        if parts.count(each.part) > 1 and path.is_relative_to(os.path.realpath(each.part)):
            return shlex.join(["chmod", "-R", "u+rX", str(each.part)])
        return shlex.join(["chmod", "u+rX", str(path)])

    return [way_in(each) for each in listed]


def refuse_closed(root: Path, directories: Sequence[Path], command: str, *, log_only: bool = False) -> None:
    """Raise StoreError if a part of a store is unreadable, with the command that grants access; for jobs.

    `command` is what says more of the store; with `log_only` a part of the log.
    """
    closed = closed_parts(root, directories, log_only=log_only)
    if closed:
        raise StoreError(closed[0].path, what=f"{closed[0].found}; {ways_in(closed, command)[0]}")


def _by_owner(owners: set[int], command: str) -> str:
    """The line with which the one owner, or else root, reads the store."""
    if len(owners) > 1 and not os.geteuid():  # of a file system that does not trust root
        users = ", ".join(map(user_text, sorted(owners)))
        return f"let one user read all of it: its parts belong to {users}"
    return as_account(next(iter(owners)) if len(owners) == 1 else 0, command)


def as_account(uid: int, line: str, *, is_simple: bool = True) -> str:
    """The line with which a user, or root, types a line, which is one command where it is simple: itself, for us."""
    if uid == os.geteuid():
        return line
    command = line if is_simple else shlex.join(["sh", "-c", line])
    if not uid:
        return f"sudo {command}"
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"#{uid}"
    return f"sudo -u {shlex.quote(name)} {command}"


def _log_parts(root: Path, directories: Sequence[Path]) -> Iterator[_StorePart]:
    for path in directories or (root / COMMIT_LOG, *(root / name / DATA for name in _ledgers(root))):
        yield _StorePart(path, 1, _is_numbered)


def _ledgers(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root) if is_ledger(name))


def _parts(root: Path, directories: Sequence[Path]) -> Iterator[_StorePart]:
    """What a start or we would read; files of queues last."""
    yield from _log_parts(root, directories)
    for name in _ledgers(root):
        yield _StorePart(root / name / LEDGER_CHECKPOINT)
        yield _StorePart(root / name / LEDGER_INDEX, 1, _is_numbered)
    for name in (CHECKPOINT, LOCK, TIMER_WHEEL):
        yield _StorePart(root / name)
    yield _StorePart(root / TIMER_LOG, 1, _is_numbered)
    yield _StorePart(root / CONFIG, 2)
    yield _StorePart(root / INDEX, 1, str.isdecimal)
    yield _StorePart(root / ROCKSDB_CONSUME_QUEUE, 1)
    for name in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT):
        yield _StorePart(root / name, 3, _is_numbered)


def _is_numbered(name: str) -> bool:
    return segment_offset(name) is not None


def _open(path: Path) -> list[str]:
    """Open a file; there is nothing below it. Raises OSError."""
    os.close(os.open(path, _OPENED))
    return []


def _names_in(path: Path) -> list[str]:
    """Open what may be a directory; the names in it. Raises OSError, also where they cannot be opened."""
    descriptor = os.open(path, _OPENED)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return []
        names = sorted(os.listdir(descriptor))
    finally:
        os.close(descriptor)
    if not os.access(path, os.X_OK, effective_ids=True):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return names


def _closed(path: Path, code: int, part: Path) -> ClosedPart | None:
    """What cannot be opened; None for what is not there, and for what only damage keeps from being opened."""
    if code in NOWHERE:
        links = (each for each in (*reversed(path.parents), path) if each.is_symlink() and not os.path.exists(each))
        link = next(links, None)
        return None if link is None else ClosedPart(path, code, part, os.path.join(link.parent, os.readlink(link)))
    return ClosedPart(path, code, part) if code in RIGHTS | GONE else None


def _barrier(path: Path) -> tuple[Path, os.stat_result, bool]:
    """The directory or file whose rights keep one from opening a path; False: none does, and yet it is not opened."""
    real = Path(os.path.realpath(path))
    status = os.stat("/")
    for each in (*reversed(real.parents), real):
        status = os.stat(each)
        asked = os.R_OK if each == real else 0
        if not os.access(each, asked | (os.X_OK if stat.S_ISDIR(status.st_mode) else 0), effective_ids=True):
            return each, status, True
    return real, status, False
