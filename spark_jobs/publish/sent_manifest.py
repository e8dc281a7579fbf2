"""The manifest of files of a store that lie behind a URL: what they are, and of which log they were made."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from protocol.errors import StoreError
from spark_jobs.places.placed_run import Committed, PlacedObject
from spark_jobs.publish.publish_names import ORDER
from spark_jobs.scan.probe_store import SegmentPlace

VERSION: Final = 1
COMMAND: Final = "rebuild"
_PIECE: Final = 4096


class SentFile(PlacedObject, frozen=True, kw_only=True):
    """One file as an object, and its path in the store."""

    path: str


class LogMark(msgspec.Struct, frozen=True):
    """By what a log is known: sizes of segments, and a digest of their heads and of what lies about the log's `end`."""

    segments: tuple[tuple[int, int], ...]
    end: int
    sha256: str


class SentManifest(Committed, frozen=True, kw_only=True):
    """The files, the `directories` there are besides, and the `names` in the store that they make up.

    `report` is that of the job; `drop_unknown_topics` is the option of that name.
    """

    version: int
    names: tuple[str, ...]
    directories: tuple[str, ...]
    log: LogMark
    report: dict[str, Any]
    drop_unknown_topics: bool = False
    parts: tuple[SentFile, ...]

    def check(self, where: str) -> None:
        """Raise StoreError for a manifest of another version, or with a path that leads elsewhere."""
        if self.version != VERSION:
            raise StoreError(where, what="was written by another version: version",
                             expected=VERSION, found=self.version)  # fmt: skip
        for path in (*self.names, *self.directories, *(each.path for each in self.parts)):
            pieces = PurePosixPath(path).parts
            if str(PurePosixPath(*pieces)) != path or not pieces or pieces[0] not in ORDER or ".." in pieces:
                raise StoreError(where, what=f"names {path!r}, which is no file of a store that a rebuild makes")


def mark_log(segments: Sequence[SegmentPlace], end: int) -> LogMark:
    """Look at a log; raises StoreError where a segment cannot be read."""
    digest = hashlib.sha256()
    for segment in segments:
        inside = end - segment.base_offset
        for position in (0, inside - _PIECE, inside):
            if 0 <= position <= segment.size:
                digest.update(_read(Path(segment.path), position))
    return LogMark(tuple((each.base_offset, each.size) for each in segments), end, digest.hexdigest())


def _read(path: Path, position: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, _PIECE, position)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(path, what=f"cannot be read: {error.strerror}") from error
