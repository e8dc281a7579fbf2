"""Small files of a partition put together: what many short runs have left is read as fast as what one long run would.

Files are taken in the order in which their messages lie in the log, and written as one file with all their columns.
"""

import contextlib
import csv
import io
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, Final, TypeAlias, TypedDict, cast

import msgspec

from protocol.errors import StoreError
from spark_jobs.export.export_formats import ParquetPart, csv_names
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.placed_run import PlacedAttempt, PlacedRecord, PlacedRun, run_placed
from spark_jobs.tables._partitions import directory_of
from spark_jobs.tables._table import DataFile, FileLayout

SMALL: Final = 2
"""A file is small where at least so many of it would fit into one of the bytes that are wanted."""

DATA_DIRECTORY: Final = "data"
"""Where in a table of files that lies which readers read."""
PLACE: Final = "physical_offset"
_BLOCK: Final = 8 * 1024 * 1024
LARGEST_FIELD: Final = 2**31 - 1
"""Bytes of a body, beyond what Python's reader of CSV takes by itself."""


class CompactTask(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one partition, below the URL of a table, that become one of these columns."""

    name: str = ""
    placed: PlacedRun
    table: str
    files: tuple[DataFile, ...] = ()
    columns: tuple[str, ...]
    format: str
    compression: str
    layout: FileLayout = FileLayout()


class CompactedFile(TypedDict):
    """The new file, as builtins of a :class:`DataFile`."""

    file: dict[str, Any]


RunAll: TypeAlias = Callable[[Sequence[CompactTask], Callable[[CompactTask], CompactedFile]], list[CompactedFile]]
"""Runs tasks that put files together."""


def choose_files(files: Iterable[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Choose small files to merge into ones of at most `target_bytes`, in log order; no file alone."""
    partitions: defaultdict[str, list[DataFile]] = defaultdict(list)
    for each in files:
        if each.bytes * SMALL <= target_bytes:
            partitions[directory_of(each.partition)].append(each)
    chosen: list[list[DataFile]] = []
    for small in partitions.values():
        group: list[DataFile] = []
        for each in sorted(small, key=lambda file: (file.bounds.get(PLACE, (0, 0)), file.name)):
            if sum(file.bytes for file in group) + each.bytes > target_bytes:
                chosen.append(group)
                group = []
            group.append(each)
        chosen.append(group)
    return [group for group in chosen if len(group) > 1]


def put_together(chosen: Sequence[Sequence[DataFile]], like: CompactTask, run_all: RunAll) -> list[DataFile]:
    """Merge each group of files into one, with a task for each group; the new files."""
    tasks = [
        msgspec.structs.replace(like, name=f"compact-{number:05d}", files=tuple(each))
        for number, each in enumerate(chosen)
    ]
    return [msgspec.convert(each["file"], DataFile) for each in run_all(tasks, compact_files)]


def compact_files(task: CompactTask) -> CompactedFile:
    """Write the files of a task as one."""

    def make(attempt: PlacedAttempt) -> PlacedRecord:
        return cast("PlacedRecord", _compact(task, attempt))

    return cast("CompactedFile", run_placed(task.placed, task.name, (), make))


def _compact(task: CompactTask, attempt: PlacedAttempt) -> CompactedFile:
    place = OutputPlace(task.table, task.placed.storage)
    first = task.files[0]
    token = os.path.basename(attempt.directory).rpartition(".")[2]
    begin = first.bounds.get(PLACE, (0, 0))[0]
    name = os.path.join(os.path.dirname(first.name), f"part-{begin:020d}-{token}-00000.{task.format}")
    with attempt.writing("00000") as (file, commit):
        rows = _WRITE[task.format](place, task, cast("IO[bytes]", file))
        expected = sum(each.rows for each in task.files)
        if rows not in (expected, None):
            what = "the files of the partition do not have the messages that their commits name"
            raise StoreError(place.path(first.name), what=what, expected=expected, found=rows)
        commit()
        made = DataFile(
            name=name,
            written=f"{attempt.directory}/00000",
            partition=first.partition,
            rows=expected,
            bytes=file.size,
            sha256=file.sha256,
            bounds={
                column: (
                    min(each.bounds[column][0] for each in task.files),
                    max(each.bounds[column][1] for each in task.files),
                )
                for column in first.bounds
            },
        )
    return {"file": msgspec.to_builtins(made)}


def _opened(place: OutputPlace, files: Sequence[DataFile]) -> Iterator[Any]:
    for each in files:
        with place.reading(f"{DATA_DIRECTORY}/{each.name}") as file:
            yield file


def _write_parquet(place: OutputPlace, task: CompactTask, file: IO[bytes]) -> int:
    """Row groups of one file after the other; a column that came later is null before."""
    import pyarrow as pa  # other formats do not need it
    import pyarrow.parquet as pq

    from spark_jobs.tables._parquet_layout import parquet_schema

    everywhere = set(task.columns)
    for source in _opened(place, task.files):
        everywhere &= set(pq.read_schema(source).names)
    fields = parquet_schema(task.columns, task.layout)
    schema = pa.schema([each.with_nullable(each.nullable or each.name not in everywhere) for each in fields])
    rows = 0
    writer = ParquetPart(file, task.columns, task.compression, schema)
    try:
        for source in _opened(place, task.files):
            with contextlib.closing(pq.ParquetFile(source)) as parquet:
                for batch in parquet.iter_batches():
                    rows += batch.num_rows
                    writer.write_batch(_with_columns(batch, schema))
        writer.close()
    except BaseException:
        writer.discard()
        raise
    return rows


def _with_columns(batch: Any, schema: Any) -> Any:
    import pyarrow as pa  # as above

    there = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in there else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _write_lines(place: OutputPlace, task: CompactTask, file: IO[bytes]) -> int:
    rows = 0
    for source in _opened(place, task.files):
        while block := source.read(_BLOCK):
            rows += block.count(b"\n")
            file.write(block)
    return rows


def _write_csv(place: OutputPlace, task: CompactTask, file: IO[bytes]) -> None:
    """The lines behind the header, whose number says nothing: a body may have line ends.

    Where a column came later, all rows are written anew.
    """
    headers = {source.readline() for source in _opened(place, task.files)}
    if len(headers) > 1:
        _write_rows(place, task, file)
        return
    file.write(headers.pop())
    for source in _opened(place, task.files):
        source.readline()
        while block := source.read(_BLOCK):
            file.write(block)


def _write_rows(place: OutputPlace, task: CompactTask, file: IO[bytes]) -> None:
    text = io.StringIO()
    names = csv_names(task.columns)
    writer = csv.DictWriter(text, names, lineterminator="\r\n")
    writer.writeheader()
    csv.field_size_limit(LARGEST_FIELD)
    for source in _opened(place, task.files):
        lines = io.TextIOWrapper(source, "utf-8", newline="")
        for row in csv.DictReader(lines):
            writer.writerow(row)
            if text.tell() >= _BLOCK:
                file.write(text.getvalue().encode())
                text.seek(0)
                text.truncate()
        lines.detach()  # else it would close the file, which is not its own
    file.write(text.getvalue().encode())


_WRITE: Final = {"parquet": _write_parquet, "jsonl": _write_lines, "ndjson": _write_lines, "csv": _write_csv}
