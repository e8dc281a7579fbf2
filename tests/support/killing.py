"""Kill a piece of work just before its n-th step on the disk, for every n.

A step is a call that changes what outlives the process: a rename, a link, a removal, an fsync. The work runs in a
forked child, in which these calls are watched; nothing of the work knows of it.
"""

import errno
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from spark_jobs.publish import atomic_rename

STEPS = ("rename", "replace", "link", "unlink", "rmdir", "fsync")


class Renames(Enum):
    """What the file system can do."""

    ALL = "renameat2"
    NO_EXCHANGE = "no RENAME_EXCHANGE"
    PLAIN = "no renameat2"


def gets_through(work: Callable[..., Any], arguments: tuple[Any, ...], killed_before: int, renames: Renames) -> bool:
    """Run `work(*arguments)` in a child that is killed before a step, counted from 1; whether it got to its end."""
    child = os.fork()
    if child == 0:
        try:
            _dying(work, arguments, killed_before, renames)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return code == 0


def every_kill(work: Callable[..., Any], arguments: tuple[Any, ...], renames: Renames) -> Iterator[int]:
    """Run `work` killed before its first step, its second, and so on; yields after each kill, and ends when none hits.

    The caller puts everything back to where it was before the next round.
    """
    number = 1
    while not gets_through(work, arguments, number, renames):
        yield number
        number += 1


def limit(renames: Renames) -> None:
    """Take from this process what a file system cannot do."""
    original = atomic_rename.renameat2

    def limited(source: Any, target: Any, flags: int) -> int:
        if renames is Renames.PLAIN:
            return errno.ENOSYS
        if renames is Renames.NO_EXCHANGE and flags == atomic_rename.RENAME_EXCHANGE:
            return errno.EINVAL
        return original(source, target, flags)

    atomic_rename.renameat2 = limited


def _dying(work: Callable[..., Any], arguments: tuple[Any, ...], killed_before: int, renames: Renames) -> None:
    limit(renames)
    steps = 0

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == killed_before:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **named)

        return call

    for name in STEPS:
        setattr(os, name, watched(getattr(os, name)))
    atomic_rename.renameat2 = watched(atomic_rename.renameat2)
    work(*arguments)
