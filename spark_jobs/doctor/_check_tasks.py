"""The tasks of a deep check: each reads files of a store for a check of :mod:`storage.doctor`, beside the scanned log.

A rebuild's blocks of units come in the order of the log, so each queue's messages do: the check of queues takes them as
they come. Memory of such a task: a block, and what that check keeps.

An index file is read into memory whole. Beside it stand the slots of its image and one block of the log's keys: 460 MB
for a full file of a broker's default size. For a file that is not as a rebuild makes it, 16 bytes for each entry are
added, 20 if its entries do not ascend: 800 MB and 900 MB.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from spark_jobs.build.build_queues import HELD_BYTES, BuiltPart
from spark_jobs.build.unit_blocks import QueueRun, UnitList, queue_runs
from spark_jobs.doctor._read_log import LogTable
from spark_jobs.places.hollow_copy import HollowCopy
from spark_jobs.places.remote_file import RemoteObject
from spark_jobs.places.remote_tree import RemoteTree, local_copy, named_as
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, block_file, run_attempt
from spark_jobs.run.work_directory import WorkDirectory
from storage.build.queue_plan import QueueKey
from storage.doctor.finding import Finding, Findings, Known
from storage.doctor.index.index_files import MissingKeys, UncoveredKeys, check_file, count_missing
from storage.doctor.queues.clean_front import CleanFront, FrontCheck
from storage.doctor.queues.queue_files import QueueCheck
from storage.doctor.queues.unit_files import KINDS, UnitFiles
from storage.layout.store_layout import CONSUME_QUEUE, CONSUME_QUEUE_EXT
from storage.queue.consume_queue import UNIT_DTYPE

PHASE: Final = "check"
REST: Final = "rest"
FINDINGS: Final = "findings"
"""The kind of file in which a task leaves what it found."""


class CheckIndexTask(msgspec.Struct, frozen=True):
    """A file to be checked. `slots`: the slot count of most files; `grows`: a broker still puts entries into it.

    `previous`: end timestamp and end physical offset in the header of the file before, None for the first. `remote`:
    how the file was listed, if its path is a URL.
    """

    work: str
    path: str
    remote: RemoteObject | None
    slots: int
    previous: tuple[int, int] | None
    grows: bool
    limit: int

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-index-{Path(self.path).name}"

    def check(self, log: LogTable, attempt: Attempt, notify: Notify) -> "CheckedIndexFile":
        """Check the file."""
        with local_copy(self.path, self.remote) as path:
            findings = Findings("index-files", Known.READ, self.limit, named_as(path, self.path))
            stretch, numbers = check_file(
                path, log, findings, slots=self.slots, previous=self.previous, grows=self.grows
            )
        notify(numbers["entries"], numbers["entries"])
        found = _leave(findings.listed(), attempt)
        return {"path": self.path, "stretch": list(stretch), "numbers": numbers, "found": found}


class CheckedIndexFile(AttemptRecord):
    """The fields of an index file's `stretch`, how many entries are of which sort, and how many findings there are."""

    path: str
    stretch: list[Any]
    numbers: dict[str, int]
    found: int


class CheckQueuesTask(msgspec.Struct, frozen=True):
    """A bundle: the files with its blocks, and the queues (tree, topic, queue id) that the store has of it.

    `store` is its directory or its URL; of one behind a URL `tree` has the files of these queues. `apart` are queues
    (topic, queue id) that are checked in parts; with `rest` the one of `existing` is such a queue, the one of a number,
    and only what lies outside of the front that is known is checked; of its files behind a URL those are fetched that
    are read for that.
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
    rest: CleanFront | None = None
    rest_number: int = -1

    @property
    def name(self) -> str:
        """The task's name."""
        if self.rest is not None:
            return f"{REST}-queue-{self.rest_number:05d}"
        return f"{PHASE}-queues-{self.bundle:05d}"

    def check(self, log: LogTable, attempt: Attempt, notify: Notify) -> "CheckedQueues":
        """Check the queues, side by side; those without messages, too."""
        kept, queues = attempt.partial, dict[QueueKey, QueueCheck]()
        kept.mkdir()
        root, fill = _placed(self.tree, self.store, kept / "copies", hollow=self.rest is not None)
        named = named_as(root, self.store)

        def queue_of(key: QueueKey) -> QueueCheck:
            if key not in queues:
                findings = Findings("queues", Known.READ, self.limit, named)
                files = UnitFiles(root / key.path, *KINDS[key.tree], fill)
                queues[key] = QueueCheck(files, key, kept, log, findings, self.rest)
            return queues[key]

        units = held = 0
        for runs in _runs_of_blocks(self.units, self.bundle, log.end):
            for run in filter(self._has, runs):
                queue = queue_of(run.key)
                held += queue.put(run.first, run.units, run.timestamps)
                units += len(run.units) // queue.files.dtype.itemsize
            if held > HELD_BYTES:
                for queue in queues.values():
                    queue.flush()
                held = 0
            notify(units, units)
        for names in self.existing:
            queue_of(QueueKey(*names))
        ext = root / CONSUME_QUEUE_EXT if self.ext else None
        numbers = [[key.tree, key.topic, key.queue_id, queues[key].finish(ext)] for key in sorted(queues)]
        found = _leave([each for key in sorted(queues) for each in queues[key].findings.listed()], attempt)
        shutil.rmtree(kept)
        return {"queues": numbers, "found": found}

    def _has(self, run: QueueRun) -> bool:
        """Whether messages are to be checked."""
        if self.rest is None:
            return run.name not in self.apart
        [names] = self.existing
        return run.key == QueueKey(*names) and (run.first >= self.rest.end or not self.rest.last)


class CheckedQueues(AttemptRecord):
    """The queues of a bundle: tree, topic, queue id and numbers of each, and how many findings there are."""

    queues: list[list[Any]]
    found: int


class CheckPartTask(msgspec.Struct, frozen=True):
    """A part of a queue of the store at a path, and the segments that have units of it.

    Of a store behind a URL `tree` has the files of the queue in which the part's units may be.
    """

    work: str
    store: str
    bundle: int
    units: UnitList
    part: BuiltPart
    tree: RemoteTree | None = None

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-part-{self.bundle:05d}-{self.part.number:05d}"

    def check(self, log: LogTable, attempt: Attempt, notify: Notify) -> "CheckedPart":
        """See how far the units of the part are in their places."""
        part = self.part
        key = QueueKey(CONSUME_QUEUE, part.topic.decode(), part.queue_id)
        root, fill = _placed(self.tree, self.store, attempt.partial, hollow=True)
        front = FrontCheck(UnitFiles(root / key.path, *KINDS[CONSUME_QUEUE], fill))
        is_clean = self._is_clean(front, log.end, notify)
        shutil.rmtree(attempt.partial, ignore_errors=True)
        start, end, last = msgspec.structs.astuple(front.front)
        return {"start": start, "end": end, "last": last, "is_clean": is_clean}

    def _is_clean(self, front: FrontCheck, end: int, notify: Notify) -> bool:
        """Whether all units of the part are in their places; the first that is not ends the task."""
        part, units = self.part, 0
        for runs in _runs_of_blocks(self.units, self.bundle, end):
            for run in runs:
                if run.name == (part.topic, part.queue_id) and part.first <= run.first < part.stop:
                    messages = np.frombuffer(run.units, UNIT_DTYPE)
                    if not front.stand_in_place(run.first, messages):
                        return False
                    units += len(messages)
            notify(units, units)
        return True


class CheckedPart(AttemptRecord):
    """The units of a part that are as they should be: the fields of a CleanFront, its last unit as bytes.

    `is_clean`: they are all that the part has. A run of messages is of the part in which it begins, up to its end.
    """

    start: int
    end: int
    last: bytes
    is_clean: bool


CheckTask: TypeAlias = CheckIndexTask | CheckQueuesTask | CheckPartTask
Checked: TypeAlias = CheckedIndexFile | CheckedQueues | CheckedPart


def check(task: CheckTask) -> Checked:
    """Run a task of any kind: they are run together, so that no core waits for the last of one."""
    return run_attempt(
        task.work, task.name, lambda attempt, notify: task.check(LogTable.read(attempt.work), attempt, notify)
    )


class GapTask(msgspec.Struct, frozen=True):
    """A gap of which the keys are to be counted."""

    work: str
    gap: UncoveredKeys


def count_gap(task: GapTask) -> MissingKeys:
    """Count the keys of a gap that count as missing."""
    return count_missing(LogTable.read(WorkDirectory(Path(task.work))), task.gap)


def found_by(work: WorkDirectory, record: CheckedIndexFile | CheckedQueues) -> list[Finding]:
    """The findings that a task has left."""
    if not record["found"]:
        return []
    return msgspec.msgpack.decode(block_file(work, record, FINDINGS).read_bytes(), type=list[Finding])


def _leave(findings: Sequence[Finding], attempt: Attempt) -> int:
    """Write what a task found to a file of the attempt; how many there are."""
    _write(attempt.blocks(FINDINGS), msgspec.msgpack.encode(findings))
    return len(findings)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _placed(tree: RemoteTree | None, store: str, copies: Path, *, hollow: bool) -> tuple[Path, Callable[[Path], None]]:
    """The directory with the files of queues, and what has the content of a file: those behind a URL are copied.

    Copies that are `hollow` are filled when they are read.
    """
    if tree is None:
        return Path(store), lambda _: None
    if hollow:
        return copies, HollowCopy(tree, copies).fill
    tree.fetch(copies)
    return copies, lambda _: None


def _runs_of_blocks(units: UnitList, bundle: int, end: int) -> Iterator[Iterator[QueueRun]]:
    """The runs of each block of a bundle."""
    return (queue_runs(block, end) for block in units.blocks(bundle, end))
