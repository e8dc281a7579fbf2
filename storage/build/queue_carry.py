"""Carry over queue directories that a rebuild does not make: by hard links where that is allowed, else as copies.

A queue that the log has nothing of any more still says how far its numbers have come. Units behind its end are not
carried over: a broker that starts takes whatever is not zero there for units again (store-format §6.3), so a file that
has such bytes is copied without them and never linked.
"""

import errno
import os
from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import StoreError
from storage.build.existing_queue import OldQueue, ReadableLog, blank_units, first_data, has_data_behind
from storage.build.queue_plan import CarriedQueue
from storage.files.direct_writer import fsync_directory
from storage.files.mapped_file import list_segment_files, open_read_only
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT

_PIECE: Final = 1 << 20
_NO_LINKS: Final = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP}


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
    for _, path in list_segment_files(source)[0]:
        was_linked = _link_or_copy(path, target / path.name, -1, link=link)
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
    for file in kept:
        position = max(end - file.start, 0)
        was_linked = _link_or_copy(file.path, target / file.path.name, position, link=link)
        linked += was_linked
        copied += not was_linked
    fsync_directory(target)
    return CarrySummary(old.next_offset(end), linked, copied, len(old.files) - len(kept))


def _link_or_copy(source: Path, target: Path, end: int, *, link: bool) -> bool:
    """Bring one file over, zeros from `end` on (−1: as it is); whether a link was enough."""
    target.unlink(missing_ok=True)
    if link and (end < 0 or not has_data_behind(source, end)):
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise StoreError(source, what=f"cannot be linked to {target}: {error.strerror}") from error
        else:
            return True
    _copy(source, target, end)
    return False


def _copy(source: Path, target: Path, end: int) -> None:
    """Copy the bytes before `end` (−1: all) into a file of the same length; holes stay holes."""
    reader = open_read_only(source)
    try:
        writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(reader).st_size
            os.ftruncate(writer, size)
            position, stop = 0, size if end < 0 else min(end, size)
            while (position := first_data(reader, position, size)) < stop:
                piece = os.pread(reader, min(_PIECE, stop - position), position)
                if not piece:
                    break
                os.pwrite(writer, piece, position)
                position += len(piece)
            os.fsync(writer)
        finally:
            os.close(writer)
    except OSError as error:
        raise StoreError(source, what=f"cannot be copied to {target}: {error.strerror}") from error
    finally:
        os.close(reader)
