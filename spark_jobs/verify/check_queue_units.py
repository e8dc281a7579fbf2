"""The task that holds a bundle of queues against the log: every unit, and every message that should have one.

Blocks of units come in the order of the log, so each queue's messages do; of its files the units in their places are
read beside them. Memory: a block, and for each queue the messages for which no place was found yet, up to a limit.
"""

import os
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from spark_jobs.build.build_queues import UnitBlocks, blocks_before
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.blocks import Block
from spark_jobs.verify.ext_units import ExtUnits
from spark_jobs.verify.findings import FILE, FINDINGS, Discrepancies, FoundAt
from spark_jobs.verify.log_table import LogTable
from spark_jobs.verify.numbering import Numbering
from spark_jobs.verify.queue_check import QueueCheck
from spark_jobs.verify.unit_compare import UnitComparison
from spark_jobs.verify.unit_files import UnitFiles
from storage.build.dispatch_scan import BATCH, PLAIN
from storage.build.queue_plan import QueueKey, directory_name
from storage.build.queue_units import units_before
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE
from storage.queue.queue import SCHEDULE_TOPIC
from storage.queue.queue_files import UNITS_OF_BATCHES, UNITS_OF_PLAIN
from storage.queue.queue_record import LIGHT_PREFIX

PHASE: Final = "check"


class CheckQueuesTask(msgspec.Struct, frozen=True):
    """A bundle: its blocks in the order of the log, and the queues (tree, topic, queue id) that the store has of it."""

    work: str
    store: str
    bundle: int
    units: tuple[UnitBlocks, ...]
    existing: tuple[tuple[str, str, int], ...]
    ext: bool
    limit: int

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-queues-{self.bundle:05d}"


class CheckedQueues(AttemptRecord):
    """The queues of a bundle: tree, topic, queue id and numbers of each; `counts` of what is wrong, by kind."""

    queues: list[list[Any]]
    counts: dict[str, int]


def check_queue_units(task: CheckQueuesTask) -> CheckedQueues:
    """Check the queues of a bundle."""

    def check(attempt: Attempt, notify: Notify) -> CheckedQueues:
        findings = Discrepancies(task.limit)
        queues = BundleCheck(task, LogTable.read(attempt.work), findings, notify).run()
        return {"queues": queues, "counts": findings.save(attempt.blocks(FINDINGS))}

    return run_attempt(task.work, task.name, check)


class BundleCheck:
    """The queues of one bundle, all being checked side by side."""

    def __init__(self, task: CheckQueuesTask, log: LogTable, findings: Discrepancies, notify: Notify) -> None:
        """Nothing is checked yet; `notify` is called with the number of units, twice."""
        self._task, self._log, self._findings, self._notify = task, log, findings, notify
        self._checks: dict[QueueKey, _CheckedQueue] = {}
        self._nameless = 0

    def run(self) -> list[list[Any]]:
        """Check them all."""
        units = 0
        for block in blocks_before(self._task.units, self._log.end):
            units += self._put(block)
            self._notify(units, units)
        for tree, topic, queue_id in self._task.existing:
            self._check(QueueKey(tree, topic, queue_id))
        return [[key.tree, key.topic, key.queue_id, self._finish(key)] for key in sorted(self._checks)]

    def _put(self, block: Block) -> int:
        """Hand out the runs of a block; how many units there were."""
        queues = [(bytes(topic), int(queue_id)) for topic, queue_id in block.header["queues"]]
        units, timestamps = block.columns["units"].data, block.columns["timestamps"]
        is_cut = block.header["range"][1] > self._log.end
        position = number = 0
        for queue, kind, first, count in block.columns["runs"].reshape(-1, 4).tolist():
            dtype = BATCH_UNIT_DTYPE if kind == BATCH else UNIT_DTYPE
            run = units[position : position + count * dtype.itemsize]
            position += count * dtype.itemsize
            run = units_before(run, dtype.itemsize, self._log.end) if is_cut else run
            name = directory_name(queues[queue][0])
            if len(run) and name is not None:
                tree = BATCH_CONSUME_QUEUE if kind == BATCH else CONSUME_QUEUE
                stamps = timestamps[number : number + count] if timestamps.size and kind == PLAIN else None
                check = self._check(QueueKey(tree, name, queues[queue][1]))
                check.queue.put_run(first, np.frombuffer(run, dtype), stamps)
            number += count
        return number

    def _check(self, key: QueueKey) -> "_CheckedQueue":
        if key not in self._checks:
            self._checks[key] = _CheckedQueue(self._task, key, self._log, self._findings)
        return self._checks[key]

    def _finish(self, key: QueueKey) -> dict[str, int]:
        """Finish the check of a queue; returns its numbers, and lists its unreadable files."""
        check = self._checks[key]
        counts = check.queue.finish()
        for files in check.files:
            for path, (expected, found) in files.problems.items():
                if not self._log.is_live or os.path.exists(path):  # else a broker has just deleted it
                    self._findings.add(FILE, FoundAt(path), expected, found)
        return {**counts, "ext_units": check.comparison.ext_units, "other_delays": check.comparison.other_delays}


class _CheckedQueue:
    """One queue, its files, and what compares them."""

    def __init__(self, task: CheckQueuesTask, key: QueueKey, log: LogTable, findings: Discrepancies) -> None:
        root, is_batch = Path(task.store), key.tree == BATCH_CONSUME_QUEUE
        kind = (BATCH_UNIT_DTYPE, UNITS_OF_BATCHES) if is_batch else (UNIT_DTYPE, UNITS_OF_PLAIN)
        units = UnitFiles(root / key.path, *kind)
        extension = None
        if task.ext and not is_batch:
            extension = ExtUnits(root / CONSUME_QUEUE_EXT / key.topic / str(key.queue_id))
        self.files = [units, *([extension.files] if extension else [])]
        self.comparison = UnitComparison(units, extension, findings, is_schedule=key.topic == SCHEDULE_TOPIC)
        is_light = key.topic.startswith(LIGHT_PREFIX)
        numbering = Numbering(log, findings, by_offset=not is_batch, is_light=is_light)
        self.queue = QueueCheck(units, numbering, self.comparison, log, findings)
