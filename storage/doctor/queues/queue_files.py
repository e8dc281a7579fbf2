"""The check of queues.

Quick: the files of every queue, and what lies behind each queue's end. Deep: each queue beside the messages of the log,
which come in their order. As long as its files hold its units byte for byte where a rebuild puts them, they are
counted: they are its clean front. From the first unit that differs, the messages are kept in a file, and diagnosed when
all are known (:mod:`.diagnose_queue`). Memory: what is on its way to that file; 16 bytes for each message that is kept
while the queue is diagnosed.
"""

import os
import shutil
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from protocol.errors import BeingSearched, StoreError
from protocol.system_topics import LIGHT_PREFIX, SCHEDULE_TOPIC
from storage.amounts import counted
from storage.build.queue_file_writer import QueueFileWriter
from storage.build.queue_plan import QueueKey, QueuePlan
from storage.doctor._opened_store import OpenedStore
from storage.doctor._rescue_line import set_aside_line
from storage.doctor.finding import ADVICE, NOWHERE, QUEUES, Finding, Findings, FoundAt, Kind, Severity
from storage.doctor.log.scanned_log import ScannedLog
from storage.doctor.queues._diagnose_queue import QueueDiagnosis
from storage.doctor.queues._ext_units import ExtUnits
from storage.doctor.queues._unit_compare import UnitComparison
from storage.doctor.queues.clean_front import CleanFront, FrontCheck
from storage.doctor.queues.unit_files import KINDS, UnitFiles, Units
from storage.doctor.words import LEFT_OVER_UNIT, MISPLACED_BATCH, lost_units
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.queue.batch_consume_queue import BatchConsumeQueue
from storage.queue.queue import Queue
from storage.queue.queue_files import LOOKED_FOR

KEPT_IN_A_FILE: Final = 1 << 20
"""Messages."""

MOST_NAMED: Final = 20
"""Topics without queues that a note names."""

MOST_QUEUES = 10_000
"""Queues that are looked into; a store can have a hundred thousand."""

NOBODY = "nobody can consume from {}"

Value = TypeVar("Value")


# --- quick ------------------------------------------------------------------------------------------------------------


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
        findings.add(Kind.FILE, Severity.ERROR, tree, problem, NOBODY.format("it"), store.command(QUEUES))
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
            findings.add(Kind.FILE, Severity.ERROR, path, found, meaning, store.command(QUEUES), expected=expected)
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
            findings.add(
                Kind.FILE, Severity.ERROR, topic, str(error), NOBODY.format("this topic"), store.command(QUEUES)
            )
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


def _asked(
    store: OpenedStore, queue: _Queue, findings: Findings, ask: Callable[[Queue], Value], otherwise: Value
) -> Value | None:
    """Return what a queue says as it is served, `otherwise` if much of the log has to be read to know that.

    None for a queue that is not there, or cannot be read, which is reported.
    """
    try:
        opened = store.queues.queue(queue.topic, queue.queue_id)
        return None if opened is None else ask(opened)
    except BeingSearched:
        found, meaning = "only the log says where it ends", "units behind its last message were not checked"
        remedy = store.command("doctor --deep")
        findings.add(Kind.NOT_COMPARED, Severity.INFO, queue.files.directory, found, meaning, remedy)
        return otherwise
    except StoreError as error:
        found, meaning = str(error), NOBODY.format("this queue")
        findings.add(Kind.FILE, Severity.ERROR, queue.files.directory, found, meaning, store.command(QUEUES))
    return None


def _wrong_numbers(queue: Queue) -> list[int]:
    return queue.wrong_numbers() if isinstance(queue, BatchConsumeQueue) else []


def _check_end(store: OpenedStore, queue: _Queue, findings: Findings) -> None:
    """Report units of a plain queue that are lost between others, and units behind its end."""
    files = queue.files
    end = _asked(store, queue, findings, lambda opened: opened.max_offset, files.end)
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
    wrong = _asked(store, queue, findings, _wrong_numbers, list[int]()) or []
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


# --- deep -------------------------------------------------------------------------------------------------------------


class QueueCheck:
    """One queue: its messages as they come, compared with its files."""

    def __init__(
        self,
        files: UnitFiles,
        key: QueueKey,
        kept: Path,
        log: ScannedLog,
        findings: Findings,
        front: CleanFront | None = None,
    ) -> None:
        """Nothing is checked yet but a `front`. Messages are kept below the directory `kept`."""
        self.files, self.findings = files, findings
        self._key, self._kept, self._log = key, kept / key.path, log
        self._is_batch = key.tree == BATCH_CONSUME_QUEUE
        self._message = np.dtype([("unit", self.files.dtype), ("number", "i8"), ("timestamp", "i8")])
        self._front = FrontCheck(self.files, front, is_batch=self._is_batch, goes_on=log.follows_reading)
        self._count = self._messages = 0
        self._writer: QueueFileWriter | None = None

    def put(self, first: int, data: memoryview, timestamps: npt.NDArray[np.int64] | None) -> int:
        """Look at the next messages, by the units that they should have; the bytes that are kept of them.

        `first` is the queue offset of the first of them.
        """
        units = np.frombuffer(data, self.files.dtype)
        number = self._count if self._is_batch else first
        self._count += len(units)
        if self._writer is None and self._front.stand_in_place(number, units):
            return 0
        if self._writer is None:
            self._writer = QueueFileWriter(self._kept, KEPT_IN_A_FILE * self._message.itemsize)
        messages = np.zeros(len(units), self._message)
        messages["unit"], messages["number"] = units, np.arange(len(units)) + number
        messages["timestamp"] = 0 if timestamps is None else timestamps
        self._writer.append(messages.tobytes())
        self._messages += len(units)
        return messages.nbytes

    def flush(self) -> None:
        """Write the buffer to the file."""
        if self._writer is not None:
            self._writer.flush()

    def finish(self, ext: Path | None) -> dict[str, int]:
        """There are no more messages: diagnose the queue, and list its unreadable files; its numbers.

        `ext` is the directory of the extensions to which units of plain queues lead, if there are any.
        """
        if self._writer is not None:
            self._writer.finish()
        extension = None
        is_light = self._key.topic.startswith(LIGHT_PREFIX)
        if ext is not None and not (self._is_batch or is_light):
            extension = ExtUnits(ext / self._key.topic / str(self._key.queue_id))
        comparison = UnitComparison(
            self.files, extension, self._log, self.findings, is_schedule=self._key.topic == SCHEDULE_TOPIC
        )
        diagnosis = QueueDiagnosis(
            UnitFiles(self._kept, self._message, ""),
            self._messages,
            self._front.front,
            comparison,
            by_offset=not self._is_batch,
            is_light=is_light,
        )
        numbers = diagnosis.run()
        shutil.rmtree(self._kept, ignore_errors=True)
        for files in (self.files, *([extension.files] if extension else [])):
            faults = {(fault.path, fault.words.expected): fault.words.found for fault in files.faults()}
            for (path, expected), found in (faults | files.problems).items():
                if not self._log.is_live or os.path.exists(path):  # else a broker has just deleted it
                    self.findings.note(Kind.FILE, FoundAt(path), expected, found)
        return {**numbers, "ext_units": comparison.ext_units, "other_delays": comparison.other_delays}


def check_queue_ends(
    plan: QueuePlan, queues: Sequence[tuple[QueueKey, Counter[str]]], log: ScannedLog, findings: Findings
) -> tuple[Counter[str], list[str]]:
    """Report what queues lack at their ends, of all that were checked; sums of their numbers, and notes.

    Added are `lag` and `deleted_topics`, messages without a unit for a reason.
    """
    sums, unknown = Counter[str](queues=len(queues)), Counter[str]()
    # One thread dispatches all messages in their order: behind the last unit of all, units are not missing but late.
    dispatched = -1 if log.is_live else max((counts["last_matched"] for _, counts in queues), default=-1)
    for key, counts in queues:
        sums.update(counts)
        missing = counts["missing_at_end"]
        if missing and key not in plan.existing and plan.is_unknown(key.topic):
            unknown[key.topic] += missing
        elif missing and log.may_lag and counts["first_missing"] > dispatched:
            sums["lag"] += missing
        elif missing:
            at = FoundAt(plan.root / key.path, physical_offset=counts["first_missing"])
            found = "the end of the queue" if key in plan.existing else "no such queue"
            findings.note(Kind.MISSING_UNIT, at, f"{counted(missing, 'unit')} at the end", found, missing)
    for key in sorted(plan.misplaced):
        expected = "a queue of the kind that topics.json gives its topic, as a broker needs to start"
        findings.note(Kind.FILE, FoundAt(plan.root / key.path), expected, f"one in {key.tree}")
    sums.update(deleted_topics=unknown.total())
    return sums, list(_notes(sums, unknown))


def _notes(sums: Counter[str], unknown: Counter[str]) -> Iterator[str]:
    """Notes on what is unusual and yet not wrong."""
    if sums["other_delays"]:
        yield (
            f"the delivery times of {counted(sums['other_delays'], 'unit')} of the schedule topic do not follow from "
            "these delay levels; give those of the broker with --delay-levels"
        )
    if unknown:
        named = ", ".join(sorted(unknown)[:MOST_NAMED]) + (", …" if len(unknown) > MOST_NAMED else "")
        yield f"{counted(unknown.total(), 'message')} of topics that have no queues and are not in topics.json: {named}"
    if sums["stand_ins"]:
        yield f"{counted(sums['stand_ins'], 'unit')} in place of lost messages"
