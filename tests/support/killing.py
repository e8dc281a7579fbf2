"""Kill a piece of work just before its n-th step on the disk, for every n."""

import errno
import os
import pickle
import signal
import subprocess
import sys
import traceback
from enum import Enum

from spark_jobs.publish import _atomic_rename

STEPS = ("rename", "replace", "link", "unlink", "rmdir", "fsync")


class Renames(Enum):
    ALL = "renameat2"
    NO_EXCHANGE = "no RENAME_EXCHANGE"
    PLAIN = "no renameat2"


def gets_through(work, arguments, killed_before, renames):
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


class SmallParent:
    """A process that does nothing but `gets_through`, for work of a millisecond.

    One that runs tests has hundreds of megabytes, and to fork it takes longer than such work. Work and arguments are
    pickled: a function of tests/support, and nothing that a test has patched.
    """

    def __init__(self) -> None:
        """Start it."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", "import killing; killing.serve()"]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def gets_through(self, work, arguments, killed_before, renames):
        """Do the same as the function, in a child of the small process."""
        assert self._process.stdout is not None
        pickle.dump((work, arguments, killed_before, renames), self._process.stdin)
        self._process.stdin.flush()
        through: bool = pickle.load(self._process.stdout)
        return through


def serve() -> None:
    """Answer what `SmallParent` asks on stdin, until that is closed."""
    while sys.stdin.buffer.peek(1):
        pickle.dump(gets_through(*pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
        sys.stdout.flush()


def every_kill(work, arguments, renames, run=gets_through, each=1):
    """Run `work` killed before its first step, its second, and so on; yields after each kill, and ends when none hits.

    `each`: of so many steps one. The caller puts everything back to where it was before the next round.
    """
    number = 1
    while not run(work, arguments, number, renames):
        yield number
        number += each
    assert number > 1, "it ended before its first step"


def limit(renames: Renames) -> None:
    original = _atomic_rename.renameat2

    def limited(source, target, flags):
        if renames is Renames.PLAIN:
            return errno.ENOSYS
        if renames is Renames.NO_EXCHANGE and flags == _atomic_rename.RENAME_EXCHANGE:
            return errno.EINVAL
        return original(source, target, flags)

    _atomic_rename.renameat2 = limited


def _dying(work, arguments, killed_before, renames) -> None:
    limit(renames)
    steps = 0

    def watched(function):
        def call(*given, **named):
            nonlocal steps
            steps += 1
            if steps == killed_before:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **named)

        return call

    for name in STEPS:
        setattr(os, name, watched(getattr(os, name)))
    _atomic_rename.renameat2 = watched(_atomic_rename.renameat2)
    work(*arguments)
