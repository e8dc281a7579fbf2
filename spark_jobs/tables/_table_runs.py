"""What a run does alike for tables of every format: it looks whether its files are there, and makes commits."""

import time
from collections.abc import Iterable

from protocol.errors import StoreError
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.placed_run import this_process
from spark_jobs.tables._table import DataFile, RunRecord, TableCommit


def confirm(place: OutputPlace, directory: str, files: Iterable[DataFile], within: str = "") -> None:
    """Raise StoreError where a file that is going to count is not there.

    `directory` is that of the run, below the place; files are named as they were `written`, below `within`.
    """
    there = place.objects(f"{within}{directory}")
    for each in files:
        name = f"{within}{each.written}"
        size = there[name].size if name in there else None
        if size != each.bytes:
            raise StoreError(
                place.path(name),
                what="was removed or changed before it counted: size",
                expected=each.bytes,
                found=size,
            )


def follow(command: str, last: TableCommit, removed: int) -> TableCommit:
    """A commit that changes which files there are, not how far the table has come."""
    at, now = last.position.physical_offset, round(time.time() * 1000)
    record = RunRecord(
        command=command,
        start=at,
        stop=at,
        removed_files=removed,
        began_timestamp=now,
        ended_timestamp=now,
        host=this_process(),
    )
    return TableCommit(run="", shape=last.shape, position=last.position, record=record)


def who_committed(commit: TableCommit | None) -> str:
    """Describe who made the last commit of a table; None is that of a program that keeps no position."""
    return "another program" if commit is None else f"the run {commit.run} of {commit.record.host}"
