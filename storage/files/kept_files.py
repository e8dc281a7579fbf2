"""Files of a store that stay: brought beside what is built, as second names of the same files or as copies.

A second name costs nothing, and a file that a broker has finished is never changed. But whose it is counts: root that
gives a store's owner a file, or a copy of one, must not be led to a file that the owner could not read.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from protocol.errors import PlantedFile, StoreError
from storage.files.own_directories import HeldDirectory, kind_of, new_file, open_regular, user_text

_NO_LINKS: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
_CLONE: Final = 0x40049409
"""FICLONE of Linux."""
_PIECE: Final = 1 << 24


def link_kept(directory: HeldDirectory, name: str, target: Path) -> bool:
    """Give a file of a directory a second name, in a directory of ours; False, and nothing done, where it needs a copy.

    That is where the file system has no links, and for a file of ours in a directory of somebody else: what has
    become of its first name would not show whether it may be given away. Raises PlantedFile for what is no regular
    file, FileExistsError where the second name is taken.
    """
    try:
        os.link(name, target, src_dir_fd=directory.descriptor, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    # Nobody else can change what lies there now: it is looked at behind the link, not before.
    status = os.lstat(target)
    if stat.S_ISREG(status.st_mode) and (status.st_uid != os.geteuid() or directory.is_own):
        return True
    os.unlink(target)
    if not stat.S_ISREG(status.st_mode):
        raise PlantedFile(directory.name / name, what=f"is not a regular file but {kind_of(status)}: move it away")
    return False


def copy_kept(directory: HeldDirectory, name: str, target: Path, stop: int = -1) -> None:
    """Copy the bytes of a file before `stop` (-1: all) to a new file of the same size, with times; fsyncs it.

    Holes stay holes where the system can. Raises PlantedFile as :func:`open_kept`.
    """
    source = open_kept(directory, name)
    try:
        status = os.fstat(source)
        with new_file(target) as file:
            writer = file.fileno()
            end = status.st_size if stop < 0 else min(stop, status.st_size)
            position = 0
            while (position := first_data(source, position, end)) < end:
                hole = min(_seek(source, position, os.SEEK_HOLE, end), end)
                copy_range(source, writer, position, hole, position)
                position = hole
            os.ftruncate(writer, status.st_size)
            os.fchmod(writer, stat.S_IMODE(status.st_mode) & 0o666)
            os.utime(writer, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(writer)
    finally:
        os.close(source)


def copy_range(source: int, target: int, start: int, stop: int, to: int) -> int:
    """Copy bytes [start, stop) of an open file to a position of another one; the count, less where the file ends.

    By reference where the file system can.
    """
    at = start
    while at < stop:
        try:
            count = os.copy_file_range(source, target, stop - at, at, to + at - start)
        except OSError:  # between file systems that cannot, or on a kernel that does not
            count = os.pwrite(target, os.pread(source, min(stop - at, _PIECE), at), to + at - start)
        if not count:
            break
        at += count
    return at - start


def can_share_blocks(path: Path, directory: Path) -> bool:
    """Whether a copy of a file takes no room in a directory: the file system lets both have the same blocks.

    What is tried with has no name there, and is gone at once.
    """
    try:
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        copy = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.ioctl(copy, _CLONE, source)
        finally:
            os.close(copy)
    except OSError:
        return False
    finally:
        os.close(source)
    return True


def open_kept(directory: HeldDirectory, name: str) -> int:
    """Open a file of a directory whose bytes are going where the directory's owner reads them.

    Raises PlantedFile for a link of somebody else, for what is no regular file, and for a file that the owner may not
    read.
    """
    path = directory.name / name
    status = os.lstat(directory.path / name)
    if stat.S_ISLNK(status.st_mode) and directory.is_own and status.st_uid == os.geteuid():
        target = Path(os.path.realpath(directory.path / name, strict=True))
        with HeldDirectory.open(target.parent) as behind:
            return open_kept(behind, target.name)
    try:
        descriptor = open_regular(name, os.O_RDONLY, directory=directory.descriptor)
    except PlantedFile as error:
        raise PlantedFile(path, what=error.what) from None
    status, owner = os.fstat(descriptor), os.fstat(directory.descriptor).st_uid
    if owner in (os.geteuid(), status.st_uid) or status.st_mode & stat.S_IROTH:
        return descriptor
    os.close(descriptor)
    raise PlantedFile(
        path,
        what=f"belongs to {user_text(status.st_uid)}, who lets nobody else read it, and lies in a directory of "
        f"{user_text(owner)}, who would get a copy of it: give it to that user, or move it away",
    )


def read_kept(path: Path, limit: int) -> bytes:
    """Read a file of at most `limit` bytes that :func:`open_kept` opens; FileNotFoundError where there is none.

    Raises StoreError for a longer one, and for one that cannot be read.
    """
    try:
        with HeldDirectory.open(path.parent) as directory, os.fdopen(open_kept(directory, path.name), "rb") as file:
            content = file.read(min(os.fstat(file.fileno()).st_size, limit) + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(path, what=f"cannot be read: {error.strerror}") from error
    if len(content) > limit:
        raise StoreError(path, what=f"is longer than {limit} bytes")
    return content


def first_data(descriptor: int, position: int, size: int) -> int:
    """Where a file's next data begin, from a position on; `size` where there is a hole up to the end."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA) if position < size else size
    except OSError as error:
        return size if error.errno == errno.ENXIO else position


def _seek(descriptor: int, position: int, whence: int, size: int) -> int:
    """SEEK_HOLE; where the file system does not support it, everything is data."""
    try:
        return os.lseek(descriptor, position, whence)
    except OSError:
        return size
