"""Open a store for a command."""

import gc
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.errors import ConfigError
from storage.numba_cache import compile_apart, is_writable, use_numba_cache

if TYPE_CHECKING:
    from storage.message_store import MessageStore

KERNELS = ("broker.fast_lane", "storage.message_store")
"""Modules that import all kernels of a server."""


def open_store(
    path: Path,
    *,
    commit_log_directories: tuple[Path, ...] | None = None,
    index_slots: int | None = None,
    index_entries: int | None = None,
    state_directory: Path | None = None,
    scan_budget: int | None = None,
    numba_cache: Path | None = None,
    stays: bool = False,
) -> "MessageStore":
    """Open a store as the shared options say; kernels are loaded when this returns.

    `scan_budget` bounds the bytes of log scanned for keys that no index file covers; None scans all. A process that
    `stays` has its kernels compiled by another one, whose memory goes with it.

    Raises `ConfigError` for options that cannot be, `StoreError` for what is no store.
    """
    if (index_slots is None) != (index_entries is None):
        raise ConfigError("--index-slots and --index-entries are given together or not at all")
    check_places(path, state_directory, numba_cache)
    if state_directory is not None and not is_writable(state_directory):
        raise ConfigError(f"--state-dir {state_directory}: cannot be written to")
    if stays:
        load_code(numba_cache)
    else:
        use_numba_cache(numba_cache)
    # What a start makes lives as long as the process: looking for garbage in it takes a tenth of the start.
    gc.disable()
    try:
        # Only now: numba reads its cache directory when the first kernel's module is imported.
        from storage.message_store import MessageStore, StoreOptions

        options = StoreOptions(
            commit_log_directories=commit_log_directories or (),
            index_slots=index_slots,
            index_entries=index_entries,
            state_directory=state_directory,
            scan_budget=scan_budget,
        )
        return MessageStore.open(path, options)
    finally:
        gc.enable()


def check_places(path: Path, state_directory: Path | None, numba_cache: Path | None) -> None:
    """Raise `ConfigError` for a directory to write to that lies inside the store."""
    for option, directory in (("--state-dir", state_directory), ("--numba-cache", numba_cache)):
        if directory is not None and directory.resolve().is_relative_to(path.resolve()):
            raise ConfigError(f"{option} {directory} lies inside the store, where nothing is ever written")


def load_code(numba_cache: Path | None, more: tuple[str, ...] = ()) -> None:
    """Load all kernels, compiled by another process if that was not done before, and `more` modules.

    Raises `ConfigError` for a cache that cannot be written to.
    """
    use_numba_cache(numba_cache)
    compile_apart(KERNELS)
    for name in (*KERNELS, *more):
        importlib.import_module(name)
