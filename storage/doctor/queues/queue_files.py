"""The files of every queue, and what lies behind each queue's end."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from protocol.errors import StoreError
from storage.doctor.finding import ADVICE, NOWHERE, QUEUES, Finding, Findings, FoundAt, Kind, Severity
from storage.doctor.opened_store import OpenedStore
from storage.doctor.queues.unit_files import KINDS, UnitFiles, Units
from storage.doctor.rescue_line import set_aside_line
from storage.doctor.words import LEFT_OVER_UNIT, MISPLACED_BATCH, lost_units
from storage.layout.store_layout import CONSUME_QUEUE
from storage.queue.batch_consume_queue import BatchConsumeQueue
from storage.queue.queue_files import LOOKED_FOR

MOST_QUEUES = 10_000
"""Queues that are looked into; a store can have a hundred thousand."""

NOBODY = "nobody can consume from {}"
UNREADABLE = "chmod or fsck"


class _Queue(NamedTuple):
    """One queue, in one of the two trees."""

    tree: str
    topic: str
    queue_id: int
    files: UnitFiles


def check_queues(store: OpenedStore) -> list[Finding]:
    """Report wrong sizes and gaps of files, units that are lost, and units behind the end of a queue."""
    findings = Findings("queues")
    trees = (store.layout.consume_queue, store.layout.batch_consume_queue)
    for problem in store.queues.problems:
        tree = next((each for each in trees if problem.startswith(f"{each}: ")), trees[0])
        remedy = store.command(QUEUES) if tree.is_file() else UNREADABLE
        findings.add(Kind.FILE, Severity.ERROR, tree, problem, NOBODY.format("it"), remedy)
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
    queues = list(_queues(store, findings))
    sizes = {tree: Counter[int]() for tree in KINDS}
    for queue in queues:
        sizes[queue.tree].update(queue.files.sizes)
    for queue in queues:
        _check_files(store, queue, sizes[queue.tree], findings)
        if queue.files.files:
            check = _check_end if queue.tree == CONSUME_QUEUE else _check_batches
            check(store, queue, findings)
        for (path, expected), found in queue.files.problems.items():
            meaning = NOBODY.format("this queue")
            findings.add(Kind.FILE, Severity.ERROR, path, found, meaning, UNREADABLE, expected=expected)
    return findings.listed()


def _report_none(store: OpenedStore, found: str, findings: Findings) -> None:
    meaning, place = "messages are found by offset and key, but nobody can consume them", store.layout.consume_queue
    findings.add(Kind.MISSING_UNIT, Severity.ERROR, place, found, meaning, store.command(QUEUES))


def _queues(store: OpenedStore, findings: Findings) -> Iterator[_Queue]:
    """Queues of all topics, as far as they are looked into."""
    left = MOST_QUEUES
    for topic in store.queues.topics():
        try:
            ids = store.queues.queue_ids(topic)
        except StoreError as error:
            findings.add(Kind.FILE, Severity.ERROR, topic, str(error), NOBODY.format("this topic"), UNREADABLE)
            continue
        for queue_id in ids:
            for tree, kind in KINDS.items():
                path = store.layout.root / tree / topic / str(queue_id)
                if path.is_dir():
                    left -= 1
                    if left < 0:
                        found = f"more than {MOST_QUEUES} queues"
                        meaning = "the others were not checked"
                        at, remedy = store.layout.root / tree, store.command("doctor --deep")
                        findings.add(Kind.NOT_COMPARED, Severity.INFO, at, found, meaning, remedy)
                        return
                    yield _Queue(tree, topic, queue_id, UnitFiles(path, *kind))


def _check_files(store: OpenedStore, queue: _Queue, sizes: Counter[int], findings: Findings) -> None:
    """Report wrong names, sizes and gaps of one queue's files."""
    for path in (each for each in queue.files.foreign if not each.is_dir()):
        meaning = "it is ignored here; a broker fails to start on a name that is no number"
        remedy = set_aside_line(store, path)
        findings.add(Kind.FILE, Severity.WARNING, path, "is no file of a queue", meaning, remedy)
    for fault in queue.files.faults(sizes):
        severity, meaning = Severity.WARNING, "a broker refuses to start on it; here it is read as far as it goes"
        if fault.is_lost:
            severity = Severity.ERROR
            meaning = "no unit can be placed in it: it is ignored" if fault.position >= 0 else LOOKED_FOR
        at, words = FoundAt(fault.path, position=fault.position), fault.words
        findings.add(Kind.FILE, severity, at, words.found, meaning, store.command(QUEUES), expected=words.expected)


def _check_end(store: OpenedStore, queue: _Queue, findings: Findings) -> None:
    """Report units of a plain queue that are lost between others, and units behind its end."""
    files = queue.files
    try:
        opened = store.queues.queue(queue.topic, queue.queue_id)
        end = None if opened is None else opened.max_offset
    except StoreError as error:
        meaning = NOBODY.format("this queue")
        findings.add(Kind.FILE, Severity.ERROR, files.directory, str(error), meaning, UNREADABLE)
        return
    for first, count in () if end is None else files.lost_before(end):
        words, meaning = lost_units(count), f"{LOOKED_FOR}, and its recovery cuts the queue there"
        at, advice = files.found_at(first, NOWHERE, count=count), (meaning, store.command(QUEUES))
        findings.add(Kind.UNIT, Severity.ERROR, at, words.found, *advice, expected=words.expected, count=count)
    left_over = None if end is None else files.first_written(end)
    if left_over is None:
        return
    place, units = left_over
    severity, meaning, remedy = ADVICE["queues"][Kind.STRAY_UNIT]
    findings.add(
        Kind.STRAY_UNIT,
        Severity.INFO if store.state.is_live else severity,
        files.found_at(place, max(int(units["physical_offset"][0]), NOWHERE)),
        LEFT_OVER_UNIT.found,
        meaning,
        store.command(remedy),
        expected=LEFT_OVER_UNIT.expected,
    )


def _check_batches(store: OpenedStore, queue: _Queue, findings: Findings) -> None:
    """Report units of a queue of batches that are read from the log instead, since they cannot be right."""
    files = queue.files
    try:
        opened = store.queues.queue(queue.topic, queue.queue_id)
        wrong = opened.mended_numbers() if isinstance(opened, BatchConsumeQueue) else []
    except StoreError as error:
        meaning = NOBODY.format("this queue")
        findings.add(Kind.FILE, Severity.ERROR, files.directory, str(error), meaning, UNREADABLE)
        return
    severity, meaning, remedy = ADVICE["queues"][Kind.UNIT]
    words, advice, first = MISPLACED_BATCH, (meaning, store.command(remedy)), 0
    for file in files.files:
        stop = first + file.stop - file.first
        for number in wrong[bisect_left(wrong, first) : bisect_left(wrong, stop)]:
            place = file.first + number - first
            if _stands_in(files.read(place - 1, 3)):
                continue
            at = files.found_at(place, NOWHERE)
            findings.add(Kind.UNIT, severity, at, words.found, *advice, expected=words.expected)
        first = stop


def _stands_in(units: Units) -> bool:
    """Whether the middle one of three units of batches leads to a neighbour's batch in the place of one that is lost.

    So rebuilds fill gaps (docs/rebuild.md); the queue offsets ascend as they must.
    """
    places, ends = units["base_offset"].tolist(), (units["base_offset"] + units["batch_size"]).tolist()
    has_count = units["batch_size"][1] > 0 and ends[0] <= places[1]
    is_last = not units["size"][2]
    return bool(
        has_count
        and (is_last or ends[1] <= places[2])
        and any(units[["physical_offset", "size"]][1] == units[["physical_offset", "size"]][near] for near in (0, 2))
    )
