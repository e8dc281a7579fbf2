"""Runs a program as somebody who may write nothing, and notes every attempt to change a store. A script, no module.

    python read_only_guard.py STORE REPORT PROGRAM [ARGUMENT…]

PROGRAM is a module whose `main()` is called with the arguments. Everything is imported first: the interpreter and the
project may lie where only their owner can read. Then root becomes nobody, and an audit hook watches for whatever
opens, maps or locks a file for writing, renames, removes or makes one, or touches its times, owner or mode, under
STORE. Such an attempt goes to REPORT, a line each, and fails.
"""

import fcntl
import importlib
import mmap
import os
import pkgutil
import sys
from pathlib import Path

NOBODY = 65534
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LOCKING = {fcntl.F_SETLK, fcntl.F_SETLKW, 37, 38, 1024}
"""The commands of fcntl that lock: F_SETLK(W), F_OFD_SETLK(W), F_SETLEASE."""

ONE_PATH = {
    "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.utime", "os.chmod", "os.chown", "os.setxattr",
    "os.removexattr", "tempfile.mkstemp", "tempfile.mkdtemp", "os.lockf", "fcntl.flock", "fcntl.lockf",
}  # fmt: skip
TWO_PATHS = {"os.rename", "os.link", "os.symlink"}
LAZY = (
    "encodings.idna", "encodings.ascii", "encodings.latin_1", "unicodedata", "stringprep", "zipfile", "lzma", "bz2",
    "numpy.ma",
)  # fmt: skip


def changes(event, arguments):
    if event == "open":
        return [arguments[0]] if (arguments[2] or 0) & WRITING else []
    if event in ONE_PATH:
        return [arguments[0]]
    if event in TWO_PATHS:
        return list(arguments[:2])
    if event == "fcntl.fcntl":
        return [arguments[0]] if arguments[1] in LOCKING else []
    if event == "mmap.__new__":
        return [] if arguments[2] == mmap.ACCESS_READ or arguments[0] < 0 else [arguments[0]]
    return []


def is_under(store, what):
    try:
        path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fsdecode(what)
        found = os.path.realpath(path)
    except (OSError, TypeError, ValueError):
        return False
    return found == store or found.startswith(store + os.sep)


def watch(store, report):
    def hook(event, arguments) -> None:
        touched = [what for what in changes(event, arguments) if is_under(store, what)]
        if touched:
            os.write(report, f"{event} {touched[0]!r} {arguments[1:]!r}\n".encode("utf-8", "replace"))
            raise PermissionError(f"{event}: the store is only read")

    return hook


def import_everything() -> None:
    """Import the project and what it, or the standard library, would import later."""
    for name in ("protocol", "storage", "broker"):
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module.name)
    for lazy in LAZY:
        importlib.import_module(lazy)


def become_nobody() -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def run() -> None:
    store, report, program, *arguments = sys.argv[1:]
    import_everything()
    main = importlib.import_module(program).main
    descriptor = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    become_nobody()
    sys.addaudithook(watch(str(Path(store).resolve()), descriptor))
    sys.argv = [program, *arguments]
    main()


if __name__ == "__main__":
    run()
