"""What the last reading of a store that found nothing wrong had read: kept in the user's state directory.

A reading of what came since takes the log from the segment on in which the last one ended, as if the segments before
had expired: units and entries that point below it are not looked up. That holds as long as the log goes on where it
ended, and queues and index are the directories that were read; else everything is read.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import ConfigError, PlantedFile
from spark_jobs.scan.source import StoreSource
from storage.files.attempt_names import written_beside
from storage.files.mapped_file import open_read_only
from storage.files.own_directories import HeldDirectory, new_file, read_own
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX
from storage.store.state_place import readings_directory
from storage.times import format_timestamp

FILE_NAME: Final = "last-reading.json"
TREES: Final = (INDEX, CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
MARK_BYTES: Final = 64


class LastReading(msgspec.Struct, frozen=True, kw_only=True):
    """The physical offset at which a reading ended, and when it was (ms).

    `mark` are the bytes before that place, `trees` the numbers by which the file system knows queues and index.
    """

    end: int
    timestamp: int
    mark: str
    trees: dict[str, int]


def since_last(source: StoreSource) -> tuple[StoreSource, str]:
    """The part of a store that came since its last reading, all of it where that is not known; and which, in words."""
    last = _known(source)
    if last is None:
        return source, "everything was read: of no earlier reading is it known that it found nothing wrong"
    if last.trees != _trees(source) or last.mark != _mark(source, last.end):
        return source, "everything was read: log, queues or index are others than at the last reading"
    segments = (
        tuple(each for each in source.segments if each.base_offset + each.size > last.end) or source.segments[-1:]
    )
    when = format_timestamp(last.timestamp)
    found = f"read from physical offset {segments[0].base_offset} on: nothing was wrong before it at {when}"
    return msgspec.structs.replace(source, segments=segments), found


def keep_reading(source: StoreSource, end: int, *, lags: bool) -> None:
    """Keep that a reading has found nothing wrong up to a physical offset; where that fails the next one reads all.

    Where queues or index lag, the next one reads one segment more.
    """
    before = [each for each in source.segments if each.base_offset + each.size <= end]
    kept = before[-1].base_offset if lags and before else source.segments[0].base_offset if lags else end
    last = LastReading(end=kept, timestamp=time.time_ns() // 10**6, mark=_mark(source, kept), trees=_trees(source))
    with (
        contextlib.suppress(OSError, PlantedFile, ConfigError),
        HeldDirectory.open(readings_directory(source.layout.root), make=True) as held,
        written_beside(held.path / FILE_NAME) as beside,
        new_file(beside) as file,
    ):
        file.write(msgspec.json.encode(last))


def _known(source: StoreSource) -> LastReading | None:
    try:
        with HeldDirectory.open(readings_directory(source.layout.root)) as held:
            return msgspec.json.decode(read_own(held.path / FILE_NAME), type=LastReading)
    except (OSError, PlantedFile, ConfigError, msgspec.MsgspecError):
        return None


def _trees(source: StoreSource) -> dict[str, int]:
    found = {}
    for name in TREES:
        with contextlib.suppress(OSError):
            found[name] = os.stat(source.layout.root / name).st_ino
    return found


def _mark(source: StoreSource, end: int) -> str:
    """The last bytes before a place of the log, as far as its segment has them."""
    for each in source.segments:
        if each.base_offset < end <= each.base_offset + each.size:
            first = max(end - each.base_offset - MARK_BYTES, 0)
            descriptor = open_read_only(Path(each.path))
            try:
                return os.pread(descriptor, end - each.base_offset - first, first).hex()
            finally:
                os.close(descriptor)
    return ""
