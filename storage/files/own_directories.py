"""Directories and files that nobody else may have planted: held by descriptor, with links and owners looked at.

Who may write to a directory can put anything there at any moment: a link to a file of somebody else, a file under the
name that is about to be used, another directory in the place of one that was just looked at. A process of root that
writes there would do for that user what root can do. So there is one rule for whatever is written beside a store, into
it, or where an option says:

* A directory is reached name by name, each opened in the one before (openat, O_NOFOLLOW). A link is followed if only
  the effective user or root can have made it, and put it there; any other is refused.
* From then on its descriptor holds it. Where somebody else may change a directory on the way to it, its `path` leads
  through the descriptor (`/proc/PID/fd/N`), in this process and in its children: whatever is put in its place, what is
  written lands in the directory that was looked at.
* What is read as the user's own (a journal, a record, a lock) is a regular file that belongs to the effective user, and
  to which nobody else may write. What is made is new: O_EXCL, and no link.

What is refused is named with its owner (:class:`protocol.errors.PlantedFile`).
"""

import contextlib
import errno
import os
import pwd
import re
import secrets
import shutil
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, NamedTuple, Self

from protocol.errors import PlantedFile, RocketLensError

OWN_MODE: Final = 0o700
WRITABLE_FOR_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH

_ROOT: Final = 0
_MOST_LINKS: Final = 40
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FOUND: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HELD: Final = re.compile(r"(/proc/[0-9]+/fd/[0-9]+)(?:/+(.*))?", re.DOTALL)
"""The path of a directory that a descriptor holds, and what lies below it."""


class Exposure(NamedTuple):
    """Who may put another directory in the place of one, in words; the widest of what is found on the way.

    `to_group`: only the group of one on the way; `owner`: only that user.
    """

    reason: str
    to_group: bool = False
    owner: int | None = None


class HeldDirectory:
    """A directory that a descriptor holds: `name` is how it was called, `path` leads to it for as long as it is held.

    `exposure` says who else may change what `name` leads to; None where nobody can, and `path` is `name` then.
    """

    def __init__(self, name: Path, descriptor: int, exposure: Exposure | None) -> None:
        """Take the descriptor, which is closed with this."""
        self.name, self.descriptor, self.exposure = name, descriptor, exposure
        self.path = name if exposure is None else Path(f"/proc/{os.getpid()}/fd/{descriptor}")

    @classmethod
    def open(cls, name: Path, *, make: bool = False, mode: int = 0o777) -> Self:
        """Hold a directory of any user; with `make` it is made if need be, with rights `mode`, and those above it.

        Raises PlantedFile for a link of somebody else, OSError where there is no directory.
        """
        return cls(name, *_walk(name, mode if make else None))

    @classmethod
    def own(cls, name: Path, *, make: bool = True) -> Self:
        """Hold a directory of the effective user, to which nobody else may write; what is made nobody else may enter.

        Raises PlantedFile for one of somebody else, OSError where there is none and none is made.
        """
        try:
            held = cls(name, *_walk(name, OWN_MODE if make else None))
        except NotADirectoryError:
            raise _no_directory(name) from None
        try:
            require_own(name, os.fstat(held.descriptor))
        except BaseException:
            held.close()
            raise
        return held

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def is_safe(self) -> bool:
        """Whether nobody but the effective user and root can put anything there, or another directory in its place."""
        status = os.fstat(self.descriptor)
        is_ours = status.st_uid in (_ROOT, os.geteuid()) and not status.st_mode & WRITABLE_FOR_OTHERS
        return is_ours and self.exposure is None

    @property
    def is_own(self) -> bool:
        """Whether it belongs to the effective user."""
        return os.fstat(self.descriptor).st_uid == os.geteuid()

    def require_own(self) -> None:
        """Raise PlantedFile unless it belongs to the effective user, and nobody else can change what its name leads to.

        For those who know it by its name alone: libraries, and other machines. The groups of directories are trusted.
        """
        require_own(self.name, os.fstat(self.descriptor), rights=stat.S_IWOTH)
        if self.exposure is not None and not self.exposure.to_group:
            what = f"is known by its name to others than this process, and {self.exposure.reason}: choose another place"
            raise PlantedFile(self.name, what=what)

    def close(self) -> None:
        """Let go of the directory; its path may lead elsewhere from now on."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def remove(self) -> None:
        """Remove the directory with all that is in it, as far as that is possible, and let go of it."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.path):
                remove_path(self.path / name)
        with contextlib.suppress(OSError, RocketLensError):
            self.remove_empty()
        self.close()

    def remove_empty(self) -> None:
        """Remove the directory; raises OSError where something is in it."""
        descriptor, _ = _walk(self.name.parent, None)
        try:
            os.rmdir(self.name.name, dir_fd=descriptor)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def place_of(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory in which a name below this one lies, and the last part of the name.

        With `make` directories are made on the way. Raises PlantedFile for a link of somebody else, and for a name that
        leads out of this directory.
        """
        if not is_below(name):
            raise PlantedFile(self.name, what=f"has {name!r} named in it, which leads elsewhere")
        *inner, last = PurePosixPath(name).parts
        descriptor, _ = _descend(os.dup(self.descriptor), self.name, deque(inner), 0o777 if make else None)
        try:
            yield descriptor, last
        finally:
            os.close(descriptor)

    def new_file(self, name: str) -> BinaryIO:
        """Make a new file below this directory, and the directories that it lies in."""
        with self.place_of(name, make=True) as (directory, last):
            return os.fdopen(os.open(last, _NEW, 0o644, dir_fd=directory), "wb")

    def named(self, text: str) -> str:
        """Return a text in which the directory bears its name."""
        return text.replace(str(self.path), str(self.name))

    @contextlib.contextmanager
    def named_errors(self) -> Iterator[None]:
        """Let errors of the block call the directory by its name."""
        try:
            yield
        except (RocketLensError, OSError) as error:
            if self.path != self.name:
                _rename(error, str(self.path), str(self.name))
            raise


@contextlib.contextmanager
def temporary_directory(prefix: str, below: Path, *, shared: bool = False) -> Iterator[Path]:
    """Make a directory of our own with a random name, and hold it; it is gone afterwards.

    `shared`: other machines know it by its name.
    """
    held = HeldDirectory.own(below / f"{prefix}{secrets.token_hex(8)}")
    try:
        if shared:
            held.require_own()
        with held.named_errors():
            yield held.name if shared else held.path
    finally:
        held.remove()


def hold_kept(directory: Path, *, writes: bool) -> HeldDirectory:
    """Hold a directory of files that outlive this process; raises OSError for one that others may have put there.

    With `writes` it belongs to the effective user, and is made if need be. To be read it may also be root's, or that of
    a user who alone could have put another there. Groups are trusted: container platforms give them all of a volume.
    """
    try:
        try:
            held = HeldDirectory.open(directory, make=writes, mode=0o755)
        except NotADirectoryError:
            raise _no_directory(directory) from None
        status, exposure = os.fstat(held.descriptor), held.exposure
        is_theirs = exposure is None or exposure.to_group or exposure.owner == status.st_uid
        also = frozenset() if writes else frozenset({_ROOT, status.st_uid} if is_theirs else {_ROOT})
        require_own(directory, status, also=also, rights=stat.S_IWOTH)
    except PlantedFile as error:
        raise PermissionError(errno.EPERM, str(error), str(directory)) from error
    return held


def new_file(path: Path) -> BinaryIO:
    """Make a file that is not there yet and open it for writing; a link counts as there."""
    return os.fdopen(os.open(path, _NEW, 0o644), "wb")


def open_regular(path: Path | str, flags: int, *, directory: int | None = None) -> int:
    """Open a regular file; raises PlantedFile for a link or anything else, OSError where there is nothing.

    It is looked at before it is opened: to open a device, or a FIFO, does something already.
    """
    found = os.open(path, _FOUND, dir_fd=directory)
    try:
        status = os.fstat(found)
        if not stat.S_ISREG(status.st_mode):
            raise PlantedFile(path, what=f"is not a regular file but {kind_of(status, found)}: move it away")
        return os.open(f"/proc/self/fd/{found}", flags | os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        os.close(found)


def open_to_append(path: Path, mode: int) -> int:
    """Open a file to append to it, or make it with some rights; raises PlantedFile for what others may have put there.

    Where only this user and root could have, it may be anything, as `/dev/stdout` is; else a regular file of one name.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    with HeldDirectory.open(path.parent) as held:
        if held.is_safe:
            return os.open(path, flags | os.O_CREAT, mode)
        with held.named_errors():
            try:
                descriptor = open_own(held.path / path.name, flags, also=frozenset({_ROOT}), rights=0)
            except FileNotFoundError:
                return os.open(path.name, _NEW | os.O_APPEND, mode, dir_fd=held.descriptor)
            status = os.fstat(descriptor)
    if status.st_nlink > 1:
        os.close(descriptor)
        raise PlantedFile(path, what=f"is {kind_of(status)} that has another name elsewhere: move it away")
    return descriptor


def open_own(path: Path, flags: int, *, also: frozenset[int] = frozenset(), rights: int = WRITABLE_FOR_OTHERS) -> int:
    """Open a regular file of the effective user, or of another that is named, to which nobody else may write.

    `rights` are those that nobody else may have. Raises PlantedFile for anything else, OSError where there is nothing.
    """
    descriptor = open_regular(path, flags)
    try:
        require_own(path, os.fstat(descriptor), also=also, rights=rights)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_own(path: Path, *, also: frozenset[int] = frozenset(), rights: int = WRITABLE_FOR_OTHERS) -> bytes:
    """Read a file that :func:`open_own` opens."""
    with os.fdopen(open_own(path, os.O_RDONLY, also=also, rights=rights), "rb") as file:
        return file.read()


def require_own(
    path: Path, status: os.stat_result, *, also: frozenset[int] = frozenset(), rights: int = WRITABLE_FOR_OTHERS
) -> None:
    """Raise PlantedFile unless a file or directory is the effective user's, and nobody else may write to it."""
    if status.st_uid != os.geteuid() and status.st_uid not in also:
        what = f"belongs to {user_text(status.st_uid)}, and this runs as {user_text(os.geteuid())}"
        raise PlantedFile(path, what=f"{what}: move it away, or run this as its owner")
    if status.st_mode & rights:
        who = "everybody" if status.st_mode & stat.S_IWOTH else "its group"
        what = f"belongs to {user_text(status.st_uid)}, but {who} may write to it (mode {_mode(status)})"
        raise PlantedFile(path, what=f"{what}: move it away, or take that right away")


def _no_directory(path: Path) -> PlantedFile:
    return PlantedFile(path, what=f"is not a directory but {kind_of(os.lstat(path))}: move it away")


def is_below(name: str) -> bool:
    """Whether a name is that of something below a directory, wherever the directory is."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name


def kind_of(status: os.stat_result, descriptor: int = -1) -> str:
    """What a file or directory is and whose, in words; a link with what it leads to, if a descriptor holds it."""
    kind, owner = stat.S_IFMT(status.st_mode), user_text(status.st_uid)
    if kind == stat.S_IFLNK and descriptor >= 0:
        return f"a link of {owner} to {os.readlink('', dir_fd=descriptor)}"
    return f"{_KINDS.get(kind, 'something')} of {owner}"


_KINDS: Final = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: "a file",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def user_text(uid: int) -> str:
    """A user by name, if there is one, and number."""
    try:
        return f"user {pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"user {uid}"


def remove_path(path: Path) -> None:
    """Remove a file, or a directory with all that is in it; either may be gone. No link is followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def is_writable(directory: Path) -> bool:
    """Whether the directory is there or can be made, and takes files."""
    try:
        with HeldDirectory.open(directory, make=True) as held:
            return os.access(held.path, os.W_OK | os.X_OK)
    except (OSError, RuntimeError):
        return False


def _walk(path: Path, make: int | None) -> tuple[int, Exposure | None]:
    """Open a directory by way of all that lead to it; see :func:`_descend`."""
    held = _HELD.fullmatch(str(path))
    if held is None:
        parts = deque(PurePosixPath(os.getcwd(), path).parts[1:])
        return _descend(os.open("/", _DIRECTORY), PurePosixPath("/"), parts, make)
    descriptor = os.open(held[1], _DIRECTORY)
    parts = deque(PurePosixPath(held[2] or "").parts)
    descriptor, _ = _descend(descriptor, PurePosixPath(held[1]), parts, make)
    return descriptor, Exposure(f"{held[1]} is held by a descriptor")


def _descend(
    descriptor: int, where: PurePosixPath | Path, parts: deque[str], make: int | None
) -> tuple[int, Exposure | None]:
    """Go down from an open directory, which is closed, name by name; the last directory, and who may change the way.

    `make` are the rights of the last one where it has to be made, None: nothing is made. Others may enter those above.
    """
    at, links = PurePosixPath(where), 0
    exposure: Exposure | None = None
    try:
        while parts:
            name = parts.popleft()
            found = _entry(descriptor, at, name, make if not parts or make is None else make | 0o055)
            status = os.fstat(found)
            here = _exposure(at, os.fstat(descriptor), status)
            if exposure is None or exposure.to_group:
                exposure = here or exposure
            if stat.S_ISLNK(status.st_mode):
                links += 1
                target = PurePosixPath(_target(at / name, status, found, here, links))
                if target.is_absolute():
                    os.close(descriptor)
                    descriptor, at = os.open("/", _DIRECTORY), PurePosixPath("/")
                parts.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
                continue
            os.close(descriptor)
            descriptor, at = found, at / name
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(at))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, exposure


def _entry(directory: int, at: PurePosixPath, name: str, make: int | None) -> int:
    """What lies under a name in a directory, links as they are, made if need be."""
    try:
        try:
            return os.open(name, _FOUND, dir_fd=directory)
        except FileNotFoundError:
            if make is None:
                raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, make, dir_fd=directory)
        return os.open(name, _FOUND, dir_fd=directory)
    except OSError as error:
        error.filename = str(at / name)
        raise


def _target(path: PurePosixPath, status: os.stat_result, descriptor: int, exposure: Exposure | None, links: int) -> str:
    """Where a link leads, which is closed; raises PlantedFile for one that somebody else may have put there."""
    try:
        if not _is_trusted(status, exposure):
            where = "" if exposure is None else f" ({exposure.reason})"
            what = f"is {kind_of(status, descriptor)}{where}, which is not followed"
            raise PlantedFile(str(path), what=f"{what}: give the path itself, or move it away")
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        return os.readlink("", dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _exposure(at: PurePosixPath, directory: os.stat_result, entry: os.stat_result) -> Exposure | None:
    """Who but this user and root may put something else in the place of an entry of a directory."""
    ours = (_ROOT, os.geteuid())
    if directory.st_uid not in ours:
        return Exposure(f"{at} belongs to {user_text(directory.st_uid)}", owner=directory.st_uid)
    if not directory.st_mode & WRITABLE_FOR_OTHERS:
        return None
    if directory.st_mode & stat.S_ISVTX and entry.st_uid in ours:
        return None
    if directory.st_mode & stat.S_IWOTH or directory.st_mode & stat.S_ISVTX:
        return Exposure(f"everybody may write to {at}")
    return None if directory.st_gid == _ROOT else Exposure(f"the group of {at} may write to it", to_group=True)


def _is_trusted(status: os.stat_result, exposure: Exposure | None) -> bool:
    """Whether a link is root's or the effective user's, and lies where nobody else can have put it."""
    return status.st_uid in (_ROOT, os.geteuid()) and (exposure is None or exposure.to_group)


def _mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"


def _rename(error: BaseException, old: str, new: str) -> None:
    """Replace a text in all that an error says, and in the errors that it was raised from."""

    def renamed(value: object) -> object:
        if isinstance(value, str):
            return value.replace(old, new)
        return Path(str(value).replace(old, new)) if isinstance(value, Path) else value

    error.args = tuple(map(renamed, error.args))
    for name, value in vars(error).items():
        setattr(error, name, renamed(value))
    if isinstance(error, OSError):
        error.filename, error.filename2 = renamed(error.filename), renamed(error.filename2)
