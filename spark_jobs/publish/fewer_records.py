"""Refuse to replace an index, or queues, by something that leads to fewer sound records than they do.

Where a scan met damage, a record may be left out that the index or the queue in the store still leads to: since the
damage hides it, or since a broker's recovery is going to cut the log before it. Only segments in which a scan met
damage are looked at, so that this costs a sound store nothing. Sound is a record that the server serves: an intact one
before the end of the log that was not left over when the log was cut and written on.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError
from spark_jobs.publish._publish_checks import Staged
from spark_jobs.run.report import Damage
from spark_jobs.scan.source import StoreSource
from storage.files.mapped_file import MappedFile, list_segment_files
from storage.index.index_file import DEFAULT_SLOTS, ENTRY_DTYPE, determine_shape
from storage.kernels.indexes import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES
from storage.kernels.records import entry_hashes, tag_entry_hash
from storage.kernels.region import Region
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX
from storage.log.commit_log import CommitLog
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE
from storage.queue.queue_files import read_units
from storage.queue.queue_place import has_another
from storage.queue.queue_record import QueueName, queue_place
from storage.queue.queue_store import queue_directories
from storage.ranges import Range

OPTION: Final = "--allow-fewer"
MOST_NAMED: Final = 5
"""Segments that a refusal names one by one."""

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LeftOut:
    """What the request leaves out on purpose, which is no loss: queues and entries of ``topics``, entries of tags."""

    topics: Callable[[str], bool] = lambda _: False
    tags: bool = False


def refuse_fewer(
    source: StoreSource, staged: Sequence[Staged], damages: Sequence[Damage], slots: int, left_out: LeftOut
) -> None:
    """Raise StoreError where something staged leads to fewer sound records of a damaged segment than the store's own.

    ``slots`` is how many an index file has.
    """
    segments = _damaged_segments(source, damages)
    if not segments:
        return
    root, names = source.layout.root, {each.name: each.path for each in staged}
    log = CommitLog.open(source.layout.commit_log_directories, None, None, partial(has_another, root))
    kinds: list[_Records] = []
    if INDEX in names:
        kinds.append(_IndexEntries(log, left_out, [(source.layout.index, names[INDEX])], slots))
    trees = [tree for tree in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE) if tree in names]
    if trees:
        kinds.append(_QueueUnits(log, left_out, [(root / tree, names[tree]) for tree in trees]))
    found = [text for path, part in segments for kind in kinds if (text := kind.compare(path, part)) is not None]
    if found:
        more = "" if len(found) <= MOST_NAMED else f"; and {len(found) - MOST_NAMED} more"
        raise StoreError(
            root,
            what=f"was left as it is: {'; '.join(found[:MOST_NAMED])}{more}. --out DIR writes beside the store, "
            f"{OPTION} replaces nevertheless",
        )


def _damaged_segments(source: StoreSource, damages: Iterable[Damage]) -> list[tuple[str, Range]]:
    """Paths and physical offsets [start, stop) of the segments that some damage touches."""
    ranges = [(damage.physical_offset, damage.physical_offset + damage.length) for damage in damages]
    parts = [(place.path, (place.base_offset, place.base_offset + place.size)) for place in source.segments]
    return [(path, part) for path, part in parts if any(a < part[1] and b > part[0] for a, b in ranges)]


class _Records:
    """Index entries or queue units, as they are and as they would be: pairs of directories."""

    what: str

    def __init__(self, log: CommitLog, left_out: LeftOut, places: Sequence[tuple[Path, Path]]) -> None:
        self._log, self._left_out, self._places = log, left_out, places

    def compare(self, path: str, part: Range) -> str | None:
        """Return a sentence if the new files lead to fewer sound records of a segment, else None."""
        old, new = (self._offsets((pair[number] for pair in self._places), part) for number in (0, 1))
        lost = self._sound((pair[0] for pair in self._places), part, np.setdiff1d(old, new, assume_unique=True))
        if not lost or lost <= self._intact(np.setdiff1d(new, old, assume_unique=True)):
            return None
        kept = self._intact(np.intersect1d(old, new, assume_unique=True))
        added = self._intact(np.setdiff1d(new, old, assume_unique=True))
        return (
            f"the {self.what} that it has lead to {kept + lost} sound records of {path}, "
            f"those that were built to {kept + added}"
        )

    def _offsets(self, directories_: Iterable[Path], part: Range) -> Offsets:
        """Physical offsets in a part of the log to which something leads, each once, ascending."""
        found = [places for directory in directories_ for _, places, _ in self._read(directory, part)]
        return np.unique(np.concatenate([np.empty(0, np.int64), *found]))

    def _intact(self, offsets: Offsets) -> int:
        return sum(self._record(offset) is not None for offset in offsets.tolist())

    def _record(self, physical_offset: int) -> memoryview | None:
        """The record at an offset, if it is served."""
        if any(damage.start <= physical_offset < damage.stop for damage in self._log.damage):
            return None
        return self._log.record_at(physical_offset)

    def _sound(self, directories_: Iterable[Path], part: Range, lost: Offsets) -> int:
        """How many of some offsets are of sound records to which something leads rightly that is not to be left out."""
        sound = set[int]()
        for directory in directories_ if lost.size else ():
            for name, places, facts in self._read(directory, part):
                for number in np.flatnonzero(np.isin(places, lost)).tolist():
                    offset = int(places[number])
                    record = self._record(offset) if offset not in sound else None
                    if record is not None and self._is_right(name, record, offset, int(facts[number])):
                        sound.add(offset)
        return len(sound)

    def _read(self, directory: Path, part: Range) -> Iterator[tuple[str, Offsets, Offsets]]:
        """What leads into a part of the log: a name, physical offsets, and of each what it is known by."""
        raise NotImplementedError

    def _is_right(self, name: str, record: memoryview, physical_offset: int, fact: int) -> bool:
        raise NotImplementedError


class _IndexEntries(_Records):
    what = "index files"

    def __init__(self, log: CommitLog, left_out: LeftOut, places: Sequence[tuple[Path, Path]], slots: int) -> None:
        super().__init__(log, left_out, places)
        self._slots = slots

    def _read(self, directory: Path, part: Range) -> Iterator[tuple[str, Offsets, Offsets]]:
        """By hash; files whose entries cannot be counted lead nowhere."""
        for name in sorted(os.listdir(directory)) if directory.is_dir() else ():
            try:
                file = MappedFile.open(directory / name)
            except StoreError:
                continue
            shape = determine_shape(file, [self._slots, DEFAULT_SLOTS]) if name.isdecimal() else None
            if shape is None or not shape.entries or shape.maximum < part[0] or shape.minimum >= part[1]:
                continue
            start = INDEX_HEADER + SLOT_BYTES * shape.slots + ENTRY_BYTES
            entries = np.frombuffer(file.view, ENTRY_DTYPE, shape.entries, start)
            places = entries["physical_offset"].astype(np.int64)
            inside = (places >= part[0]) & (places < part[1])
            yield name, places[inside], entries["key_hash"][inside].astype(np.int64)

    def _is_right(self, name: str, record: memoryview, physical_offset: int, fact: int) -> bool:
        region, size = Region(record), len(record)
        is_left_out = self._left_out.tags and fact == tag_entry_hash(region, 0, size)
        hashes, place = entry_hashes(region, 0, size), queue_place(record)
        if is_left_out or hashes is None or fact not in hashes or place is None:
            return False
        return not self._left_out.topics(place[2])


class _QueueUnits(_Records):
    what = "queues"

    def _read(self, directory: Path, part: Range) -> Iterator[tuple[str, Offsets, Offsets]]:
        """By queue offset; of batches, whose records say theirs themselves, −1."""
        is_batch = directory.name == BATCH_CONSUME_QUEUE
        dtype = np.dtype(BATCH_UNIT_DTYPE if is_batch else UNIT_DTYPE)
        for queue in queue_directories(directory):
            for base, path in list_segment_files(queue)[0]:
                for low, units in read_units(path, dtype):
                    places = units["physical_offset"].astype(np.int64)
                    inside = np.flatnonzero((places >= part[0]) & (places < part[1]) & (units["size"] > 0))
                    numbers = np.full(inside.size, -1) if is_batch else (base + low) // dtype.itemsize + inside
                    yield f"{queue.parent.name}/{queue.name}", places[inside], numbers.astype(np.int64)

    def _is_right(self, name: str, record: memoryview, physical_offset: int, fact: int) -> bool:
        topic, _, queue_id = name.rpartition("/")
        said = QueueName(topic, int(queue_id)).offset_in(record, physical_offset)
        return said is not None and fact in (said, -1) and not self._left_out.topics(topic)
