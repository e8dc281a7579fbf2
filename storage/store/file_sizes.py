"""The sizes of a store's files, under the names of the properties that a broker must open it with.

A broker that expects other sizes refuses to start, or reads queues and index wrongly (store-format §1.2, §1.4, §4).
What the store has no file of is left out.
"""

import os
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Final

from storage.layout.store_layout import CONSUME_QUEUE
from storage.log.segment_list import segment_size
from storage.queue.consume_queue import UNIT
from storage.store.snapshot import Snapshot

LOOKED_AT: Final = 64
"""Queue files at most that are looked at: they are all of one size."""


def file_sizes(snapshot: Snapshot) -> dict[str, int]:
    """Bytes of a segment and of a queue file, and how many slots and entries an index file has."""
    sizes = {}
    segments = snapshot.commit_log.segments
    if segments:
        files = [(segment.base_offset, segment.file.size) for segment in segments]
        sizes["mappedFileSizeCommitLog"] = segment_size(files)
    queue_files = Counter(_sizes_of_queue_files(snapshot.layout.root / CONSUME_QUEUE))
    if queue_files:
        sizes["mappedFileSizeConsumeQueue"] = queue_files.most_common(1)[0][0]
    if snapshot.index.files:
        index = snapshot.index.files[-1].index
        sizes["maxHashSlotNum"] = index.shape.slots
        # Its first entry is never used, and counts.
        sizes["maxIndexNum"] = index.capacity + 1
    return sizes


def _sizes_of_queue_files(tree: Path) -> list[int]:
    """Sizes of the first files that are found and hold whole units."""
    found: list[int] = []
    for topic in _entries(tree):
        for queue in _entries(topic):
            for file in _entries(queue):
                size = _size(file)
                if size and size % UNIT.size == 0:
                    found.append(size)
                if len(found) >= LOOKED_AT:
                    return found
    return found


def _entries(directory: "os.PathLike[str]") -> "list[os.DirEntry[str]]":
    """List some entries of a directory, which may have a hundred thousand."""
    try:
        with os.scandir(directory) as entries:
            return list(islice(entries, LOOKED_AT))
    except OSError:
        return []


def _size(file: "os.DirEntry[str]") -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except OSError:
        return 0
