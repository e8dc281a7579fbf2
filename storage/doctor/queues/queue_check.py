"""One queue beside the messages of the log, which come in their order.

As long as the files of a queue hold their units byte for byte where a rebuild puts them, they are counted: they are its
clean front. From the first unit that differs, the messages are kept in a file, and diagnosed when all are known
(:mod:`.diagnose_queue`). Memory: what is on its way to that file; 16 bytes for each message that is kept while the
queue is diagnosed.
"""

import os
import shutil
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.system_topics import LIGHT_PREFIX, SCHEDULE_TOPIC
from storage.build.queue_file_writer import QueueFileWriter
from storage.build.queue_plan import QueueKey
from storage.doctor.finding import Findings, FoundAt, Kind
from storage.doctor.log.scanned_log import ScannedLog
from storage.doctor.queues.clean_front import CleanFront, FrontCheck
from storage.doctor.queues.diagnose_queue import QueueDiagnosis
from storage.doctor.queues.ext_units import ExtUnits
from storage.doctor.queues.unit_compare import UnitComparison
from storage.doctor.queues.unit_files import UnitFiles
from storage.layout.store_layout import BATCH_CONSUME_QUEUE

KEPT_IN_A_FILE: Final = 1 << 20
"""Messages."""


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
        self._front = FrontCheck(self.files, front, is_batch=self._is_batch)
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
        """Bring to the file what is in memory."""
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
