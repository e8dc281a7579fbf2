"""Which files make up a commit log, told from names and sizes alone: nothing is opened."""

import os
from collections.abc import Iterable
from pathlib import Path

from storage.mapped_file import list_segment_files


def list_segments(directories: Iterable[Path], problems: list[str]) -> list[tuple[int, Path]]:
    """Segment files of all directories in order; of two with one name the longer counts, the first of equals.

    What lies there and is no segment, or one too many, is added to `problems` as a sentence. Raises StoreError when a
    directory cannot be listed.
    """
    found: dict[int, Path] = {}
    for directory in directories:
        files, foreign = list_segment_files(directory)
        problems.extend(f"{path} is no segment and is ignored" for path in foreign if not os.path.isdir(path))
        for base_offset, path in files:
            other = found.get(base_offset)
            if other is None:
                found[base_offset] = path
                continue
            keep, drop = (path, other) if _size(path) > _size(other) else (other, path)
            found[base_offset] = keep
            problems.append(f"{drop} repeats the segment {keep}, which is used")
    return sorted(found.items())


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
