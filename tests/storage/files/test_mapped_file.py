"""Files mapped read-only: bounds, holes, heat, identity, how many are open, and hollow ones."""

import gc
import itertools
import mmap
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import StoreError, TruncatedFile
from protocol.message import decode_message
from storage.files.hollow_files import forget_tree, register_tree
from storage.files.mapped_file import FileIdentity, MappedFile, list_segment_files, read_head, read_piece
from storage.files.open_files import OpenFiles
from storage.files.recently_used import RecentlyUsed
from storage.files.waiting import Wait, begin
from storage.kernels.records import ENTRY_HEAD
from storage.kernels.store_view import PROBE_BYTES
from storage.log.commit_log import CommitLog, Segment
from store_files import write_file
from store_queries import at_once, wait_of
from store_writer import StoreWriter


def file_of(path: Path, content: bytes) -> MappedFile:
    path.write_bytes(content)
    return MappedFile.open(path)


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> MappedFile:
    return file_of(tmp_path_factory.mktemp("files") / "ten", b"0123456789")


def test_a_path_leads_to_a_file_as_long_as_it_is_that_one_of_that_size(tmp_path: Path) -> None:
    file, other = file_of(tmp_path / "file", b"0123456789"), tmp_path / "other"
    assert file.is_at(file.path)
    other.write_bytes(b"0123456789")
    assert not file.is_at(other)
    os.link(file.path, tmp_path / "link")
    assert file.is_at(tmp_path / "link")
    assert MappedFile.of(file.path, file) is file
    os.replace(other, file.path)
    assert not file.is_at(file.path)
    assert MappedFile.of(file.path, file) is not file
    file.path.unlink()
    assert not file.is_at(file.path)
    os.truncate(tmp_path / "link", 9)
    assert not file.is_at(tmp_path / "link")


def test_what_is_no_regular_file_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("directory", "pipe"):
        with pytest.raises(StoreError, match=rf"{name}.*(regular file|cannot be opened)"):
            MappedFile.open(tmp_path / name)
    with pytest.raises(StoreError, match="regular file"):
        MappedFile.open(Path("/dev/null"))


@given(position=st.integers(-3, 14), length=st.integers(-3, 14))
def test_a_range_is_read_exactly_or_refused(ten: MappedFile, position: int, length: int) -> None:
    if position >= 0 and length >= 0 and position + length <= 10:
        assert bytes(ten.read(position, length)) == b"0123456789"[position : position + length]
    else:
        with pytest.raises(
            TruncatedFile, match=rf"ten.*a file of 10 bytes.*expected {length} bytes at position {position}"
        ):
            ten.read(position, length)


def test_every_change_of_a_file_gives_it_another_identity(tmp_path: Path) -> None:
    seen = set()
    for name, content, time in (("file", b"abc", 1), ("file", b"abc", 2), ("file", b"abcd", 2), ("other", b"abcd", 2)):
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, ns=(1, time))
        seen.add(FileIdentity.of((tmp_path / name).stat()))
    assert len(seen) == 4


def test_data_and_holes_alternate_over_the_whole_file(tmp_path: Path) -> None:
    mebibyte = 1 << 20
    path = tmp_path / "sparse"
    write_file(path, 8 * mebibyte, {2 * mebibyte: b"x" * 10, 6 * mebibyte: b"y" * 10})
    if path.stat().st_blocks * 512 >= 8 * mebibyte:
        pytest.skip("this file system keeps no holes")
    file = MappedFile.open(path)
    first = file.first_data(0)
    hole = file.first_hole(first)
    second = file.first_data(hole)
    assert first <= 2 * mebibyte < hole <= second <= 6 * mebibyte < file.first_hole(second)
    assert (file.first_data(file.first_hole(second)), file.first_data(file.size)) == (file.size, file.size)


def test_files_come_in_the_order_of_their_offsets_and_the_rest_is_foreign(tmp_path: Path) -> None:
    offsets = [0, 1024, 10**18, 2**63 - 1]
    for offset in offsets[::-1]:
        (tmp_path / f"{offset:020d}").touch()
    foreign = ["1024", "abc", f"{0:021d}", f"{0:019d}", f"-{1:019d}", f"+{1:019d}", "9" * 20, f"{5:019d}\u00b2"]
    for name in foreign:
        (tmp_path / name).touch()
    (tmp_path / f"{2048:020d}").mkdir()
    files, others = list_segment_files(tmp_path)
    assert files == [(offset, tmp_path / f"{offset:020d}") for offset in offsets]
    assert sorted(path.name for path in others) == sorted([*foreign, f"{2048:020d}"])


def make_files(directory: Path, count: int) -> list[tuple[str, int]]:
    found = []
    for number in range(count):
        path = directory / str(number)
        path.write_bytes(b"file %d" % number)
        found.append((str(path), path.stat().st_ino))
    return found


@pytest.fixture
def few_descriptors():
    """Twenty numbers are free below the limit, wherever those in use lie, and the one that lists them."""
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(number) for number in os.listdir("/proc/self/fd")}
    free = itertools.islice((number for number in itertools.count() if number not in used), 20)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
def test_when_descriptors_run_out_files_read_long_ago_are_let_go(tmp_path: Path) -> None:
    files = OpenFiles()
    for number, place in enumerate(make_files(tmp_path, 60)):
        assert bytes(files.get(*place).view) == b"file %d" % number
    assert 0 < len(files) <= 21


def test_files_that_are_gone_replaced_or_of_another_size_are_let_go(tmp_path: Path) -> None:
    files, places = OpenFiles(), make_files(tmp_path, 5)
    opened = [files.get(*place) for place in places]
    os.unlink(places[0][0])
    (tmp_path / "new").write_bytes(b"file 1")
    os.replace(tmp_path / "new", places[1][0])
    os.truncate(places[2][0], 3)
    os.truncate(places[3][0], 30)
    files.forget_changed()
    assert len(files) == 1
    assert files.get(*places[4]) is opened[4]
    assert bytes(opened[0].view) == b"file 0", "whoever reads it still can"


SIZE = 300_000
CONTENT = bytes(number % 251 + 1 for number in range(SIZE))


class Content:
    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content = path, content
        self.asked: list[tuple[int, int]] = []

    def show(self, start: int, stop: int) -> None:
        self.asked.append((start, stop))
        with self.path.open("r+b") as file:
            file.seek(start)
            file.write(self.content[start:stop])


@pytest.fixture
def hollow(tmp_path):
    path = tmp_path / "sub" / "file"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.truncate(SIZE)
    content = Content(path, CONTENT)
    register_tree(tmp_path, {"sub/file": content}.get)
    yield content
    forget_tree(tmp_path)


READS = {
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


@pytest.mark.parametrize(("size", "valid_length", "fetched"), [
    pytest.param(5_000, SIZE, 5_000, id="a record"),
    pytest.param(5_000, 500, 5_000, id="a record behind a torn end"),
    pytest.param(SIZE - 1_000, SIZE, SIZE - 1_000, id="up to the end"),
    pytest.param(SIZE - 999, SIZE, ENTRY_HEAD, id="beyond the file"),
    pytest.param(5_000, 5_999, ENTRY_HEAD, id="beyond the log's end"),
    pytest.param(2**32 - 1, SIZE, ENTRY_HEAD, id="the largest size"),
])  # fmt: skip
def test_for_a_record_whose_size_cannot_be_right_its_head_is_fetched(hollow, size, valid_length, fetched) -> None:
    hollow.content = CONTENT[:1_000] + size.to_bytes(4) + CONTENT[1_004:]
    Segment(0, MappedFile.open(hollow.path), valid_length).region_at(1_000)
    assert max(stop for _, stop in hollow.asked) == 1_000 + fetched


def test_kernels_have_fetched_what_they_look_at_of_a_log(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", segment_size=1 << 16) as writer:
        written = [writer.append("T", bytes([number % 250]) * 900) for number in range(150)]
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
        assert decode_message(record).stored_body == bytes([20]) * 900
        assert sum(stop - start for start, stop in first.asked) < 1200
        assert log.check(written[30].physical_offset) == len(written[30].record)
        assert log.store_timestamp_at(written[31].physical_offset, 100) == written[31].store_timestamp
        assert sum(stop - start for start, stop in first.asked) < 4000
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


def test_the_value_not_used_for_longest_is_forgotten_and_an_error_is_not_remembered() -> None:
    memory: RecentlyUsed[int] = RecentlyUsed(2)
    for key, value in (("a", 1), ("b", 1), ("a", 2), ("c", 1)):
        memory.get(key, lambda value=value: value)
    assert [memory.get("a", lambda: 3), memory.get("b", lambda: 3)] == [1, 3]
    assert len(memory) == 2
    memory = RecentlyUsed(2)
    with pytest.raises(ZeroDivisionError):
        memory.get("a", lambda: 1 // 0)
    assert memory.get("a", lambda: 5) == 5


def test_many_threads_find_what_they_ask_for() -> None:
    memory: RecentlyUsed[int] = RecentlyUsed(7)

    def work(seed: int) -> list[int]:
        numbers = [(step * seed) % 31 for step in range(3000)]
        return [each for each in numbers if memory.get(("n", each), lambda each=each: each) != each]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, (1, 3, 7, 11))) == [[]] * 4
    assert len(memory) <= 7


def test_a_look_up_goes_on_from_where_it_waited_once_what_is_missing_is_there() -> None:
    done = []

    def look_lookup():
        for number in range(2):
            done.append(f"step {number}")
            yield Wait(f"page {number}", lambda number=number: done.append(f"warm {number}"))
        done.append("end")
        return "found"

    step = begin(look_lookup())
    assert (str(step.wait), done) == ("page 0", ["step 0"])
    assert step.finish() == "found"
    assert done == ["step 0", "warm 0", "step 1", "warm 1", "end"]


def test_a_file_that_became_shorter_is_cut_and_what_was_cut_off_read_as_nothing(tmp_path: Path) -> None:
    file = file_of(tmp_path / "file", bytes(mmap.PAGESIZE) + b"0123456789")
    assert (file.peek(mmap.PAGESIZE + 8, 8), file.is_cut()) == (b"89", False)
    os.truncate(file.path, mmap.PAGESIZE + 20)
    assert not file.is_cut()
    os.truncate(file.path, mmap.PAGESIZE + 9)
    assert file.is_cut()
    os.truncate(file.path, mmap.PAGESIZE + 3)
    assert file.peek(mmap.PAGESIZE, 8) == b"012"
    os.truncate(file.path, 0)
    assert (file.peek(mmap.PAGESIZE, 8), file.peek(-1, 8)) == (b"", b"")


def test_a_file_nobody_holds_is_let_go(tmp_path: Path) -> None:
    def is_mapped() -> bool:
        return str(tmp_path / "file") in Path("/proc/self/maps").read_text()

    file = file_of(tmp_path / "file", b"abc")
    assert is_mapped()
    held = file.read(0, 3)
    del file
    gc.collect()
    assert bytes(held) == b"abc"
    assert is_mapped()
    del held
    gc.collect()
    assert not is_mapped()


def test_a_piece_ends_where_its_file_does_and_a_head_is_whole_or_refused(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    for position, size, read in ((0, 4, b"0123"), (8, 4, b"89"), (10, 4, b""), (1 << 62, 1, b""), (3, 0, b"")):
        assert read_piece(tmp_path / "file", position, size) == read
    assert read_head(tmp_path / "file", 10) == b"0123456789"
    with pytest.raises(TruncatedFile, match="needs 11 bytes, but only 10 are there"):
        read_head(tmp_path / "file", 11)
    # What cannot be read is named.
    monkeypatch.setattr(os, "pread", Mock(side_effect=OSError(5, "Input/output error")))
    with pytest.raises(StoreError, match="file: cannot be read: Input/output error"):
        read_piece(tmp_path / "file", 0, 4)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(os.pread.call_args.args[0])


def test_a_file_system_that_knows_no_holes_has_only_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(tmp_path / "file", bytes(100))
    monkeypatch.setattr(os, "lseek", Mock(side_effect=OSError(22, "Invalid argument")))
    assert (file.first_data(7), file.first_hole(7), file.first_data(100)) == (7, 100, 100)


@pytest.mark.parametrize(("position", "length"), [(65_535, 2), (100_000, 100_000), (0, 0)])
def test_warming_reads_the_units_around_and_stays_inside(tmp_path: Path, position: int, length: int) -> None:
    file = file_of(tmp_path / "file", bytes(200_000))
    file.warm(position, length)
    assert file.is_hot(position, max(length, 1), 1000)


def test_cold_bytes_are_not_waited_for_and_brought_in_by_who_may_wait(tmp_path, monkeypatch) -> None:
    file = file_of(tmp_path / "file", bytes(3 * PROBE_BYTES))
    with monkeypatch.context() as patched:
        patched.setattr(MappedFile, "is_hot", lambda *_: False)
        wait = wait_of(file.read_lookup(150_000, 10))
        assert str(wait) == "file is cold at 150000"
        assert len(file.read(150_000, 10)) == 10
    wait.warm()
    assert len(at_once(file.read_lookup(150_000, 10))) == 10


def test_a_later_file_of_the_same_name_is_another_file(tmp_path: Path) -> None:
    files = OpenFiles()
    (place,) = make_files(tmp_path, 1)
    files.get(*place)
    other = tmp_path / "other"
    other.write_bytes(b"replaced")
    other.replace(place[0])
    assert bytes(files.get(place[0], os.stat(place[0]).st_ino).view) == b"replaced"
    assert bytes(files.get(*place).view) == b"file 0"


@pytest.mark.parametrize("lose", [lambda path: os.truncate(path, 3), os.unlink], ids=["cut", "removed"])
def test_a_file_that_became_shorter_or_is_gone_is_told_of_as_long_as_it_is_open(tmp_path, lose) -> None:
    files, (place,) = OpenFiles(), make_files(tmp_path, 1)
    assert not files.has_lost()
    files.get(*place)
    assert not files.has_lost()
    lose(place[0])
    assert files.has_lost()
    files.forget_changed()
    assert not files.has_lost()


def test_of_very_many_files_each_is_asked_within_a_few_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.files.open_files.LOOKED_AT", 8)
    files, places = OpenFiles(), make_files(tmp_path, 60)
    for place in places:
        files.get(*place)
    looks = -(-len(places) // 8)
    for path, _ in places:
        os.truncate(path, 3)
        assert any(files.has_lost() for _ in range(looks))
        files.forget_changed()
        looks = max(-(-len(files) // 8), 1)
    assert not files.has_lost()


def test_queue_files_leave_half_of_the_descriptors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _what: (100, 100))
    files = OpenFiles()
    for place in make_files(tmp_path, 60):
        files.get(*place)
    assert len(files) == 50
