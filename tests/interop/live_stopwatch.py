"""How soon a server that follows a live store finds what the broker writes."""

import contextlib
import mmap
import os
import time
from collections.abc import Iterable
from pathlib import Path

from interop.live_readers import PATIENCE_SECONDS, Address, Consumer, Worker, ways
from oracles import Record, read_record, scan_segment

UNIT_BYTES = 20
COPIED_LAST = {"KEYS", "TAGS", "UNIQ_KEY"}
"""A record may be seen before its properties are: a broker copies them last, and the checksum is one of the body."""
FULL_SEGMENT = b"\xcb\xd4\x31\x94"
"""The magic number of what fills a segment up."""


def has_records(segment: Path) -> bool:
    """Whether a segment is there and was written to."""
    try:
        with segment.open("rb") as file:
            return any(file.read(8))
    except FileNotFoundError:
        return False


class Stopwatch(Worker):
    """Measures how long after a record can be read in the log's file each way of asking finds it, in seconds.

    What explains a long time is measured too: how long the broker takes to write the queue's unit, without which no
    pull finds the record, how long an answer takes, and how long this thread is kept from asking again.
    """

    def __init__(self, address: Address, store: Path, queue_file_size: int) -> None:
        super().__init__(address)
        self._commit_log, self._queues, self._queue_file_size = (
            store / "commitlog",
            store / "consumequeue",
            queue_file_size,
        )
        self.measured: dict[str, list[float]] = {}
        self.unit_written: list[float] = []
        self.answer_took: list[float] = []
        self.kept_from_asking: list[float] = []
        self.since_stored: list[float] = []
        """Of every message that a consumer waited for: from the broker's taking it to the consumer's having it."""
        self.readable: dict[int, float] = {}
        """When the records at these physical offsets could be read."""

    def work(self) -> None:
        while not self.is_over:
            appended = self._next()
            if appended is not None:
                self._measure(*appended)
            time.sleep(0.05)

    def _next(self) -> tuple[Record, float] | None:
        """The next record that comes to the log, and when it could be read."""
        path = max(path for path in self._commit_log.iterdir() if has_records(path))
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            base = int(path.name)
            end = sum(record.total_size for record in scan_segment(view[:], base))
            while not self.is_over:
                if any(view[end : end + 8]):
                    record = read_record(view[end:], 0, base + end)
                    if record is not None and record.properties.keys() >= COPIED_LAST:
                        return record, time.monotonic()
                    if record is not None and any(view[end + record.total_size :][:8]):  # one of the broker's own
                        end += record.total_size
                    if view[end + 4 : end + 8] == FULL_SEGMENT:
                        return None
                time.sleep(0.0005)
        return None

    def add_waiting(self, consumers: Iterable[Consumer]) -> None:
        """Add how long after a record became readable the consumers that waited for it in a pull received it."""
        every = [received for consumer in consumers for received in consumer.awaited]
        self.since_stored = [received.since_stored for received in every]
        self.measured["held pull"] = [
            received.at - self.readable[received.physical_offset]
            for received in every
            if received.physical_offset in self.readable
        ]

    def _measure(self, record: Record, readable: float) -> None:
        self.readable[record.physical_offset] = readable
        properties = record.properties
        left = ways(
            record.topic, properties["KEYS"], properties["UNIQ_KEY"], properties["TAGS"], record.queue_id,
            record.queue_offset, record.physical_offset,
        )  # fmt: skip
        has_unit, before = False, readable
        while left and time.monotonic() < readable + PATIENCE_SECONDS:
            for name, (code, fields) in list(left.items()):
                asked = time.monotonic()
                answer = self.asker.ask(code, fields)
                answered = time.monotonic()
                self.kept_from_asking.append(asked - before)
                self.answer_took.append(answered - asked)
                before = answered
                if not answer.code and properties["UNIQ_KEY"].encode() in answer.body:
                    del left[name]
                    self.measured.setdefault(name, []).append(answered - readable)
                if not has_unit and self._has_unit(record):
                    has_unit = True
                    self.unit_written.append(answered - readable)
            time.sleep(0.001)
        if left:
            self.problems.append(f"{list(left)} did not find the record at {record.physical_offset}")

    def _has_unit(self, record: Record) -> bool:
        """Whether the record's queue has a unit of it, in its file."""
        position = record.queue_offset * UNIT_BYTES
        inside = position % self._queue_file_size
        path = self._queues / record.topic / str(record.queue_id) / f"{position - inside:020d}"
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            return any(os.pread(file.fileno(), UNIT_BYTES, inside))
        return False
