"""Put finished directories in the place of a store's own, each in one step, and keep the old ones.

Everything staged is fsynced and given to the store's owner first. Then a journal is written, and each thing takes its
way into the store:

    work/NAME  →  STORE/NAME.new-TIME  ⇄  STORE/NAME  →  STORE/NAME.bak-TIME

The exchange in the middle is one system call where the file system has it; else the old is renamed to its backup and
the new to its place, and a kill between the two leaves the store without NAME until the next run. The old never leaves
the store's directory, so that nothing that happens to the work directory can harm it. The inodes
that the names have show which steps are done, so that any later run can end a publishing that was killed.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from spark_jobs.publish._atomic_rename import exchange, rename_to_free
from spark_jobs.publish._publish_checks import SAME_FILE_SYSTEM, Staged, check_publishing, check_targets
from spark_jobs.publish._staged_tree import settle_tree
from spark_jobs.publish.publish_journal import (
    VERSION,
    Journal,
    JournalEntry,
    read_journal,
    remove_journal,
    staged_path,
    write_journal,
)
from spark_jobs.publish.publish_names import ORDER, backup_path, incoming_path
from spark_jobs.publish.store_lock import StoreLock
from storage.files.direct_writer import fsync_directory

__all__ = ["EXCHANGE", "FSYNC", "Published", "Staged", "check_replaced", "publish", "remove_journal", "roll_forward"]

FSYNC: Final = "fsync"
EXCHANGE: Final = "exchange"


@dataclass(frozen=True, slots=True)
class Published:
    """The names of what is new in the store and the paths of its backups, in the order of publishing.

    `left` names what a killed publishing did not bring in and what stays as it is, because the store has changed since.
    """

    time: str
    names: tuple[str, ...]
    backups: tuple[Path, ...]
    left: tuple[str, ...] = ()


def check_replaced(lock: StoreLock, names: Iterable[str]) -> None:
    """Raise StoreError, before anything is built, where a store has something that could not be replaced."""
    with lock.named_errors():
        check_targets(lock.root, names)


def publish(
    lock: StoreLock,
    staged: Sequence[Staged],
    journal: Path,
    time: str,
    *,
    source: str = "",
    enter: Callable[[str], None] = lambda _: None,
) -> Published:
    """Publish what is staged into the store that `lock` holds; the old is kept as `NAME.bak-TIME`.

    `time` is yyyyMMddHHmmss in UTC, `source` names what the new was made from, `enter` is called with FSYNC and
    EXCHANGE before either begins. Raises StoreError, with nothing changed, for whatever can be known before the first
    exchange; after a later failure each thing is wholly old or new, and `roll_forward` ends the work.

    The journal stays, so that the run after one that is killed here learns that all is done: the caller removes it
    (`remove_journal`, or with all of the work directory) once that is noted elsewhere.
    """
    with lock.named_errors():
        return _publish(lock, staged, journal, time, source, enter)


def _publish(
    lock: StoreLock, staged: Sequence[Staged], journal: Path, time: str, source: str, enter: Callable[[str], None]
) -> Published:
    store = lock.root
    ordered = sorted(staged, key=lambda each: ORDER.index(each.name) if each.name in ORDER else -1)
    if read_journal(journal) is not None:
        raise StoreError(journal, what="belongs to an unfinished publishing: finish it first")
    check_publishing(store, ordered, time)
    enter(FSYNC)
    for each in ordered:
        _settle(store, each)
    lock.confirm()
    enter(EXCHANGE)
    entries = tuple(
        JournalEntry(each.name, str(each.path.resolve()), os.lstat(each.path).st_ino, _inode(store / each.name))
        for each in ordered
    )
    if [each.path.resolve() for each in ordered] != [staged_path(journal, entry).resolve() for entry in entries]:
        raise StoreError(journal, what="lies elsewhere than what is staged, so that no later run would find that")
    plan = Journal(VERSION, str(store.resolve()), os.stat(store).st_ino, lock.identity, source, time, entries)
    write_journal(journal, plan)
    return _carry_out(lock, plan, journal)


def roll_forward(lock: StoreLock, journal: Path, *, source: str = "") -> Published | None:
    """End a publishing that was killed; None if there is none to be ended.

    A broker that has run since, or another `source`, means that what is still to be brought in has fallen behind the
    store: it is left out then, staged as it was, what was missing in between is put back, and the journal is removed.
    Where nothing is left out the journal stays, as after `publish`.
    """
    plan = read_journal(journal)
    if plan is None:
        return None
    if os.stat(lock.root).st_ino != plan.root:
        raise StoreError(journal, what="belongs to another store", expected=lock.store, found=plan.store)
    with lock.named_errors():
        if (plan.lock, plan.source) != (lock.identity, source):
            return _give_up(lock, plan, journal)
        return _carry_out(lock, plan, journal)


class _Piece:
    """One thing on its way into the store; every method may be called again after a kill at any moment."""

    def __init__(self, store: Path, entry: JournalEntry, time: str, journal: Path) -> None:
        self.name = entry.name
        self._new, self._old = entry.new, entry.old
        self._staged = staged_path(journal, entry)
        self._incoming = incoming_path(store, entry.name, time)
        self._target = store / entry.name
        self.backup = backup_path(store, entry.name, time)

    @property
    def is_in(self) -> bool:
        """Whether the new has its place."""
        return _inode(self._target) == self._new

    def bring(self) -> None:
        """Move the new into the store, beside its place."""
        if _inode(self._staged) == self._new:
            rename_to_free(self._staged, self._incoming)
            fsync_directory(self._staged.parent)

    def put(self) -> None:
        """Put the new in its place and the old under its backup's name."""
        if not self.is_in:
            self._replace()
        self._keep_old()

    def take_out(self) -> None:
        """Put the new back where it was staged, or delete it, unless it has its place; the old stays what it is."""
        if self.is_in:
            self._keep_old()
            return
        backup = _inode(self.backup)
        if self._old is not None and backup == self._old:
            if _inode(self._target) is None:
                rename_to_free(self.backup, self._target)
            elif _inode(self._target) == self._old:
                self.backup.unlink()
        if _inode(self._incoming) == self._new:
            self._remove_incoming()

    def _replace(self) -> None:
        if _inode(self._incoming) != self._new:
            raise StoreError(self._incoming, what="was removed or replaced before it could be published")
        found = _inode(self._target)
        if found is None:
            rename_to_free(self._incoming, self._target)
        elif found != self._old:
            raise StoreError(self._target, what="was replaced by something else while it was being published")
        elif not exchange(self._incoming, self._target):
            self._replace_in_two_steps()

    def _replace_in_two_steps(self) -> None:
        if not self._target.is_file():
            rename_to_free(self._target, self.backup)
            rename_to_free(self._incoming, self._target)
            return
        # A file can have both names, and so be there all the time.
        if _inode(self.backup) != self._old:
            os.link(self._target, self.backup)
        os.replace(self._incoming, self._target)

    def _keep_old(self) -> None:
        if self._old is None or _inode(self._incoming) != self._old:
            return
        if _inode(self.backup) == self._old:  # a kill between link and rename, then an exchange
            self._incoming.unlink()
        else:
            rename_to_free(self._incoming, self.backup)

    def _remove_incoming(self) -> None:
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            rename_to_free(self._incoming, self._staged)
            return
        # The directory where it was staged is gone, or used for the next one.
        if self._incoming.is_dir():
            shutil.rmtree(self._incoming)
        else:
            self._incoming.unlink()


def _settle(store: Path, staged: Staged) -> None:
    """Make a staged thing fit for its place."""
    target = store / staged.name
    try:
        settle_tree(staged.path, os.lstat(target) if target.exists() else os.stat(store), synced=staged.synced)
    except OSError as error:
        raise StoreError(staged.path, what=f"cannot be prepared, nothing was changed: {error}") from error


def _carry_out(lock: StoreLock, plan: Journal, journal: Path) -> Published:
    """Do what is not done yet of a plan."""
    store = lock.root
    pieces = [_Piece(store, entry, plan.time, journal) for entry in plan.entries]
    try:
        for piece in pieces:
            piece.bring()
        fsync_directory(store)
        for piece in pieces:
            piece.put()
            fsync_directory(store)
    except (OSError, StoreError) as error:
        raise _stopped(store, pieces, journal, error) from error
    return _published(lock, pieces, plan)


def _stopped(store: Path, pieces: list[_Piece], journal: Path, error: Exception) -> StoreError:
    """Return the error to raise for a failure, after undoing what can be undone: all, if nothing has its place yet."""
    reason = f"{error}; {SAME_FILE_SYSTEM}" if getattr(error, "errno", None) == errno.EXDEV else str(error)
    new = [piece.name for piece in pieces if piece.is_in]
    if not new:
        with contextlib.suppress(OSError):
            _take_out(store, pieces)
            remove_journal(journal)
            return StoreError(store, what=f"was left as it was: {reason}")
    return StoreError(
        store,
        what=f"was published in part ({', '.join(new) or 'nothing'} new, the rest as it was): {reason}; run "
        f"the same command again to continue, or remove {journal} to keep this state",
    )


def _give_up(lock: StoreLock, plan: Journal, journal: Path) -> Published:
    store = lock.root
    pieces = [_Piece(store, entry, plan.time, journal) for entry in plan.entries]
    try:
        _take_out(store, pieces)
    except OSError as error:
        raise StoreError(store, what=f"holds a publishing that was killed and cannot be undone: {error}") from error
    published = _published(lock, pieces, plan)
    if published.left:
        remove_journal(journal)
    return published


def _take_out(store: Path, pieces: list[_Piece]) -> None:
    for piece in pieces:
        piece.take_out()
    fsync_directory(store)


def _published(lock: StoreLock, pieces: list[_Piece], plan: Journal) -> Published:
    new = [piece for piece in pieces if piece.is_in]
    return Published(
        time=plan.time,
        names=tuple(piece.name for piece in new),
        backups=tuple(lock.store / piece.backup.name for piece in new if os.path.lexists(piece.backup)),
        left=tuple(piece.name for piece in pieces if not piece.is_in),
    )


def _inode(path: Path) -> int | None:
    """The inode that a name has now, None for a free name."""
    try:
        return os.lstat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
