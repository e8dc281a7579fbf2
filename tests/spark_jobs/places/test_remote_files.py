"""Files and trees behind a URL, and hollow copies of them: all bytes come, or a sentence says which do not."""

import itertools
import random
from datetime import UTC, datetime

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from protocol.errors import StoreError
from queue_runs import files_under
from spark_jobs.places import hollow_copy, remote_file
from spark_jobs.places.hollow_copy import FilledFile, HollowCopy
from spark_jobs.places.remote_file import TRIES, RemoteFile, RemoteReadError, state_of
from spark_jobs.places.remote_tree import RemoteEntry, RemoteTree, list_tree
from storage.files.mapped_file import MappedFile

URL = "memory://rocketlens-remote-file/00000000000000000000"
DATA = random.Random(7).randbytes(10_000)


class Answers:
    """What the file system is asked for, and what it answers: an entry of `spoiled` each time, as long as there is."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.spoiled = []
        self._whole = MemoryFileSystem.cat_file

    def cat_file(self, system: MemoryFileSystem, path: str, start: int, end: int) -> bytes:
        self.asked.append((start, end))
        data: bytes = self._whole(system, path, start=start, end=end)
        spoil = self.spoiled.pop(0) if self.spoiled else None
        if isinstance(spoil, Exception):
            raise spoil
        return data if spoil is None else data[:spoil]


@pytest.fixture
def answers(monkeypatch):
    answers = Answers()
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *args, **more: answers.cat_file(*args, **more))
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)
    monkeypatch.setattr(remote_file, "PIECE_BYTES", 1000)
    fsspec.filesystem("memory").pipe_file(URL, DATA)
    yield answers
    fsspec.filesystem("memory").rm(URL)


def read(file: RemoteFile, start: int, size: int) -> bytes:
    data, at = bytearray(size), 0
    while at < size and (count := file.read_into(memoryview(data)[at:], start + at)):
        at += count
    return bytes(data[:at])


def test_who_reads_on_gets_all_bytes_in_large_pieces_that_are_asked_for_ahead(answers: Answers) -> None:
    with RemoteFile(URL, "") as file:
        assert b"".join(read(file, at, 100) for at in range(0, 10_000, 100)) == DATA
        assert file.read_into(memoryview(bytearray(5)), 10_000) == 0
    assert sorted(answers.asked) == [(0, 100), *((at, min(at + 1000, 10_000)) for at in range(100, 10_000, 1000))]


@pytest.mark.parametrize("spoil", [OSError("SlowDown"), 0, 39, RuntimeError("odd")])
def test_what_is_refused_or_comes_short_is_asked_for_again(answers, spoil) -> None:
    answers.spoiled = [spoil] * (TRIES - 1)
    with RemoteFile(URL, "") as file:
        assert read(file, 300, 40) == DATA[300:340]
    assert answers.asked == [(300, 340)] * TRIES


@pytest.mark.parametrize(("spoil", "reason"), [(OSError("SlowDown"), "SlowDown"), (3, "3 bytes came of 40")])
def test_there_is_a_limit_and_then_a_sentence(answers, spoil, reason) -> None:
    answers.spoiled = [spoil] * 100
    with RemoteFile(URL, "") as file, pytest.raises(RemoteReadError) as caught:
        read(file, 300, 40)
    assert str(caught.value) == f"{URL}: cannot be read at position 300: {reason}"
    assert len(answers.asked) == TRIES


@pytest.mark.parametrize("other", [DATA[:500], DATA[::-1]])
def test_a_file_that_changes_while_it_is_read_is_named(answers: Answers, other: bytes) -> None:
    file = RemoteFile(URL, "")
    read(file, 0, 100)
    fsspec.filesystem("memory").pipe_file(URL, other)
    if len(other) < len(DATA):
        with pytest.raises(RemoteReadError, match="has changed since it was listed: 10000 bytes"):
            read(file, 450, 100)
    with pytest.raises(RemoteReadError, match=rf"{URL}: has changed .* 10000 bytes .* and {len(other)} bytes .* now"):
        file.close()


def test_a_file_that_is_gone_is_named(answers, tmp_path) -> None:
    with pytest.raises(RemoteReadError, match="cannot be opened"):
        RemoteFile(f"{URL}1", "")
    with pytest.raises(RemoteReadError, match="cannot be opened: it is no file"):
        RemoteFile("memory://rocketlens-remote-file", "")
    file = RemoteFile(URL, "")
    read(file, 0, 10)
    fsspec.filesystem("memory").rm(URL)
    with pytest.raises(RemoteReadError, match="was removed since it was listed"):
        file.close()
    fsspec.filesystem("memory").pipe_file(URL, DATA)


@pytest.mark.parametrize(
    ("info", "state"),
    [
        ({"ETag": '"e"', "LastModified": "then"}, '"e"'),
        ({"generation": 17, "mtime": "then"}, "17"),
        ({"mtime": 0}, "0"),
        ({"created": 1.5}, "1.500000"),
        ({"created": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)}, "1.500000"),
        ({"ETag": None, "LastModified": "then"}, "then"),
        ({"size": 7}, ""),
    ],
)
def test_the_state_of_a_file_is_what_changes_with_its_content(info, state) -> None:
    assert state_of(info) == state


TREE_URL = "memory://rocketlens-remote-tree"
TREE_FILES = {"commitlog/00000000000000000000": b"log" * 100, "config/topics.json": b"{}", "abort": b""}


@pytest.fixture
def system():
    system = fsspec.filesystem("memory")
    for path, data in TREE_FILES.items():
        system.pipe_file(f"{TREE_URL}/store/{path}", data)
    system.pipe_file(f"{TREE_URL}/store-beside/abort", b"")
    yield system
    system.rm(TREE_URL, recursive=True)


def test_what_no_file_of_this_machine_can_be_named_is_left_out(system, monkeypatch, tmp_path) -> None:
    start = "/rocketlens-remote-tree/store"
    odd = ("../../escaped", "a/../../escaped", "a//b", "./c", "x" * 256, "y\0z", "both", "marker/")
    names = (*odd, "both/inner", "good")
    found = {f"{start}/{name}": {"type": "file", "size": 1, "created": 5} for name in names}
    monkeypatch.setattr(type(system), "find", lambda *_, **__: found)
    tree = list_tree(f"{TREE_URL}/store", "")
    assert [each.path for each in tree.files] == ["both/inner", "good"]
    tree.hollow(tmp_path / "inside")
    assert files_under(tmp_path) == {"inside/both/inner": b"\0", "inside/good": b"\0"}
    assert sum(path.stat().st_blocks for path in tmp_path.rglob("*") if path.is_file()) == 0


CONTENT = bytes(number % 251 + 1 for number in range(40_000))
NUMBERS = itertools.count()


@pytest.fixture
def url(monkeypatch):
    """A tree with a file of 40,000 bytes, of which 1,000 are fetched at least."""
    monkeypatch.setattr(hollow_copy, "UNIT_BYTES", 1000)
    monkeypatch.setattr(hollow_copy, "MOST_AHEAD", 8000)
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)
    place = f"memory://hollow-{next(NUMBERS)}"
    memory = fsspec.filesystem("memory")
    memory.pipe(f"{place}/sub/file", CONTENT)
    memory.pipe(f"{place}/empty", b"")
    yield place
    memory.rm(place, recursive=True)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    fetch = RemoteFile._fetch

    def noted(self: RemoteFile, start: int, stop: int) -> bytes:
        found.append((start, stop))
        return fetch(self, start, stop)

    monkeypatch.setattr(RemoteFile, "_fetch", noted)
    return found


def test_each_piece_is_fetched_once_and_who_reads_on_gets_more_each_time(url, tmp_path, pieces) -> None:
    copy = HollowCopy(list_tree(url, ""), tmp_path)
    with copy.read_here():
        file = MappedFile.open(tmp_path / "sub" / "file")
        assert bytes(file.slice(30_500, 30_600)) == CONTENT[30_500:30_600]
        assert bytes(file.slice(30_000, 31_000)) == CONTENT[30_000:31_000]
        for start in range(0, 20_000, 100):
            assert bytes(file.slice(start, start + 100)) == CONTENT[start : start + 100]
        copy.settle()
    assert pieces[0] == (30_000, 31_000)
    assert pieces[1:] == [(0, 1000), (1000, 3000), (3000, 6000), (6000, 11_000), (11_000, 20_000)]
    assert bytes(MappedFile.open(tmp_path / "sub" / "file").view)[20_000:30_000] == bytes(10_000)


def test_a_whole_file_is_filled_for_who_reads_it_in_his_own_way(url, tmp_path) -> None:
    copy = HollowCopy(list_tree(url, ""), tmp_path)
    for name in ("sub/file", "empty"):
        copy.fill(tmp_path / name)
    copy.fill(tmp_path / "none")
    assert (tmp_path / "sub" / "file").read_bytes() == CONTENT
    changed = HollowCopy(list_tree(url, ""), tmp_path / "again")
    fsspec.filesystem("memory").pipe(f"{url}/sub/file", CONTENT)
    with pytest.raises(RemoteReadError, match=r"sub/file.* has changed since it was listed"):
        changed.fill(tmp_path / "again" / "sub" / "file")


def test_a_piece_that_cannot_be_written_is_an_error(url, tmp_path) -> None:
    tree = list_tree(url, "")
    with RemoteFile(f"{url}/sub/file", "", tree.object("sub/file")) as source:
        filled = FilledFile(source, tmp_path / "nowhere")
        with pytest.raises(StoreError, match="nowhere: cannot be written"):
            filled.show([(0, 10)])


def test_files_that_this_machine_cannot_have_are_an_error(tmp_path) -> None:
    for entry in (RemoteEntry("less than nothing", -1, ""), RemoteEntry("/".join(["deep" * 60] * 20), 1, "")):
        said = r"cannot be copied: .*; a copy of what is behind a URL is made below TMPDIR"
        with pytest.raises(StoreError, match=said):
            HollowCopy(RemoteTree("memory://none", "", (entry,), ()), tmp_path)
