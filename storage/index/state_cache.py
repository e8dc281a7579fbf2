"""Keep what a start had to find out for the next one: counts and coverage of index files, the end of valid data.

A msgpack file in the state directory, written atomically. Everything in it is keyed by the identity (device, inode,
size, modification time) of the file that it was found in, and of the segments that it was held against; what does not
fit is thrown away, and so is a cache that cannot be read, or that another user than the directory's may have put there.
"""

import os
import stat
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgpack

from protocol.errors import PlantedFile
from storage.files.attempt_names import written_beside
from storage.files.mapped_file import LARGEST_OFFSET, FileIdentity
from storage.files.own_directories import HeldDirectory, new_file, read_own
from storage.index._index_shape import IndexShape
from storage.index.index_file import end_of_entries

VERSION = 3
FILE_NAME = "store-cache.msgpack"
END_OF_DATA = "end of data"


class KnownShape(NamedTuple):
    """The cached result for an index file: whether it is sound, has an entry for each tag, and fits a log.

    ``segments`` are those of the log that its entries point into.
    """

    shape: IndexShape
    is_sound: bool
    has_tags: bool
    segments: list[FileIdentity]


Notes: TypeAlias = dict[str, Any]
"""What was noted of each file, by path; it was read from a file, so that any value in it may be anything."""


class StateCache:
    """Found facts by file. ``save`` writes only what was looked up or noted since ``load``."""

    def __init__(self, directory: Path | None, content: Notes | None = None) -> None:
        """A cache in a state directory; None keeps nothing."""
        self._directory = directory
        self._old: Notes = content or {}
        self._new: Notes = {}

    @classmethod
    def load(cls, directory: Path | None) -> "StateCache":
        """The cache of a state directory; an absent, foreign or damaged one is empty."""
        if directory is None:
            return cls(None)
        try:
            with HeldDirectory.open(directory) as held:
                also = frozenset({0, os.fstat(held.descriptor).st_uid})
                data = read_own(held.path / FILE_NAME, also=also, rights=stat.S_IWOTH)
            content = msgpack.unpackb(data, strict_map_key=False)
        except (OSError, PlantedFile, ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
            return cls(directory)
        if (
            not isinstance(content, dict)
            or content.get("version") != VERSION
            or not isinstance(content.get("files"), dict)
        ):
            return cls(directory)
        return cls(directory, content["files"])

    def keep_all(self) -> "StateCache":
        """Let `save` write what was known before, too, but for what is noted anew; the cache itself."""
        self._new = {**self._old, **self._new}
        return self

    def shape_of(self, path: Path, identity: FileIdentity) -> KnownShape | None:
        """The result that was noted for an index file in this state, None without one."""
        found = self._fitting(path, identity)
        try:
            slots, entries, minimum, maximum, ascending, gaps, compacted, sound, has_tags, segments = found
            shape = IndexShape(
                int(slots),
                int(entries),
                int(minimum),
                int(maximum),
                bool(ascending),
                tuple((int(a), int(b)) for a, b in gaps),
                int(compacted),
            )
            against = [FileIdentity(*segment) for segment in segments]
        except (TypeError, ValueError, OverflowError):
            return None
        if not _is_sane(shape, identity.size):
            return None
        return KnownShape(shape, bool(sound), bool(has_tags), against)

    def note_shape(self, path: Path, identity: FileIdentity, known: KnownShape) -> None:
        """Remember what was found out about an index file."""
        *counts, gaps, compacted = astuple(known.shape)
        segments = [list(segment) for segment in known.segments]
        found = [*counts, [list(gap) for gap in gaps], compacted, known.is_sound, known.has_tags, segments]
        self._new[str(path)] = [list(identity), found]

    def known_ends(self) -> dict[FileIdentity, int]:
        """Where the valid data ended in the last segment, by the state it was in; a start walks on from there."""
        try:
            identity, end = self._old[END_OF_DATA]
            return {FileIdentity(*identity): int(end)}
        except (KeyError, TypeError, ValueError, OverflowError):
            return {}

    def note_end_of_data(self, identity: FileIdentity, end: int) -> None:
        """Remember the physical offset at which the valid data of the last segment end."""
        self._new[END_OF_DATA] = [list(identity), end]

    def save(self, directory: Path | None = None) -> None:
        """Write the cache, unless nothing changed; failing to costs only the next start's time.

        One that is kept nowhere is kept in ``directory`` from now on.
        """
        self._directory = self._directory or directory
        if self._directory is None or self._new == self._old:
            return
        try:
            with (
                HeldDirectory.open(self._directory, make=True) as held,
                written_beside(held.path / FILE_NAME) as beside,
                new_file(beside) as file,
            ):
                os.fchmod(file.fileno(), 0o600)
                file.write(msgpack.packb({"version": VERSION, "files": self._new}))
        except (OSError, PlantedFile):
            return
        self._old = dict(self._new)

    def _fitting(self, path: Path, identity: FileIdentity) -> Any:
        entry = self._old.get(str(path))
        if not isinstance(entry, list) or len(entry) != 2 or entry[0] != list(identity):
            return None
        return entry[1]


def _is_sane(shape: IndexShape, size: int) -> bool:
    """Whether a file of ``size`` bytes can have a shape: kernels read memory by it, without another look."""
    offsets = [shape.minimum, *(offset for gap in shape.gaps for offset in gap), shape.maximum]
    return (
        shape.slots > 0
        and 0 <= shape.compacted <= shape.entries
        and end_of_entries(shape) <= size
        and shape.minimum >= -LARGEST_OFFSET - 1
        and shape.maximum <= LARGEST_OFFSET
        and offsets == sorted(offsets)
    )
