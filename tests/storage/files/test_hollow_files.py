"""Hollow files: who reads some bytes has those fetched, who takes all of a file all of them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.message import decode_message
from storage.files.hollow_files import forget_tree, register_tree
from storage.files.mapped_file import MappedFile, open_read_only, read_head, read_piece, read_small_file
from storage.kernels.records import ENTRY_HEAD
from storage.log.commit_log import CommitLog, Segment
from storage.log.log_window import LocalFile
from store_writer import StoreWriter

SIZE = 300_000
CONTENT = bytes(number % 251 + 1 for number in range(SIZE))


class Content:
    """The content of one file, which notes what it was asked for and writes just that."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content = path, content
        self.asked: list[tuple[int, int]] = []

    def show(self, start: int, stop: int) -> None:
        self.asked.append((start, stop))
        with self.path.open("r+b") as file:
            file.seek(start)
            file.write(self.content[start:stop])


@pytest.fixture
def hollow(tmp_path: Path) -> Iterator[Content]:
    """A file that is a hole of a tree that is registered."""
    path = tmp_path / "sub" / "file"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.truncate(SIZE)
    content = Content(path, CONTENT)
    register_tree(tmp_path, {"sub/file": content}.get)
    yield content
    forget_tree(tmp_path)


READS: dict[str, tuple[Callable[[MappedFile], bytes], tuple[int, int]]] = {
    "read": (lambda file: bytes(file.read(100, 20)), (100, 120)),
    "slice": (lambda file: bytes(file.slice(100, 120)), (100, 120)),
    "a slice beyond the end": (lambda file: bytes(file.slice(SIZE - 5, SIZE + 9)), (SIZE - 5, SIZE)),
    "peek": (lambda file: file.peek(100, 20), (100, 120)),
    "a look-up": (lambda file: bytes(next(iter(file.read_lookup(7, 3)), b"") or file.slice(7, 10)), (7, 10)),
    "a range of its region": (lambda file: bytes(file.region_of(100, 120))[100:120], (100, 120)),
    "all of its region": (lambda file: bytes(file.region), (0, SIZE)),
    "all of its map": (lambda file: bytes(file.view), (0, SIZE)),
}


@pytest.mark.parametrize("read", READS)
def test_a_map_has_the_bytes_that_are_looked_at(read: str, hollow: Content) -> None:
    look, (start, stop) = READS[read]
    file = MappedFile.open(hollow.path)
    assert hollow.asked == []
    assert look(file) == CONTENT[start:stop]
    assert set(hollow.asked) == {(start, stop)}


@pytest.mark.parametrize(
    ("size", "valid_length", "fetched"),
    [
        pytest.param(5_000, SIZE, 5_000, id="a record"),
        pytest.param(5_000, 500, 5_000, id="a record behind a torn end"),
        pytest.param(SIZE - 1_000, SIZE, SIZE - 1_000, id="up to the end"),
        pytest.param(SIZE - 999, SIZE, ENTRY_HEAD, id="beyond the file"),
        pytest.param(5_000, 5_999, ENTRY_HEAD, id="beyond the log's end"),
        pytest.param(2**32 - 1, SIZE, ENTRY_HEAD, id="the largest size"),
    ],
)
def test_for_a_record_whose_size_cannot_be_right_its_head_is_fetched(
    hollow: Content, size: int, valid_length: int, fetched: int
) -> None:
    hollow.content = CONTENT[:1_000] + size.to_bytes(4) + CONTENT[1_004:]
    Segment(0, MappedFile.open(hollow.path), valid_length).region_at(1_000)
    assert max(stop for _, stop in hollow.asked) == 1_000 + fetched


def test_what_is_read_and_not_mapped_is_there_too(hollow: Content) -> None:
    path = hollow.path
    assert read_head(path, 9) == CONTENT[:9]
    assert read_piece(path, 50, 4) == CONTENT[50:54]
    assert hollow.asked == [(0, 9), (50, 54)]
    assert read_small_file(path, SIZE) == CONTENT
    descriptor = open_read_only(path)
    assert os.pread(descriptor, SIZE, 0) == CONTENT
    os.close(descriptor)
    window = LocalFile(path)
    view = bytearray(SIZE)
    assert window.read_into(memoryview(view), 0) == SIZE
    window.close()
    assert view == CONTENT
    assert hollow.asked[2:] == [(0, SIZE)] * 3


def test_kernels_have_fetched_what_they_look_at_of_a_log(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 16)
    written = [writer.append("T", bytes([number % 250]) * 900) for number in range(150)]
    writer.close()
    segments = sorted((writer.root / "commitlog").iterdir())
    contents = {f"commitlog/{each.name}": Content(each, each.read_bytes()) for each in segments}
    for each in segments:
        os.truncate(each, 0)
        os.truncate(each, 1 << 16)
    register_tree(writer.root, contents.get)
    try:
        log = CommitLog.open([writer.root / "commitlog"])
        first = contents[f"commitlog/{segments[0].name}"]
        first.asked.clear()
        record = log.record_at(written[20].physical_offset)
        assert record is not None
        assert decode_message(record).stored_body == bytes([20]) * 900
        assert sum(stop - start for start, stop in first.asked) < 1200
        assert log.check(written[30].physical_offset) == len(written[30].record)
        assert (
            log.store_timestamp_at(written[31].physical_offset, 100)
            == decode_message(written[31].record).store_timestamp
        )
        assert sum(stop - start for start, stop in first.asked) < 4000
    finally:
        forget_tree(writer.root)


def test_a_record_whose_bytes_come_late_is_checked_anew(tmp_path: Path) -> None:
    """So often that checksums would be kept of a file that is no hollow one."""
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 20)
    written = writer.append("T", b"x" * 400_000)
    for _ in range(3):
        writer.append("T", bytes(400_000))
    writer.close()
    path = min((writer.root / "commitlog").iterdir())
    whole, name = path.read_bytes(), f"commitlog/{path.name}"
    place = written.physical_offset
    body = written.record.index(b"x" * 100)
    register_tree(writer.root, {name: Content(path, whole[: place + body])}.get)
    try:
        log = CommitLog.open([writer.root / "commitlog"])
        with path.open("r+b") as file:
            file.seek(place + body)
            file.write(bytes(300_000))
            file.flush()
            assert all(log.check(place) < 0 for _ in range(60))
            file.seek(0)
            file.write(whole)
        assert log.check(place) == len(written.record)
    finally:
        forget_tree(writer.root)


LOOKING = """
import os, sys
from pathlib import Path
from storage.files.hollow_files import register_tree
from storage.files.mapped_file import MappedFile

class Nothing:
    def show(self, start, stop):
        pass

path = Path(sys.argv[1])
register_tree(path.parent, {path.name: Nothing()}.get)
file = MappedFile.open(path)
os.truncate(path, 4096)
print(bytes(file.slice(100_000, 100_010)) == bytes(10))
"""


def test_a_look_at_a_page_that_cannot_be_had_ends_no_process(hollow: Content) -> None:
    """As of a hole where the disk is in memory and full; the signal is the same where somebody cut the file."""
    command = [sys.executable, "-c", LOOKING, str(hollow.path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")
