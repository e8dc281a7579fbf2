"""Where compiled kernels are kept between starts.

numba reads NUMBA_CACHE_DIR when a kernel's module is imported, so `use_numba_cache` comes before the first import of
whatever imports `storage.kernels`. Without it numba would write beside the installed modules, or not at all.
"""

import contextlib
import logging
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from protocol.errors import ConfigError

logger = logging.getLogger(__name__)

VARIABLE = "NUMBA_CACHE_DIR"
COMPILED = "compiled-"
COMPILING = "compiling, once: this takes up to a minute, later starts about a second"


def use_numba_cache(option: Path | None = None) -> Path:
    """Choose the directory and tell numba: `option`, else NUMBA_CACHE_DIR, else the user's cache, else a temporary one.

    Raises `ConfigError` for an `option` that cannot be written to.
    """
    directory = _choose(option)
    os.environ[VARIABLE] = str(directory)
    return directory


def compile_apart(modules: Sequence[str], tell: Callable[[str], None] = logger.info) -> None:
    """Import modules in a process of their own, unless that was done: it compiles all kernels that they use.

    The compiler's memory, 150 MB, goes with it. Call it behind `use_numba_cache`; `tell` is told that it takes a while.
    Where it fails the kernels are compiled when they are imported, as ever.
    """
    from storage.kernels import CACHE_DIRECTORY

    mark = CACHE_DIRECTORY / (COMPILED + "+".join(modules))
    if os.path.exists(mark):  # which tells no error where the directory may not be entered
        return
    tell(COMPILING)
    command = [sys.executable, "-c", f"import {', '.join(modules)}"]
    with contextlib.suppress(OSError):  # of an interpreter that may not be started, or a directory that takes no mark
        if subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0:
            mark.touch()


def _choose(option: Path | None) -> Path:
    if option is not None:
        if not is_writable(option):
            raise ConfigError(f"--numba-cache {option}: cannot be written to")
        return option.absolute()
    if told := os.environ.get(VARIABLE):
        return Path(told)
    for directory in (_user_cache(), Path(tempfile.gettempdir()) / f"rocketlens-numba-{os.getuid()}"):
        if is_writable(directory) and _is_ours_alone(directory):
            return directory
    return Path(tempfile.mkdtemp(prefix="rocketlens-numba-"))


def _user_cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path("~/.cache").expanduser()) / "rocketlens" / "numba"


def is_writable(directory: Path) -> bool:
    """Whether the directory is there or can be made, and takes files."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return False
    return os.access(directory, os.W_OK | os.X_OK)


def _is_ours_alone(directory: Path) -> bool:
    """Whether nobody else may write there: cached kernels are code that will run as us."""
    status = directory.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
