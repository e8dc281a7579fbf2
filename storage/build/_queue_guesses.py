"""Infer how a broker keeps queues from what is left of a store, where the queue directories no longer show it.

Each function returns a sentence for people that says what was inferred and from what, "" where nothing shows it.
"""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from protocol.system_topics import LIGHT_PREFIX
from storage.files.mapped_file import list_segment_files
from storage.layout.backup_names import BACKUP, KEPT
from storage.layout.store_config import StoreConfig
from storage.queue.consume_queue import UNIT, UNIT_DTYPE
from storage.queue.consume_queue_ext import LARGEST_ADDRESS
from storage.queue.queue_store import directories

LOOKED_AT: Final = 64
"""Queues whose first units are read."""

UNITS: Final = 1000
"""Units that are read of each of them."""


def guess_light(config: StoreConfig) -> str:
    """Whether topics or committed offsets name light queues."""
    topic = next((name for name in config.topics if name.startswith(LIGHT_PREFIX)), "")
    if topic:
        return f"light queues are made, since config/topics.json has {topic} (guessed: none is left in the store)"
    for group, name in config.consumer_offsets:
        if name.startswith(LIGHT_PREFIX):
            return (
                f"light queues are made, since group {group} has an offset of {name} (guessed: none is left in the "
                "store)"
            )
    return ""


def guess_ext(root: Path, queues: Iterable[Path]) -> str:
    """Whether units of plain queues point into an extension; `queues` are their directories below `root`."""
    for _, queue in zip(range(LOOKED_AT), sorted(queues), strict=False):
        for _, path in list_segment_files(root / queue)[0][:1]:
            units = np.fromfile(path, UNIT_DTYPE, UNITS)
            used = units[units["size"] > 0]
            if (used["tags_code"] <= LARGEST_ADDRESS).any():
                return f"consumequeue_ext is made, since units of {queue} point into it (guessed: it is not there)"
    return ""


def size_in_backup(root: Path, tree: str) -> tuple[int, str]:
    """Size of most files in the newest backup of a tree, and the backup's name; 0 and "" where there is none."""
    matches = (KEPT.fullmatch(name) for name in sorted(directories(root), reverse=True))
    for match in matches:
        if match is not None and match[1] == tree and match[2] == BACKUP:
            lengths = Counter(_lengths(root / match[0]))
            if lengths:
                return lengths.most_common(1)[0][0], match[0]
    return 0, ""


def _lengths(tree: Path) -> Iterable[int]:
    for topic in directories(tree):
        for queue in directories(tree / topic):
            for _, path in list_segment_files(tree / topic / queue)[0]:
                size = os.stat(path).st_size
                if size and size % UNIT.size == 0:
                    yield size
