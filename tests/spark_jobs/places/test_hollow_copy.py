"""A hollow copy of a tree behind a URL: pieces that are fetched once, more of them to who reads on, and whole files."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from protocol.errors import StoreError
from spark_jobs.places import hollow_copy, remote_file
from spark_jobs.places.hollow_copy import FilledFile, HollowCopy
from spark_jobs.places.remote_file import RemoteFile, RemoteReadError
from spark_jobs.places.remote_tree import RemoteEntry, RemoteTree, list_tree
from storage.files.mapped_file import MappedFile

CONTENT = bytes(number % 251 + 1 for number in range(40_000))
NUMBERS = itertools.count()


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
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
    """The ranges that are fetched."""
    found: list[tuple[int, int]] = []
    fetch = RemoteFile._fetch

    def noted(self: RemoteFile, start: int, stop: int) -> bytes:
        found.append((start, stop))
        return fetch(self, start, stop)

    monkeypatch.setattr(RemoteFile, "_fetch", noted)
    return found


def test_each_piece_is_fetched_once_and_who_reads_on_gets_more_each_time(
    url: str, tmp_path: Path, pieces: list[tuple[int, int]]
) -> None:
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


def test_a_whole_file_is_filled_for_who_reads_it_in_his_own_way(url: str, tmp_path: Path) -> None:
    copy = HollowCopy(list_tree(url, ""), tmp_path)
    for name in ("sub/file", "empty"):
        copy.fill(tmp_path / name)
    copy.fill(tmp_path / "none")
    assert (tmp_path / "sub" / "file").read_bytes() == CONTENT
    changed = HollowCopy(list_tree(url, ""), tmp_path / "again")
    fsspec.filesystem("memory").pipe(f"{url}/sub/file", CONTENT)
    with pytest.raises(RemoteReadError, match=r"sub/file.* has changed since it was listed"):
        changed.fill(tmp_path / "again" / "sub" / "file")


def test_a_file_that_is_gone_makes_all_that_was_read_doubtful(url: str, tmp_path: Path) -> None:
    copy = HollowCopy(list_tree(url, ""), tmp_path)
    fsspec.filesystem("memory").rm(f"{url}/sub/file")
    with copy.read_here():
        assert bytes(MappedFile.open(tmp_path / "sub" / "file").slice(0, 10)) == bytes(10)
    for _ in range(2):
        with pytest.raises(RemoteReadError, match="sub/file"):
            copy.settle()


def test_a_piece_that_cannot_be_written_is_an_error(url: str, tmp_path: Path) -> None:
    tree = list_tree(url, "")
    with (
        RemoteFile(f"{url}/sub/file", "", tree.object("sub/file")) as source,
        pytest.raises(StoreError, match="nowhere: cannot be written"),
    ):
        FilledFile(source, tmp_path / "nowhere").show([(0, 10)])


def test_files_that_this_machine_cannot_have_are_an_error(tmp_path: Path) -> None:
    for entry in (RemoteEntry("less than nothing", -1, ""), RemoteEntry("/".join(["deep" * 60] * 20), 1, "")):
        with pytest.raises(
            StoreError, match=r"cannot be copied: .*; a copy of what is behind a URL is made below TMPDIR"
        ):
            HollowCopy(RemoteTree("memory://none", "", (entry,), ()), tmp_path)
