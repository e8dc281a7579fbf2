"""The manifest of files of a store that lie behind a URL: what they are, and of which log they were made."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from protocol.errors import StoreError
from spark_jobs.places.placed_run import Committed, PlacedObject
from spark_jobs.places.remote_file import RemoteObject, open_source
from spark_jobs.publish.publish_names import ORDER
from spark_jobs.scan.probe_store import SegmentPlace
from spark_jobs.scan.source import StoreSource
from storage.kernels.indexes import INDEX_HEADER

VERSION: Final = 2
REBUILD: Final = "rebuild"
COMPACT: Final = "compact"
_PIECE: Final = 4096


class SentFile(PlacedObject, frozen=True, kw_only=True):
    """One file as an object, and its path in the store."""

    path: str


class LogMark(msgspec.Struct, frozen=True):
    """By what a log is known: sizes of segments, and a digest of their heads and of what lies about the log's `end`."""

    segments: tuple[tuple[int, int], ...]
    end: int
    sha256: str


class SentOptions(msgspec.Struct, frozen=True):
    """The options of these names, as the job had them that made the output."""

    drop_unknown_topics: bool = False
    left_out_topics: tuple[str, ...] = ()
    drop_tags: bool = False


class SentManifest(Committed, frozen=True, kw_only=True):
    """The files, the `directories` there are besides, and the `names` in the store that they make up.

    `report` is that of the job, `options` are those that say what it left out. `index` is a digest of the index files
    that the output was made of, "" where it was made of the log alone.
    """

    version: int
    names: tuple[str, ...]
    directories: tuple[str, ...]
    log: LogMark
    report: dict[str, Any]
    options: SentOptions = SentOptions()
    index: str = ""
    parts: tuple[SentFile, ...]

    def check(self, where: str) -> None:
        """Raise StoreError for a manifest of another version, or with a path that leads elsewhere."""
        if self.version != VERSION:
            raise StoreError(where, what="was written by another version: version",
                             expected=VERSION, found=self.version)  # fmt: skip
        for path in (*self.names, *self.directories, *(each.path for each in self.parts)):
            pieces = PurePosixPath(path).parts
            if str(PurePosixPath(*pieces)) != path or not pieces or pieces[0] not in ORDER or ".." in pieces:
                raise StoreError(where, what=f"names {path!r}, which is no file of a store that a job makes")


def mark_log(segments: Sequence[SegmentPlace], end: int) -> LogMark:
    """Look at a log; raises StoreError where a segment cannot be read."""
    digest = hashlib.sha256()
    for segment in segments:
        inside = end - segment.base_offset
        for position in (0, inside - _PIECE, inside):
            if 0 <= position <= segment.size:
                digest.update(_read(segment.path, position, segment.remote))
    return LogMark(tuple((each.base_offset, each.size) for each in segments), end, digest.hexdigest())


def mark_index(source: StoreSource) -> str:
    """A digest of the index files of a store: their names and sizes, and their headers, which each entry changes.

    Raises StoreError where one cannot be read.
    """
    digest = hashlib.sha256()
    for name in source.index_files:
        path, remote = source.index_file(name)
        digest.update(f"{name} {os.stat(path).st_size if remote is None else remote.size}\n".encode())
        digest.update(_read(path, 0, remote)[:INDEX_HEADER])
    return digest.hexdigest()


def _read(path: str, position: int, remote: RemoteObject | None) -> bytes:
    """Some bytes from a position on, fewer where the file ends."""
    piece = memoryview(bytearray(_PIECE))
    source = open_source(path, remote)
    try:
        filled = 0
        while filled < _PIECE and (count := source.read_into(piece[filled:], position + filled)):
            filled += count
    except OSError as error:
        raise StoreError(path, what=f"cannot be read: {error.strerror}") from error
    finally:
        source.close()
    return bytes(piece[:filled])
