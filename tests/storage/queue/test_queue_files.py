"""The files of a queue as one stream, whatever their sizes are."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from protocol.errors import StoreError, TruncatedFile
from storage.files.mapped_file import MappedFile
from storage.files.open_files import OpenFiles
from storage.files.waiting import finish
from storage.queue.queue_files import LARGEST_STEP, QueueFiles, last_written

KEEP_WRITING = """
import mmap, sys

with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as queue:
    ones, zeros = b"\\x01" * (len(queue) - 1), bytes(len(queue) - 1)
    print("writing", flush=True)
    while True:
        queue[1:] = ones
        queue[1:] = zeros
"""
"""A process that fills a queue file and clears it again, without end."""


def files_of(directory: Path, sizes: dict[int, int], unit_size: int = 20) -> QueueFiles:
    directory.mkdir(exist_ok=True)
    for start, size in sizes.items():
        (directory / f"{start:020d}").write_bytes(bytes(range(256)) * (size // 256) + bytes(range(size % 256)))
    return QueueFiles(directory, unit_size, OpenFiles())


def test_bytes_are_read_within_one_file(tmp_path: Path) -> None:
    files = files_of(tmp_path, {0: 100, 100: 100})
    assert bytes(files.read(60, 20) or b"") == bytes(range(60, 80))
    assert bytes(files.read(100, 5) or b"") == bytes(range(5))
    assert files.read(90, 20) is None
    assert files.read(200, 1) is None


def test_what_has_come_behind_the_last_file_is_taken_in(tmp_path: Path) -> None:
    files = files_of(tmp_path, {0: 100, 100: 100})
    assert files.with_successor() is files
    files_of(tmp_path, {200: 100, 300: 100})
    assert [file.start for file in files.with_successor().files] == [0, 100, 200, 300]
    (tmp_path / f"{100:020d}").unlink()
    assert files.with_successor() is files, "these are others"


def test_a_queue_without_files_has_nothing_behind_the_last_one(tmp_path: Path) -> None:
    files = files_of(tmp_path, {})
    files_of(tmp_path, {0: 100})
    assert files.with_successor() is files


def test_a_file_that_reaches_into_the_next_one_counts_up_to_there(tmp_path: Path) -> None:
    files = files_of(tmp_path, {0: 300, 100: 100})
    assert [(file.start, file.end) for file in files.files] == [(0, 100), (100, 200)]


def test_a_file_cut_after_it_was_listed_is_truncated(tmp_path: Path) -> None:
    files = files_of(tmp_path, {0: 100})
    (tmp_path / f"{0:020d}").write_bytes(bytes(40))
    with pytest.raises(TruncatedFile, match="20 bytes at position 80"):
        files.read(80, 20)


def test_a_file_removed_after_it_was_listed_is_a_store_error(tmp_path: Path) -> None:
    files = files_of(tmp_path, {0: 100})
    (tmp_path / f"{0:020d}").unlink()
    with pytest.raises(StoreError, match="cannot be opened"):
        files.read(80, 20)


def test_the_end_is_found_while_a_broker_writes(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"\x01" + bytes(LARGEST_STEP - 1))
    with subprocess.Popen([sys.executable, "-c", KEEP_WRITING, path], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writing\n"
            file = MappedFile.open(path)
            ends: list[int] = []
            # On a busy machine the writer may not run for many looks.
            deadline = time.monotonic() + 60
            while len(ends) < 300 or (len(set(ends)) == 1 and time.monotonic() < deadline):
                ends.append(finish(last_written(file, 0, LARGEST_STEP))[0])
        finally:
            writer.kill()
    assert 1 <= min(ends) <= max(ends) <= LARGEST_STEP
    assert len(set(ends)) > 1
