"""Which files make up a commit log, by their names and sizes alone: nothing is opened."""

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from protocol.errors import StoreError
from storage.files.mapped_file import LARGEST_OFFSET, list_segment_files

PAGE_BYTES = 4096


def list_segments(directories: Iterable[Path], problems: list[str]) -> list[tuple[int, Path]]:
    """Segment files of all directories in order; of two with one name the longer counts, the first of equals.

    A file that is no segment, or that repeats one, is added to `problems` as a sentence. Raises StoreError when a
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


def segment_size(files: Sequence[tuple[int, int]]) -> int:
    """Bytes of a whole segment of a log, of which some files may have been cut: the size that most files confirm.

    ``files`` are base offsets and sizes, in order. A broker has one size for all segments, from its configuration
    (mappedFileSizeCommitLog), and writes it nowhere; a file's own size shows it, and so does the distance to the next
    file. A size by which all files could bear their names, and none is longer, goes before any other: where each file
    was cut, only their names show it. 0 without files.
    """
    sizes = Counter(size for _, size in files if size)
    distances = [right - left for (left, _), (right, _) in itertools.pairwise(files)]
    votes, step = sizes + Counter(distances), math.gcd(*distances)
    largest = max(sizes, default=0)

    def rank(size: int) -> tuple[bool, int, bool, bool, int]:
        is_named = not step % size
        return is_named and size >= largest, votes[size], is_named, size in sizes, size

    return max((size for size in {*votes, step} if size), key=rank, default=0)


def boundaries(files: Sequence[tuple[int, int]]) -> list[int]:
    """The physical offset at which each segment ends: where the next one starts, or would start.

    ``files`` are base offsets and sizes, in order. There a segment's BLANK must end, even if the file was cut.
    """
    whole = segment_size(files)
    ends = [min(base + max(size, whole), LARGEST_OFFSET) for base, size in files]
    following = [base for base, _ in files[1:]]
    return [*map(min, ends[:-1], following), *ends[-1:]]


def reaches_beyond(base_offset: int, size: int) -> bool:
    """Whether a file of so many bytes reaches beyond the largest physical offset there is: no broker writes such."""
    return base_offset + size > LARGEST_OFFSET


def refuse_beyond(base_offset: int, size: int, path: Path | str) -> None:
    """Raise StoreError where a segment's file reaches beyond the largest physical offset."""
    if reaches_beyond(base_offset, size):
        raise StoreError(path, what=f"of {size} bytes reaches beyond {LARGEST_OFFSET}, the largest offset there is")


def may_be_cut(base_offset: int, size: int, length: int) -> bool:
    """Whether a segment's file of so many bytes may have been cut, where its last BLANK says the segment's ``length``.

    For where no other file says what segments have: they are whole pages, and start at multiples of their size.
    """
    return length > size and length % PAGE_BYTES == 0 and base_offset % length == 0


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
