"""Follow a growing store as a Spark stream: each micro-batch is what came to the log since the last one.

The offset of the stream is the physical offset behind the last record that was read, so that a query that is started
again goes on where it was, and a micro-batch that is read again has the same rows.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from protocol.errors import ConfigError, StoreError
from spark_jobs.read._batch_limits import BatchLimits
from spark_jobs.read.data_source import LogPartition, check_schema, read_partition
from spark_jobs.read.log_ranges import LogRanges, Problem, end_of, find_ranges
from spark_jobs.read.read_range import check_problems, report_problems
from spark_jobs.read.source_options import DAMAGE, DataSourceOptions
from spark_jobs.run.arrival import Sendable

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, which reads all that is there as one micro-batch

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for what this Spark does not have."""


OFFSET = "physical_offset"

Offset = dict[str, int]


def stream_reader_of(options: DataSourceOptions, schema: StructType) -> "MessageStreamReader":
    """A reader that follows a store, of columns that the schema names."""
    if options.table == DAMAGE:
        raise ConfigError("table: damage cannot be followed, only read")
    return MessageStreamReader(options, check_schema(schema))


class MessageStreamReader(Sendable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what came, a task for each segment that holds some of it."""

    def __init__(self, options: DataSourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._limits = BatchLimits.of(options)
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 — pyspark's name
        """Where a new query starts: the log's start, its end, or a physical offset where a record starts."""
        starting = self._options.starting_offset
        if starting == "earliest":
            return {OFFSET: self._find().minimum}
        return {OFFSET: self._end(self._find(), 0) if starting == "latest" else int(starting)}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802 — pyspark's name
        """Where the log ends now, or what one micro-batch may hold of it."""
        found = self._find()
        if start is None:  # Spark before 4.2
            return {OFFSET: self._end(found, 0)}
        at = start[OFFSET]
        end = self._end(found, at)
        if self._target is not None:
            end = min(end, max(self._target, at))
        if end < at:
            self._complain(f"the log ends at {end}, but was read up to {at}: it was truncated")
        elif type(limit).__name__ != "ReadAllAvailable":
            end = self._limits.cut(found, at, end)
        return {OFFSET: max(end, at)}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 — pyspark's name
        """What the options say of a micro-batch: Spark takes one limit, and :meth:`latestOffset` heeds them all."""
        from pyspark.sql.streaming import datasource  # from Spark 4.2 on

        limits = self._limits
        if limits.segments is not None:
            return datasource.ReadMaxFiles(limits.segments)
        if limits.log_bytes is not None:
            return datasource.ReadMaxBytes(limits.log_bytes)
        if limits.records is not None:
            return datasource.ReadMaxRows(limits.records)
        return datasource.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 — pyspark's name
        """Note where the log ends: what comes later is for the next query."""
        self._target = self._end(self._find(), 0)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """What lies between two offsets."""
        found = self._find()
        if start[OFFSET] < found.minimum and start[OFFSET] < end[OFFSET]:
            lost = found.minimum - start[OFFSET]
            self._complain(f"{lost} bytes from physical offset {start[OFFSET]} on have expired")
        check_problems(_within(found, start[OFFSET], end[OFFSET]), fails_fast=self._options.fails_fast)
        # Read only up to the end that was returned before: the last segment has grown since.
        return [LogPartition(each) for each in found.within(start[OFFSET], end[OFFSET])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one stretch."""
        return read_partition(partition, self._options, self._schema)

    def _find(self) -> LogRanges:
        found = find_ranges(self._options.path, self._options.commit_log, self._options.storage)
        if found.tier is not None:
            raise ConfigError(
                f"{self._options.path} holds tiered files, a log for each queue: read it by spark.read, not as a stream"
            )
        return found

    def _end(self, found: LogRanges, start: int) -> int:
        """Physical offset behind the last record; behind a URL it has to be looked for."""
        last = found.ranges[-1]
        if not last.is_last:
            return found.end
        (rest,) = found.within(max(start, last.base_offset), found.end) or (None,)
        return found.end if rest is None else last.base_offset + end_of(rest)

    def _complain(self, reason: str) -> None:
        if self._options.fails_fast:
            raise StoreError(self._options.path, what=reason)
        report_problems([Problem(self._options.path, 0, 0, reason)])


def _within(found: LogRanges, start: int, end: int) -> LogRanges:
    """Leave out the problems that do not end between two physical offsets."""
    return LogRanges(found.ranges, found.problems_within(start, end))
