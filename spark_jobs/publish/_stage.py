"""Bring what stays of a store's index beside what was built, so that both are published as one directory."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from storage.files.attempt_names import written_beside
from storage.files.kept_files import copy_kept, link_kept
from storage.files.own_directories import HeldDirectory


def stage_kept(names: Iterable[str], source: Path, staged: Path, partial: Path, *, link: bool) -> None:
    """Put files of `source` into a staged directory under the same names.

    As second names of the same files where they go back into the same store (a broker never changes a full index
    file), else as copies, which lie in `partial` until they are whole. What is there already stays.
    """
    staged.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in names if not os.path.lexists(staged / name)]
    if not wanted:
        return
    with HeldDirectory.open(source) as directory:
        for name in wanted:
            with contextlib.suppress(FileExistsError):
                if not (link and link_kept(directory, name, staged / name)):
                    copy_file(directory, name, staged / name, partial)


def copy_file(directory: HeldDirectory, name: str, destination: Path, partial: Path) -> None:
    """Copy a file whole or not at all, holes as holes where the system can; fsyncs it. It is made in `partial`."""
    with written_beside(destination, partial) as beside:
        copy_kept(directory, name, beside)
