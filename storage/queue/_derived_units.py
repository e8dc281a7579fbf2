"""The units of one queue among those that were derived from the log, as the parts of a plain queue's files."""

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from protocol.system_topics import DEAD_LETTER_PREFIX
from storage.files.mapped_file import MappedFile
from storage.files.open_files import OpenFiles
from storage.log.commit_log import CommitLog
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.derived_queues import DerivedQueues
from storage.queue.queue_files import QueueFile, QueueFiles
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_record import QueueName, queue_place
from storage.queue.unit_runs import Extent, UnitRun, key_of
from storage.queue.unit_struct import UNIT

DERIVED: Final = Path("derived from the log")
"""The name of such files in messages, instead of a directory."""

_NO_FILES: Final = OpenFiles(1)  # their maps belong to the runs


def derived_queue(derived: DerivedQueues, name: QueueName, log: CommitLog, holes: QueueHoles) -> ConsumeQueue:
    """A queue of the units that runs hold of it, as far as a log goes, which must have been read to its end.

    Every unit was made of an intact record, so that none has to be judged: they say where the queue begins and ends.
    """
    extents, end = extents_of(derived.state.runs, name, log)
    parts = [
        QueueFile(str(file.path), file.identity.inode, first * UNIT.size, units * UNIT.size, position, file)
        for file, (first, units, position) in extents
    ]
    end = end or derived.ended_at(name.topic_bytes, name.queue_id)
    bounds = (parts[0].start // UNIT.size, parts[-1].end // UNIT.size) if parts else (end, end)
    files = QueueFiles(DERIVED, UNIT.size, _NO_FILES, parts)
    return ConsumeQueue(name, files, None, log, _NO_FILES, None, holes, bounds)


def extents_of(runs: Sequence[UnitRun], name: QueueName, log: CommitLog) -> tuple[list[tuple[MappedFile, Extent]], int]:
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
