"""The scan of a rebuild by one core: gigabytes of log a second of CPU, through a map and by copies, in turns.

    python -m benchmarks.scan

One task of `rebuild all` reads a segment in this process, checksums and all, and leaves its blocks in a directory that
is removed. What a thread does ahead counts too. The log is in the page cache.
"""

import errno
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final, NoReturn
from unittest.mock import patch

import click

from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.report import machine
from benchmarks.store_plan import StoreParameters
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_segment import ScanTask, scan_segment
from storage.log.log_window import LocalFile

MAPPED: Final = "mapped"
COPIED: Final = "copied, as before Linux 5.14"
BODIES: Final = (100, 1_000, 4_000)
LOG_BYTES: Final = 700_000_000
RECORD_BYTES: Final = 270
"""About what a record of the benchmark has besides its body."""


def scan(segment: Path, scratch: Path) -> tuple[int, float]:
    """Bytes of records, and seconds of CPU that they took."""
    directory = tempfile.mkdtemp(dir=scratch)
    work = WorkDirectory.open(Path(directory), {"segment": str(segment)})
    task = ScanTask(
        work=str(work.root), path=str(segment), base_offset=int(segment.name), limit=-1, entries=True, checksums=True,
        tags=True, bundles=4, delays=(), lmq=False, ext=False, batch_topics=(), boundary=segment.stat().st_size,
    )  # fmt: skip
    began = time.process_time()
    summary = scan_segment(task)
    seconds = time.process_time() - began
    work.close()
    shutil.rmtree(directory)
    return int(summary["end"]), seconds


def kernel_is_too_old(file: LocalFile) -> NoReturn:
    """In the place of :meth:`LocalFile.map`."""
    raise OSError(errno.EINVAL, "pages cannot be read")


def rates(segment: Path, scratch: Path, rounds: int) -> dict[str, float]:
    """Medians of bytes a second, by how the log is read."""
    found: dict[str, list[float]] = {MAPPED: [], COPIED: []}
    scan(segment, scratch)
    for _ in range(rounds):
        size, seconds = scan(segment, scratch)
        found[MAPPED].append(size / seconds)
        with patch.object(LocalFile, "map", kernel_is_too_old):
            size, seconds = scan(segment, scratch)
        found[COPIED].append(size / seconds)
    return {name: statistics.median(values) for name, values in found.items()}


def measure(store_dir: Path, rounds: int, log_bytes: int = LOG_BYTES) -> dict[int, dict[str, float]]:
    """The rates by the bytes of a body."""
    measured = {}
    for size in BODIES:
        count = log_bytes // (RECORD_BYTES + size)
        parameters = StoreParameters(
            count=count, body_minimum=size, body_maximum=size, segment_size=1 << log_bytes.bit_length()
        )
        store = make_store(store_dir, parameters, None)
        (segment, *_) = sorted((store / "commitlog").iterdir())
        scratch = Path(tempfile.mkdtemp(prefix="scan-", dir=store_dir))
        try:
            measured[size] = rates(segment, scratch, rounds)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return measured


def markdown(measured: dict[int, dict[str, float]]) -> str:
    """The table."""
    where = machine()
    rows = [
        f"| {size:,} bytes | {' | '.join(f'{found[name] / 1e9:.2f}' for name in (MAPPED, COPIED))} |"
        for size, found in measured.items()
    ]
    return "\n".join(
        [
            f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}, Python {where['python']}; "
            f"checksums by {where['checksums']}.",
            "",
            f"| bodies | {MAPPED}, GB/s a core | {COPIED} |",
            "|---|---|---|",
            *rows,
        ]
    )


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--rounds", default=7, show_default=True)
def main(store_dir: Path, rounds: int) -> None:
    """Measure the scan of a segment by one core, and print the table."""
    print(markdown(measure(store_dir, rounds)))


if __name__ == "__main__":
    main()
