"""A disk of its own, of as much room as a test says."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[Callable[[str], Path]]:
    """A disk that is there once its room is said, as an option of mount; asked for again it has other room."""
    if os.geteuid():
        pytest.skip("only root mounts a disk")
    place.mkdir()
    mounted = False

    def give(options: str) -> Path:
        nonlocal mounted
        how = f"remount,{options}" if mounted else options
        subprocess.run(["mount", "-t", "tmpfs", "-o", how, "none", str(place)], check=True)
        mounted = True
        return place

    try:
        yield give
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)
