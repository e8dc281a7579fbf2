"""Renames that Python has no names for: of two things for each other, and onto a name only if it is free.

Both are renameat2(2). The C library has it from glibc 2.28 on; before, the system call is made by its number. A kernel
or a file system that lacks it says EINVAL, ENOSYS or EOPNOTSUPP, an old container's filter of system calls EPERM.
"""

import ctypes
import errno
import os
import platform
from pathlib import Path
from typing import Final

RENAME_NOREPLACE: Final = 1
RENAME_EXCHANGE: Final = 2
AT_FDCWD: Final = -100

# EPERM may also be a true refusal: then the plain renames that follow meet it again.
_NOT_SUPPORTED: Final = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}
_CALL_NUMBERS: Final = {
    "x86_64": 316,
    "aarch64": 276,
    "riscv64": 276,
    "loongarch64": 276,
    "ppc64le": 357,
    "ppc64": 357,
    "s390x": 347,
    "armv7l": 382,
    "i686": 353,
}
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def exchange(first: Path, second: Path) -> bool:
    """Give two things each other's names in one step; False, and nothing done, where that is not possible here."""
    number = renameat2(first, second, RENAME_EXCHANGE)
    if number in _NOT_SUPPORTED:
        return False
    if number:
        raise OSError(number, os.strerror(number), str(first), None, str(second))
    return True


def rename_to_free(source: Path, target: Path) -> None:
    """Rename onto a name that nothing bears yet; raises FileExistsError where something does."""
    number = renameat2(source, target, RENAME_NOREPLACE)
    if number in _NOT_SUPPORTED:
        # Nobody makes the name in between: that would take the store's lock.
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(source), None, str(target))
        os.rename(source, target)
    elif number:
        raise OSError(number, os.strerror(number), str(source), None, str(target))


def renameat2(source: Path, target: Path, flags: int) -> int:
    """The system call; 0, or the error's number."""
    arguments = (AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), ctypes.c_uint(flags))
    if hasattr(_LIBC, "renameat2"):
        failed = _LIBC.renameat2(*arguments)
    else:
        call_number = _CALL_NUMBERS.get(platform.machine())
        if call_number is None:
            return errno.ENOSYS
        failed = _LIBC.syscall(ctypes.c_long(call_number), *arguments)
    return ctypes.get_errno() if failed else 0
