"""The task that holds a bundle of queues against the log: every unit, and every message that should have one.

A rebuild's blocks of units come in the order of the log, so each queue's messages do. As long as the files of a queue
hold their units byte for byte where a rebuild puts them, they are counted. From the first unit that differs, a queue's
messages are kept in a file, and diagnosed when all are known (:mod:`.diagnose_queue`). Memory: a block, and what is on
its way to those files; 16 bytes for each message that is kept of the queue that is being diagnosed.
"""

import os
import shutil
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from protocol.system_topics import LIGHT_PREFIX, SCHEDULE_TOPIC
from spark_jobs.build.build_queues import HELD_BYTES
from spark_jobs.build.unit_blocks import QueueRun, UnitList, queue_runs
from spark_jobs.doctor.work_files import LogTable, save_findings
from spark_jobs.places.remote_tree import HollowCopy, RemoteTree, named_as
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from storage.build.queue_file_writer import QueueFileWriter
from storage.build.queue_plan import QueueKey
from storage.doctor.finding import Finding, Findings, FoundAt, Kind, Known
from storage.doctor.queues.clean_front import CleanFront, FrontCheck
from storage.doctor.queues.diagnose_queue import QueueDiagnosis
from storage.doctor.queues.ext_units import ExtUnits
from storage.doctor.queues.unit_compare import UnitComparison
from storage.doctor.queues.unit_files import UnitFiles
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE
from storage.queue.queue_files import UNITS_OF_BATCHES, UNITS_OF_PLAIN

PHASE: Final = "check"
REST: Final = "rest"
KEPT_IN_A_FILE: Final = 1 << 20
"""Messages."""


class KnownFront(msgspec.Struct, frozen=True):
    """The queue of a number among those that were checked in parts, and the fields of its CleanFront."""

    number: int
    start: int
    end: int
    last: bytes

    def front(self) -> CleanFront:
        """As :class:`CleanFront`, of units of a plain queue."""
        return CleanFront(self.start, self.end, np.frombuffer(self.last, UNIT_DTYPE).copy())


class CheckQueuesTask(msgspec.Struct, frozen=True):
    """A bundle: the files with its blocks, and the queues (tree, topic, queue id) that the store has of it.

    `store` is its directory or its URL; of one behind a URL `tree` has the files of these queues. `apart` are queues
    (topic, queue id) that are checked in parts; with `rest` the one of `existing` is such a queue, and only what lies
    outside of the front that is known is checked; of its files behind a URL those are fetched that are read for that.
    """

    work: str
    store: str
    tree: RemoteTree | None
    bundle: int
    units: UnitList
    existing: tuple[tuple[str, str, int], ...]
    ext: bool
    limit: int
    apart: tuple[tuple[bytes, int], ...] = ()
    rest: KnownFront | None = None

    @property
    def name(self) -> str:
        """The task's name."""
        if self.rest is not None:
            return f"{REST}-queue-{self.rest.number:05d}"
        return f"{PHASE}-queues-{self.bundle:05d}"

    def has(self, run: QueueRun) -> bool:
        """Whether messages are to be checked."""
        if self.rest is None:
            return run.name not in self.apart
        [names] = self.existing
        return run.key == QueueKey(*names) and (run.first >= self.rest.end or not self.rest.last)


class CheckedQueues(AttemptRecord):
    """The queues of a bundle: tree, topic, queue id and numbers of each, and how many findings it left (`found`)."""

    queues: list[list[Any]]
    found: int


def check_queue_units(task: CheckQueuesTask) -> CheckedQueues:
    """Check the queues of a bundle."""

    def check(attempt: Attempt, notify: Notify) -> CheckedQueues:
        attempt.partial.mkdir()
        root = Path(task.store) if task.tree is None else attempt.partial / "copies"
        copy = None
        if task.tree is not None and task.rest is not None:
            copy = HollowCopy(task.tree, root)
        elif task.tree is not None:
            task.tree.fetch(root)
        findings: list[Finding] = []
        places = QueuePlaces(root, attempt.partial, copy)
        queues = _check_bundle(task, places, LogTable.read(attempt.work), findings, notify)
        shutil.rmtree(attempt.partial)
        return {"queues": queues, "found": save_findings(findings, attempt)}

    return run_attempt(task.work, task.name, check)


class QueuePlaces(NamedTuple):
    """Where queues lie, `root`, and where messages are `kept`; `copy` where queues are hollow until they are read."""

    root: Path
    kept: Path
    copy: HollowCopy | None = None

    def fill(self, path: Path) -> None:
        """Have the content of a file of a queue."""
        if self.copy is not None:
            self.copy.fill(path)


def _check_bundle(
    task: CheckQueuesTask, places: QueuePlaces, log: LogTable, findings: list[Finding], notify: Notify
) -> list[list[Any]]:
    """Check the queues of a bundle side by side."""
    queues: dict[QueueKey, QueueCheck] = {}

    def queue_of(key: QueueKey) -> QueueCheck:
        if key not in queues:
            queues[key] = QueueCheck(task, places, key, log)
        return queues[key]

    units = held = 0
    for block in task.units.blocks(task.bundle, log.end):
        for run in filter(task.has, queue_runs(block, log.end)):
            queue = queue_of(run.key)
            held += queue.put(run)
            units += len(run.units) // queue.files.dtype.itemsize
        if held > HELD_BYTES:
            for queue in queues.values():
                queue.flush()
            held = 0
        notify(units, units)
    for names in task.existing:
        queue_of(QueueKey(*names))
    numbers = [[key.tree, key.topic, key.queue_id, queues[key].finish()] for key in sorted(queues)]
    findings += (each for key in sorted(queues) for each in queues[key].findings.listed())
    return numbers


class QueueCheck:
    """One queue: its messages as they come, held against its files."""

    def __init__(self, task: CheckQueuesTask, places: QueuePlaces, key: QueueKey, log: LogTable) -> None:
        """Nothing is checked yet."""
        self.findings = Findings("queues", Known.READ, task.limit, named_as(places.root, task.store))
        self._root, self._kept = places.root, places.kept / key.path
        self._task, self._key, self._log = task, key, log
        self._is_batch = key.tree == BATCH_CONSUME_QUEUE
        kind = (BATCH_UNIT_DTYPE, UNITS_OF_BATCHES) if self._is_batch else (UNIT_DTYPE, UNITS_OF_PLAIN)
        self.files = UnitFiles(places.root / key.path, *kind, places.fill)
        self._message = np.dtype([("unit", self.files.dtype), ("number", "i8"), ("timestamp", "i8")])
        self._front = FrontCheck(self.files, None if task.rest is None else task.rest.front(), is_batch=self._is_batch)
        self._count = self._messages = 0
        self._writer: QueueFileWriter | None = None

    def put(self, run: QueueRun) -> int:
        """Look at the next messages; the bytes that are kept of them."""
        units = np.frombuffer(run.units, self.files.dtype)
        number = self._count if self._is_batch else run.first
        self._count += len(units)
        if self._writer is None and self._front.stand_in_place(number, units):
            return 0
        if self._writer is None:
            self._writer = QueueFileWriter(self._kept, KEPT_IN_A_FILE * self._message.itemsize)
        messages = np.zeros(len(units), self._message)
        messages["unit"], messages["number"] = units, np.arange(len(units)) + number
        messages["timestamp"] = 0 if run.timestamps is None else run.timestamps
        self._writer.append(messages.tobytes())
        self._messages += len(units)
        return messages.nbytes

    def flush(self) -> None:
        """Bring to the file what is in memory."""
        if self._writer is not None:
            self._writer.flush()

    def finish(self) -> dict[str, int]:
        """There are no more messages: diagnose the queue, and list its unreadable files; its numbers."""
        if self._writer is not None:
            self._writer.finish()
        extension = None
        is_light = self._key.topic.startswith(LIGHT_PREFIX)
        if self._task.ext and not (self._is_batch or is_light):
            extension = ExtUnits(Path(self._root, CONSUME_QUEUE_EXT, self._key.topic, str(self._key.queue_id)))
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
            for (path, expected), found in files.problems.items():
                if not self._log.is_live or os.path.exists(path):  # else a broker has just deleted it
                    self.findings.note(Kind.FILE, FoundAt(path), expected, found)
        return {**numbers, "ext_units": comparison.ext_units, "other_delays": comparison.other_delays}
