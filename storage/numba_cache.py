"""Where compiled kernels are kept between starts.

numba reads NUMBA_CACHE_DIR when a kernel's module is imported, so `use_numba_cache` comes before the first import of
whatever imports `storage.kernels`. Without it numba would write beside the installed modules, or not at all.
"""

import contextlib
import logging
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from protocol.errors import ConfigError
from storage.child_process import child_environment, python_command

logger = logging.getLogger(__name__)

VARIABLE = "NUMBA_CACHE_DIR"
TEMPORARY = "rocketlens-numba-"
COMPILED = "compiled-"
COMPILING = "compiling, once: this takes up to a minute, later starts about a second"


def use_numba_cache(option: Path | None = None) -> Path:
    """Choose the directory and tell numba: `option`, else NUMBA_CACHE_DIR, else the user's cache, else a temporary one.

    One that is named but belongs to somebody else, or that others may write to, is reported and not used.

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
    command, environment = python_command(f"import {', '.join(modules)}"), child_environment()
    with contextlib.suppress(OSError):  # of an interpreter that may not be started, or a directory that takes no mark
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environment)
        if ended.returncode == 0:
            mark.touch()


def _choose(option: Path | None) -> Path:
    if option is not None and not is_writable(option):
        raise ConfigError(f"--numba-cache {option}: cannot be written to")
    variable = os.environ.get(VARIABLE)
    given = option or (Path(variable) if variable else None)
    if given is not None:
        if is_writable(given) and is_ours_alone(given):
            return given.absolute()
        name = VARIABLE if option is None else "--numba-cache"
        logger.warning(
            "%s %s is not used: compiled code is kept only where we can write and nobody else can; kernels are "
            "compiled into a temporary directory instead",
            name,
            given,
        )
        return Path(tempfile.mkdtemp(prefix=TEMPORARY))
    for directory in (_user_cache(), Path(tempfile.gettempdir()) / f"{TEMPORARY}{os.getuid()}"):
        if is_writable(directory) and is_ours_alone(directory):
            return directory
    return Path(tempfile.mkdtemp(prefix=TEMPORARY))


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


def is_ours_alone(directory: Path) -> bool:
    """Whether a directory is our own and nobody else may write there: cached kernels are code that will run as us."""
    status = directory.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
