"""One queue whose units were derived from the log: a plain queue whose files are parts of larger ones."""

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from protocol.system_topics import DEAD_LETTER_PREFIX
from storage.files.mapped_file import MappedFile
from storage.files.open_files import OpenFiles
from storage.files.waiting import Lookup
from storage.log.commit_log import CommitLog
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.queue_files import QueueFile, QueueFiles
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_record import QueueName, queue_place
from storage.queue.unit_runs import Extent, UnitRun, key_of
from storage.queue.unit_struct import UNIT

_NO_FILES: Final = OpenFiles(1)  # their maps belong to the runs


class DerivedFiles(QueueFiles):
    """Parts of the files of runs, as one stream of units; they never change."""

    __slots__ = ("_maps",)

    def __init__(self, parts: Sequence[tuple[MappedFile, Extent]]) -> None:
        self._maps = [file for file, _ in parts]
        files = [
            QueueFile(
                str(file.path), file.identity.inode, part.first * UNIT.size, part.units * UNIT.size, part.position
            )
            for file, part in parts
        ]
        self._take(Path("derived from the log"), UNIT.size, files)

    def renewed(self) -> "DerivedFiles":
        """These files: others belong to another queue."""
        return self

    def has_successor(self) -> bool:
        """Whether there is a file behind the last one: never."""
        return False

    def map_of(self, number: int) -> MappedFile:
        """The map of the run that a part belongs to."""
        return self._maps[number]


class DerivedQueue(ConsumeQueue):
    """A queue of the units that runs hold of it, as far as a log goes; its beginning and end follow from them.

    Every unit was made of an intact record, so that none of them has to be judged.
    """

    __slots__ = ("_end",)

    def __init__(
        self, name: QueueName, parts: Sequence[tuple[MappedFile, Extent]], end: int, log: CommitLog, holes: QueueHoles
    ) -> None:
        """`end` is the queue offset of the next message where there is no part."""
        super().__init__(name, DerivedFiles(parts), None, log, _NO_FILES, None, holes)
        self._end = end

    def _measure(self) -> Lookup[tuple[int, int]]:
        files = self._files.files
        if files:
            self._bounds = files[0].start // UNIT.size, files[-1].end // UNIT.size
        else:
            self._bounds = self._end, self._end
        return self._bounds
        yield  # it is a look-up, though one that never waits


def parts_of(runs: Sequence[UnitRun], name: QueueName, log: CommitLog) -> tuple[list[tuple[MappedFile, Extent]], int]:
    """The units of a queue of messages that a log has, and the queue offset behind the last one that it had.

    Where queue offsets begin anew, because the topic was deleted and made again, only the later units count, as with a
    broker; so does the later one of two units with one queue offset.
    """
    chosen: list[tuple[MappedFile, Extent]] = []
    lowest, end = None, 0
    for run, known in reversed(_extents(runs, name, log)):
        if lowest is not None and known.first + known.units > lowest:
            known = known._replace(units=lowest - known.first)
        if known.units <= 0:
            continue
        end = end or known.first + known.units
        lowest = known.first
        live = _from(run, known, log.minimum) if run.start < log.minimum else known
        if live.units > 0:
            chosen.append((run.file, live))
    return chosen[::-1], end


def _extents(runs: Sequence[UnitRun], name: QueueName, log: CommitLog) -> list[tuple[UnitRun, Extent]]:
    """The units of a queue up to the end of a log, in its order.

    A message that was given up keeps the names of its light queues, with its offsets in them, in the dead-letter topic.
    A broker gives it no second place in them.
    """
    key, found, end = key_of(name.topic_bytes, name.queue_id), [], 0
    for run in runs:
        for extent in run.extents(key):
            known = _before(run, extent, log.end) if run.stop > log.end else extent
            while name.is_light and known.first < end and known.units and _is_dead_letter(run, known, log):
                known = Extent(known.first + 1, known.units - 1, known.position + UNIT.size)
            if known.units:
                end = known.first + known.units
                found.append((run, known))
    return found


def _is_dead_letter(run: UnitRun, extent: Extent, log: CommitLog) -> bool:
    """Whether the first unit of several leads to a message of a dead-letter topic."""
    record = log.unchecked_record_at(UNIT.unpack_from(run.file.view, extent.position)[0])
    place = None if record is None else queue_place(record)
    return place is not None and place[2].startswith(DEAD_LETTER_PREFIX)


def _before(run: UnitRun, extent: Extent, physical_offset: int) -> Extent:
    """The units of messages before a physical offset."""
    return extent._replace(units=_count_before(run, extent, physical_offset))


def _from(run: UnitRun, extent: Extent, physical_offset: int) -> Extent:
    """The units of messages from a physical offset on."""
    expired = _count_before(run, extent, physical_offset)
    return Extent(extent.first + expired, extent.units - expired, extent.position + expired * UNIT.size)


def _count_before(run: UnitRun, extent: Extent, physical_offset: int) -> int:
    view = run.file.view

    def place_of(number: int) -> int:
        place: int = UNIT.unpack_from(view, extent.position + number * UNIT.size)[0]
        return place

    return bisect_left(range(extent.units), physical_offset, key=place_of)
