"""Directories of the user's own: whether one takes files, and where code is kept between starts."""

import os
import stat
from pathlib import Path


def user_cache() -> Path | None:
    """The directory of ours in the user's cache, made if need be; None where there is none that is safe.

    What is kept there is code that will run as us (classes of a JVM, compiled modules that came in an archive), so it
    must be our own, and nobody else may write to it.
    """
    root = os.environ.get("XDG_CACHE_HOME")
    directory = (Path(root) if root else Path("~/.cache").expanduser()) / "rocketlens"
    return directory if is_writable(directory) and is_ours_alone(directory) else None


def is_writable(directory: Path) -> bool:
    """Whether the directory is there or can be made, and takes files."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return False
    return os.access(directory, os.W_OK | os.X_OK)


def is_ours_alone(directory: Path) -> bool:
    """Whether a directory is our own and nobody else may write there."""
    status = directory.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
