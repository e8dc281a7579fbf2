"""Is a directory where something is mounted? Such a one cannot be renamed, nor have another renamed to it."""

import os
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
POINT: Final = 4
"""The field of a line that holds the mount point; blanks, tabs, newlines and backslashes in it are octal."""

ESCAPED: Final = str.maketrans({" ": r"\040", "\t": r"\011", "\n": r"\012", "\\": r"\134"})


def is_mount_point(path: Path) -> bool:
    """Whether it is one; also where a directory of the same file system is bound there, which `ismount` takes for none.

    Waits for the disk.
    """
    if os.path.ismount(path):
        return True
    try:
        lines = MOUNTS.read_bytes().splitlines()
    except OSError:
        return False
    wanted = os.fsencode(os.path.realpath(path).translate(ESCAPED))
    return any(fields[POINT] == wanted for line in lines if len(fields := line.split(b" ")) > POINT)
