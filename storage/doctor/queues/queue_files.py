"""The files of every queue, and what lies behind each queue's end."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from protocol.errors import StoreError
from storage.doctor.finding import NOWHERE, QUEUES, Finding, Findings, FoundAt, Kind, Severity
from storage.doctor.opened_store import OpenedStore
from storage.doctor.words import LEFT_OVER_UNIT, file_faults, lost_units, unit_name
from storage.files.mapped_file import list_segment_files
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.queue.batch_consume_queue import UNIT as BATCH_UNIT
from storage.queue.consume_queue import UNIT, UNIT_DTYPE
from storage.queue.queue_files import LOOKED_FOR, UNITS_OF_BATCHES, UNITS_OF_PLAIN, read_units

MOST_QUEUES = 10_000
"""Queues that are looked into; a store can have a hundred thousand."""

NOBODY = "nobody can consume from {}"
UNREADABLE = "chmod or fsck"


@dataclass(frozen=True, slots=True)
class _Directory:
    """One queue's directory: its files as (start, size, path) in order, and foreign names in it."""

    tree: str
    topic: str
    queue_id: int
    path: Path
    files: tuple[tuple[int, int, Path], ...]
    foreign: tuple[Path, ...]

    @property
    def unit_size(self) -> int:
        """Bytes of one unit."""
        return UNIT.size if self.tree == CONSUME_QUEUE else BATCH_UNIT.size


def check_queues(store: OpenedStore) -> list[Finding]:
    """Report wrong sizes and gaps of files, units that are lost, and units behind the end of a queue."""
    findings = Findings("queues")
    for problem in store.queues.problems:
        findings.add(Kind.FILE, Severity.ERROR, store.layout.consume_queue, problem, NOBODY.format("it"), UNREADABLE)
    if not store.has_queue_files:
        found = "all queues are in RocksDB, which is not compared with the log"
        meaning = "they are derived from the log"
        place = store.layout.rocksdb_queues or store.layout.consume_queue
        findings.add(Kind.NOT_COMPARED, Severity.INFO, place, found, meaning, "nothing")
        return findings.listed()
    if store.layout.lacks_queues:
        _report_none(store, "there are no queues", findings)
        return findings.listed()
    missed = store.queues.why_unknown()
    if missed is not None and not store.queues.problems:
        _report_none(store, missed, findings)
    directories = list(_directories(store, findings))
    sizes = {
        tree: Counter(size for each in directories if each.tree == tree for _, size, _ in each.files)
        for tree in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
    }
    for directory in directories:
        _check_files(store, directory, sizes[directory.tree], findings)
        if directory.tree == CONSUME_QUEUE and directory.files:
            _check_end(store, directory, findings)
    return findings.listed()


def _report_none(store: OpenedStore, found: str, findings: Findings) -> None:
    meaning, place = "messages are found by offset and key, but nobody can consume them", store.layout.consume_queue
    findings.add(Kind.MISSING_UNIT, Severity.ERROR, place, found, meaning, store.command(QUEUES))


def _directories(store: OpenedStore, findings: Findings) -> Iterator[_Directory]:
    """Queues of all topics, as far as they are looked into."""
    left = MOST_QUEUES
    for topic in store.queues.topics():
        try:
            ids = store.queues.queue_ids(topic)
        except StoreError as error:
            findings.add(Kind.FILE, Severity.ERROR, topic, str(error), NOBODY.format("this topic"), UNREADABLE)
            continue
        for queue_id in ids:
            for tree in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
                path = store.layout.root / tree / topic / str(queue_id)
                if path.is_dir():
                    left -= 1
                    if left < 0:
                        found = f"more than {MOST_QUEUES} queues"
                        meaning = "the others were not checked"
                        at, remedy = store.layout.root / tree, store.command("doctor --deep")
                        findings.add(Kind.NOT_COMPARED, Severity.INFO, at, found, meaning, remedy)
                        return
                    yield from _list(tree, topic, queue_id, path, findings)


def _list(tree: str, topic: str, queue_id: int, path: Path, findings: Findings) -> Iterator[_Directory]:
    try:
        found, foreign = list_segment_files(path)
        files = tuple((start, os.stat(file).st_size, file) for start, file in found)
    except StoreError as error:
        findings.add(Kind.FILE, Severity.ERROR, path, str(error), NOBODY.format("this queue"), UNREADABLE)
    except FileNotFoundError:  # expired meanwhile
        return
    else:
        yield _Directory(tree, topic, queue_id, path, files, tuple(foreign))


def _check_files(store: OpenedStore, directory: _Directory, sizes: Counter[int], findings: Findings) -> None:
    """Report wrong names, sizes and gaps of one queue's files."""
    for path in directory.foreign:
        meaning = "it is ignored here; a broker fails to start on a name that is no number"
        remedy = "move it out of the queue's directory"
        findings.add(Kind.FILE, Severity.WARNING, path, "is no file of a queue", meaning, remedy)
    common = sizes.most_common(1)[0][0] if sizes else 0
    named = UNITS_OF_PLAIN if directory.tree == CONSUME_QUEUE else UNITS_OF_BATCHES
    for fault in file_faults(directory.path, directory.files, directory.unit_size, common, named):
        severity, meaning = Severity.WARNING, "a broker refuses to start on it; here it is read as far as it goes"
        if fault.is_lost:
            severity = Severity.ERROR
            meaning = LOOKED_FOR if fault.path == directory.path else "no unit can be placed in it: it is ignored"
        at, words = FoundAt(fault.path, position=fault.position), fault.words
        findings.add(Kind.FILE, severity, at, words.found, meaning, store.command(QUEUES), expected=words.expected)


def _check_end(store: OpenedStore, directory: _Directory, findings: Findings) -> None:
    """Report units of a plain queue that are lost between others, and units behind its end."""
    try:
        queue = store.queues.queue(directory.topic, directory.queue_id)
        first = None if queue is None else _first_unit_from(directory, queue.max_offset)
        lost = [] if queue is None else list(_lost_units(directory, queue.max_offset))
    except StoreError as error:
        findings.add(Kind.FILE, Severity.ERROR, directory.path, str(error), NOBODY.format("this queue"), UNREADABLE)
        return
    for queue_offset, count, path in lost:
        words, meaning = lost_units(count), f"{LOOKED_FOR}, and its recovery cuts the queue there"
        at = FoundAt(path, unit_name(queue_offset, count), queue_offset * UNIT.size - int(path.name))
        advice = meaning, store.command(QUEUES)
        findings.add(Kind.UNIT, Severity.ERROR, at, words.found, *advice, expected=words.expected, count=count)
    if queue is None or first is None:
        return
    queue_offset, physical_offset, path = first
    position = queue_offset * UNIT.size - int(path.name)
    findings.add(
        Kind.STRAY_UNIT,
        Severity.INFO if store.state.is_live else Severity.WARNING,
        FoundAt(path, unit_name(queue_offset), position, max(physical_offset, NOWHERE)),
        LEFT_OVER_UNIT.found,
        "left over from a log that was cut, or damaged; it is ignored here, a broker may take it for valid",
        store.command(QUEUES),
        expected=LEFT_OVER_UNIT.expected,
    )


def _lost_units(directory: _Directory, end: int) -> Iterator[tuple[int, int, Path]]:
    """Runs of invalid units before a queue's end: first queue offset, how many, file."""
    for start, size, path in directory.files:
        first = start // UNIT.size
        count = min(size // UNIT.size, end - first)
        if start % UNIT.size or count <= 0:
            continue
        run = first, first
        for low, high in (*_runs_of_lost(path, first, count), (end + 1, end + 1)):
            if low == run[1]:  # behind what a window ends with, or a hole
                run = run[0], high
                continue
            if run[0] < run[1]:
                yield run[0], run[1] - run[0], path
            run = low, high


def _runs_of_lost(path: Path, first: int, count: int) -> Iterator[tuple[int, int]]:
    """Ranges of queue offsets of a file's invalid units, ascending, some of which adjoin: a hole is one of them."""
    known = first
    for position, units in read_units(path, UNIT_DTYPE):
        low = first + position // UNIT.size
        if low >= first + count:
            break
        units = units[: first + count - low]
        yield known, low
        known = low + len(units)
        lost = np.flatnonzero((units["size"] <= 0) | (units["physical_offset"] < 0)) + low
        for run in np.split(lost, np.flatnonzero(np.diff(lost) > 1) + 1):
            if run.size:
                yield int(run[0]), int(run[-1]) + 1
    yield known, first + count


def _first_unit_from(directory: _Directory, queue_offset: int) -> tuple[int, int, Path] | None:
    """First unit at or behind a queue offset that is not zero: queue offset, physical offset, file."""
    for start, size, path in directory.files:
        if start + size <= queue_offset * UNIT.size or start % UNIT.size or size < UNIT.size:
            continue
        position = max(queue_offset * UNIT.size - start, 0)
        for low, units in read_units(path, UNIT_DTYPE, position):
            written = np.flatnonzero((units["size"] != 0) | (units["physical_offset"] != 0))
            if written.size:
                number = int(written[0])
                return (start + low) // UNIT.size + number, int(units["physical_offset"][number]), path
    return None
