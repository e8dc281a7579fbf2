"""The list of our own files in a directory, ``manifest.msgpack``: what each was made of, with a checksum.

    {"version": 2, "crc": CRC-32 of "files", "files": msgpack of rows}

What a row holds is up to who keeps the files. A list that cannot be read counts as not there.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgpack

from protocol.checksum import crc32
from protocol.errors import StoreError
from storage.files.direct_writer import fsync_directory
from storage.files.mapped_file import FileIdentity, read_small_file
from storage.files.own_directories import hold_kept, new_file

MANIFEST: Final = "manifest.msgpack"
VERSION: Final = 2
"""From 2 on files of keys have those of messages in batches."""
LARGEST_MANIFEST: Final = 64 << 20

NOT_UNPACKED: Final = (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException)
"""Errors that foreign bytes may cause in :func:`msgpack.unpackb` and in reading its result."""

Row = TypeVar("Row")


@contextlib.contextmanager
def held_to_read(directory: Path | None) -> Iterator[Path | None]:
    """A path to a directory of our own files, which is held meanwhile; None where there is none that can be trusted."""
    try:
        held = None if directory is None else hold_kept(directory, writes=False)
    except OSError:
        held = None
    if held is None:
        yield None
        return
    with held:
        yield held.path


def read_manifest(directory: Path | None, row: Callable[..., Row]) -> list[Row]:
    """The rows of a directory's manifest, each made by `row` of its fields; none where it cannot be read.

    `row` raises ValueError or TypeError for fields that are not valid.
    """
    if directory is None:
        return []
    try:
        content = msgpack.unpackb(read_small_file(directory / MANIFEST, LARGEST_MANIFEST))
        if content["version"] != VERSION or content["crc"] != crc32(content["files"]):
            return []
        return [row(*fields) for fields in msgpack.unpackb(content["files"])]
    except (OSError, StoreError, KeyError, *NOT_UNPACKED):
        return []


def write_manifest(directory: Path, rows: Iterable[tuple[Any, ...]]) -> None:
    """Write the manifest of a directory anew. Raises OSError."""
    beside = directory / f"{MANIFEST}.new"
    packed = msgpack.packb(list(rows))
    beside.unlink(missing_ok=True)
    with new_file(beside) as file:
        file.write(msgpack.packb({"version": VERSION, "crc": crc32(packed), "files": packed}))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, directory / MANIFEST)
    fsync_directory(directory)


def state_of(directory: Path | None) -> FileIdentity | None:
    """Identity of a directory's manifest, another one for the next; None without any."""
    if directory is None:
        return None
    try:
        return FileIdentity.of(os.stat(directory / MANIFEST))
    except OSError:
        return None
