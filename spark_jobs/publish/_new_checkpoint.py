"""The checkpoint that belongs to rebuilt index files.

A broker that starts with `abort` present deletes every index file whose end_timestamp lies above the checkpoint's
index_msg_timestamp. Source: store-format §3.7, §6.1. Apart from :mod:`spark_jobs.publish.deliver`, since it is about
files alone.
"""

import os
from dataclasses import astuple, replace
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from spark_jobs.run.work_directory import write_synced
from storage.files.kept_files import read_kept
from storage.files.mapped_file import read_head
from storage.index.index_file import HEADER, IndexHeader
from storage.layout.checkpoint import CHECKPOINT, Checkpoint

CHECKPOINT_BYTES: Final = 4096
_LONGEST: Final = 1024 * 1024


def write_checkpoint(store_checkpoint: Path | None, destination: Path, **changes: int) -> None:
    """Write the store's checkpoint with other values in some fields and nothing else changed; fsyncs it.

    Without one, or behind the end of one that is too short, there are zeros, as in what a broker would make of it.
    """
    try:
        data = b"" if store_checkpoint is None else read_kept(store_checkpoint, _LONGEST)
    except FileNotFoundError:
        data = b""
    if len(data) < CHECKPOINT.size:
        data = data.ljust(CHECKPOINT_BYTES, b"\0")
    checkpoint = Checkpoint(*CHECKPOINT.unpack_from(data))
    changed = replace(checkpoint, **changes)
    destination.unlink(missing_ok=True)
    write_synced(destination, CHECKPOINT.pack(*astuple(changed)) + data[CHECKPOINT.size :])


def checkpoint_file(path: Path) -> Path | None:
    """The checkpoint of which a new store's is made: whatever is no file counts as missing there."""
    return path if path.is_file() else None


def latest_end_timestamp(index: Path) -> int | None:
    """The largest end_timestamp among the files of an index directory, None where it has none."""
    try:
        paths = [Path(entry.path) for entry in os.scandir(index) if entry.is_file()]
    except OSError as error:
        raise StoreError(index, what=f"cannot be listed: {error.strerror}") from error
    return max((_end_timestamp(path) for path in paths), default=None)


def _end_timestamp(path: Path) -> int:
    return IndexHeader(*HEADER.unpack(read_head(path, HEADER.size))).end_timestamp
