"""Carry over queue directories that a rebuild does not make: by hard links where that is allowed, else as copies.

A queue that the log has nothing of any more still says how far its numbers have come. Units behind its end are not
carried over: a broker that starts takes whatever is not zero there for units again (store-format §6.3), so a file that
has such bytes is copied without them and never linked.
"""

from pathlib import Path

import msgspec

from protocol.errors import StoreError
from storage.build.existing_queue import OldQueue, ReadableLog, blank_units, has_data_behind
from storage.build.queue_plan import CarriedQueue
from storage.files.direct_writer import fsync_directory
from storage.files.kept_files import copy_kept, link_kept
from storage.files.mapped_file import list_segment_files
from storage.files.own_directories import HeldDirectory
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT


class CarrySummary(msgspec.Struct, frozen=True):
    """Files of one queue that were carried over; a broker counts on from `next_offset`, −1 where nobody looked."""

    next_offset: int = -1
    linked: int = 0
    copied: int = 0
    left_out: int = 0
    """Files behind the queue's end."""


def carry_queue(
    root: Path, queue: CarriedQueue, log: ReadableLog, staged: Path, *, link: bool, moved: bool = False
) -> CarrySummary:
    """Bring one queue of the store under `root` to the same place under `staged`, and its extension with it.

    `link` off: files are copied. With `moved`, `log` is where records were before they were moved; units of lost ones,
    which would lead to others now, become fillers then, over which brokers pass. Raises StoreError naming what cannot
    be read.
    """
    source, target = root / queue.key.path, staged / queue.key.path
    target.mkdir(parents=True, exist_ok=True)
    if queue.untouched:
        summary = _carry_whole(source, target, link=link)
    else:
        is_batch = queue.key.tree == BATCH_CONSUME_QUEUE
        summary = _carry_cut(source, target, log, batch=is_batch, link=link)
        if moved:
            blank_units(target, log.minimum, batch=is_batch)
    extension = Path(CONSUME_QUEUE_EXT, queue.key.topic, str(queue.key.queue_id))
    if queue.key.tree == CONSUME_QUEUE and (root / extension).is_dir():
        (staged / extension).mkdir(parents=True, exist_ok=True)
        _carry_whole(root / extension, staged / extension, link=link)
    return summary


def _carry_whole(source: Path, target: Path, *, link: bool) -> CarrySummary:
    linked = copied = 0
    with _held(source) as directory:
        for _, path in list_segment_files(source)[0]:
            was_linked = _link_or_copy(directory, path.name, target / path.name, -1, link=link)
            linked += was_linked
            copied += not was_linked
    fsync_directory(target)
    return CarrySummary(linked=linked, copied=copied)


def _carry_cut(source: Path, target: Path, log: ReadableLog, *, batch: bool, link: bool) -> CarrySummary:
    old = OldQueue(source, batch=batch)
    end = old.end(log)
    linked = copied = 0
    # Where nothing counts, the first file's name still says how far the numbers are.
    kept = [file for file in old.files if file.start < end] or list(old.files[:1])
    with _held(source) as directory:
        for file in kept:
            position = max(end - file.start, 0)
            was_linked = _link_or_copy(directory, file.path.name, target / file.path.name, position, link=link)
            linked += was_linked
            copied += not was_linked
    fsync_directory(target)
    return CarrySummary(old.next_offset(end), linked, copied, len(old.files) - len(kept))


def _held(source: Path) -> HeldDirectory:
    """Hold the directory of a queue; raises StoreError where it cannot be entered."""
    try:
        return HeldDirectory.open(source)
    except OSError as error:
        raise StoreError(source, what=f"cannot be read: {error.strerror}") from error


def _link_or_copy(directory: HeldDirectory, name: str, target: Path, end: int, *, link: bool) -> bool:
    """Bring one file over, zeros from `end` on (−1: as it is); whether a link was enough."""
    source = directory.name / name
    target.unlink(missing_ok=True)
    if link and (end < 0 or not has_data_behind(source, end)):
        try:
            if link_kept(directory, name, target):
                return True
        except OSError as error:
            raise StoreError(source, what=f"cannot be linked to {target}: {error.strerror}") from error
    try:
        copy_kept(directory, name, target, end)
    except OSError as error:
        raise StoreError(source, what=f"cannot be copied to {target}: {error.strerror}") from error
    return False
