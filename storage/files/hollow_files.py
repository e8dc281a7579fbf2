"""Hollow files: copies of files that lie elsewhere, with a size and no content, which comes when it is looked at.

A tree of hollow files is registered by its directory. Whoever opens one of them by :mod:`storage.files.mapped_file`
asks for its content: who reads some bytes has those fetched, who takes a whole map all of them. So the one reader of a
store in a directory reads a store that is elsewhere too.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class HollowContent(Protocol):
    """The content of one hollow file, which is written into it before it is looked at."""

    def show(self, start: int, stop: int) -> None:
        """Have the bytes [start, stop) be there; may be called from any thread.

        Raises nothing: where they cannot be had zeros stay there, and whoever registered the tree knows.
        """
        ...


ContentOf = Callable[[str], HollowContent | None]
"""The content of a file of a tree by its path below the directory of the tree; None for a file that is whole."""

_trees: dict[str, ContentOf] = {}


def register_tree(root: Path, content_of: ContentOf) -> None:
    """From now on have the files below a directory filled when they are looked at."""
    _trees[os.path.join(root, "")] = content_of


def forget_tree(root: Path) -> None:
    """Leave the files below a directory as they are; those that are open are filled further on."""
    _trees.pop(os.path.join(root, ""), None)


def hollow_content(path: str | Path) -> HollowContent | None:
    """The content of a file; None where that is no hollow one."""
    if not _trees:
        return None
    text = os.fspath(path)
    return next((of(text[len(root) :]) for root, of in tuple(_trees.items()) if text.startswith(root)), None)


def is_undated(path: str | Path) -> bool:
    """Whether it is not known when a file was written: a hollow one whose time is zero. Raises OSError as `stat`."""
    return os.stat(path).st_mtime_ns == 0 and hollow_content(path) is not None
