"""The task of a run that appends: the messages of a stretch of the log, into a file for each partition of them."""

import contextlib
import os
from collections.abc import Callable
from typing import Any, Final, NotRequired, cast

import msgspec

from spark_jobs.export.export_formats import FORMATS, ParquetPart, PartWriter
from spark_jobs.export.export_part import MOST_PROBLEMS, PartProblem, reported
from spark_jobs.places.hashed_file import HashedFile
from spark_jobs.places.placed_run import PlacedAttempt, PlacedRecord, PlacedRun, run_placed
from spark_jobs.read.log_ranges import LogRange
from spark_jobs.read.read_range import RangeReader
from spark_jobs.run.attempt import AttemptRecord
from spark_jobs.tables._partitions import Partition, check_directory, directory_of, has_room, splitter
from spark_jobs.tables._table import DataFile, FileLayout, TableShape
from storage.columns.mask import read_mask
from storage.columns.message_columns import Columns

BOUNDS: Final = ("physical_offset", "store_timestamp")
"""Columns of which each file has bounds."""

MOST_OPEN: Final = 128
"""Files that a task writes at once; the one that was written to least lately is ended for another one."""

MOST_HELD_BYTES: Final = 256 * 1024 * 1024
"""What a task holds in memory for all its files; the one that holds most is written first."""

PARQUET: Final = "parquet"
ENDINGS: Final = {"iceberg": PARQUET, "delta": PARQUET}
"""How names of files end, and what is written, where that is not the format's own name."""


class AppendTask(msgspec.Struct, frozen=True, kw_only=True):
    """A range of the log to append, with the options of the run.

    `columns` are those of the files. `is_hidden`: objects get numbers for names, which no reader of data files takes
    for one, until they are brought to where they belong; else they are named as they stay.
    """

    name: str
    work: str
    placed: PlacedRun
    range: LogRange
    shape: TableShape
    columns: tuple[str, ...]
    compression: str
    is_hidden: bool
    layout: FileLayout = FileLayout()

    @property
    def ending(self) -> str:
        """The writer's format, and how names of files end."""
        return ENDINGS.get(self.shape.format, self.shape.format)


class AppendedRange(AttemptRecord):
    """What a task did: files as builtins of :class:`DataFile`, and how far it came by physical offset."""

    written: list[dict[str, Any]]
    records: int
    end: int
    log_bytes: int
    hidden_whole: NotRequired[int]
    bodies: list[int]
    problems: list[PartProblem]
    more_problems: int


def append_range(task: AppendTask) -> AppendedRange:
    """Write the files of one stretch under the names of an attempt."""

    def make(attempt: PlacedAttempt) -> PlacedRecord:
        with reported(task.work, attempt) as notify:
            return cast("PlacedRecord", _append(task, attempt, notify))

    return cast("AppendedRange", run_placed(task.placed, task.name, (), make))


def _append(task: AppendTask, attempt: PlacedAttempt, notify: Callable[[int, int], None]) -> AppendedRange:
    more = tuple(name for name in BOUNDS if name not in task.columns)
    mask = read_mask(task.shape.masked) if task.shape.masked else None
    names = (*task.columns, *more)
    names = names if mask is None else mask.reading(names)
    reader = RangeReader(task.range, task.shape.wanted, names, content=task.shape.content)
    origin = task.range.base_offset + task.range.start
    with contextlib.closing(_PartitionFiles(task, attempt)) as files:
        for partition, columns in reader.read_split(splitter(task.shape.partition_by)):
            bounds = {name: _bounds(columns[name]) for name in BOUNDS}
            for name in more:
                del columns[name]
            files.write(partition, columns if mask is None else mask.apply(columns, task.columns), bounds)
            notify(bounds["physical_offset"][1] - origin, reader.messages)
        written = files.finish()
    notify(task.range.size, reader.messages)
    return {
        "written": [msgspec.to_builtins(each) for each in written],
        "records": reader.messages,
        "end": reader.end,
        "log_bytes": reader.end - origin,
        "hidden_whole": 0 if mask is None else mask.hidden_whole,
        "bodies": list(reader.bodies),
        "problems": [msgspec.to_builtins(problem) for problem in reader.problems[:MOST_PROBLEMS]],
        "more_problems": max(len(reader.problems) - MOST_PROBLEMS, 0),
    }


def _bounds(column: Any) -> tuple[int, int]:
    return int(column.min()), int(column.max())


class _OpenFile:
    """A file of a partition that is being written."""

    def __init__(self, task: AppendTask, attempt: PlacedAttempt, partition: Partition, number: int) -> None:
        values = partition.values()
        origin = task.range.base_offset + task.range.start
        token = os.path.basename(attempt.directory).rpartition(".")[2]
        directory = directory_of(values)
        name = f"part-{origin:020d}-{token}-{number:05d}.{task.ending}"
        self.name = f"{directory}/{name}" if directory else name
        self._values, self._rows = values, 0
        self._bounds: dict[str, tuple[int, int]] = {}
        self._stack = contextlib.ExitStack()
        if task.is_hidden:
            own = f"{number:05d}"
            check_directory(directory)
        else:
            own = self.name if has_room(directory) else name
        self._written = f"{attempt.directory}/{own}"
        file, self._commit = self._stack.enter_context(attempt.writing(own))
        self._file: HashedFile = file
        self.writer = _writer(task, cast("Any", file))

    def write(self, columns: Columns, bounds: dict[str, tuple[int, int]]) -> None:
        """Write some rows."""
        self.writer.write(columns)
        self._rows += columns.count
        for name, (low, high) in bounds.items():
            lowest, highest = self._bounds.get(name, (low, high))
            self._bounds[name] = min(low, lowest), max(high, highest)

    def finish(self) -> DataFile:
        """Finish the file, so that it may be committed."""
        with self._stack:
            try:
                self.writer.close()
            except BaseException:
                self.writer.discard()
                raise
            self._commit()
            return DataFile(
                name=self.name,
                written=self._written,
                partition=self._values,
                rows=self._rows,
                bytes=self._file.size,
                sha256=self._file.sha256,
                bounds=self._bounds,
            )

    def discard(self) -> None:
        """Leave nothing of it."""
        self.writer.discard()
        self._stack.close()


def _writer(task: AppendTask, file: Any) -> PartWriter:
    if task.ending != PARQUET:
        return FORMATS[task.ending](file, task.columns, task.compression)
    from spark_jobs.tables._parquet_layout import parquet_schema  # other formats need no pyarrow

    return ParquetPart(file, task.columns, task.compression, parquet_schema(task.columns, task.layout))


class _PartitionFiles:
    """The files of a task, of which some are open."""

    def __init__(self, task: AppendTask, attempt: PlacedAttempt) -> None:
        self._task, self._attempt = task, attempt
        self._open: dict[Partition, _OpenFile] = {}
        self._finished: list[DataFile] = []
        self._numbers = iter(range(2**31))
        self._held = 0

    def write(self, partition: Partition, columns: Columns, bounds: dict[str, tuple[int, int]]) -> None:
        """Write some rows of a partition."""
        file = self._open.pop(partition, None)
        if file is None:
            if len(self._open) >= MOST_OPEN:
                self._end(next(iter(self._open)))
            file = _OpenFile(self._task, self._attempt, partition, next(self._numbers))
        self._open[partition] = file  # the last one: it was written to just now
        before = file.writer.held_bytes
        file.write(columns, bounds)
        self._held += file.writer.held_bytes - before
        while self._held > MOST_HELD_BYTES:
            largest = max(self._open.values(), key=lambda each: each.writer.held_bytes)
            self._held -= largest.writer.held_bytes
            largest.writer.flush()

    def finish(self) -> list[DataFile]:
        """End all files."""
        for partition in list(self._open):
            self._end(partition)
        return self._finished

    def _end(self, partition: Partition) -> None:
        file = self._open.pop(partition)
        self._held -= file.writer.held_bytes
        self._finished.append(file.finish())

    def close(self) -> None:
        """Remove unfinished files."""
        with contextlib.ExitStack() as stack:  # each of them, also where one cannot be removed
            for file in self._open.values():
                stack.callback(file.discard)
