"""Listings of what lies behind a URL, and copies of it on this machine."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from queue_runs import files_under
from spark_jobs.places.file_systems import is_url, local_path
from spark_jobs.places.remote_file import RemoteReadError
from spark_jobs.places.remote_tree import list_tree, local_copy, named_as

URL = "memory://rocketlens-remote-tree"
FILES = {"commitlog/00000000000000000000": b"log" * 100, "config/topics.json": b"{}", "abort": b""}


@pytest.fixture
def system() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    for path, data in FILES.items():
        system.pipe_file(f"{URL}/store/{path}", data)
    system.pipe_file(f"{URL}/store-beside/abort", b"")
    yield system
    system.rm(URL, recursive=True)


@pytest.mark.parametrize("url", [f"{URL}/store", f"{URL}/store/"])
def test_a_listing_has_all_files_below_a_url(system: fsspec.AbstractFileSystem, url: str) -> None:
    tree = list_tree(url, "")
    assert {each.path: each.size for each in tree.files} == {path: len(data) for path, data in FILES.items()}
    assert tree.directories == ("commitlog", "config")
    assert tree.object("abort").url == f"{URL}/store/abort"
    assert list(tree.objects()) == sorted(FILES)


def test_what_no_file_of_this_machine_can_be_named_is_left_out(
    system: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = "/rocketlens-remote-tree/store"
    odd = ("../../escaped", "a/../../escaped", "a//b", "./c", "x" * 256, "y\0z", "both", "marker/")
    names = (*odd, "both/inner", "good")
    found = {f"{start}/{name}": {"type": "file", "size": 1, "created": 5} for name in names}
    monkeypatch.setattr(type(system), "find", lambda *_, **__: found)
    tree = list_tree(f"{URL}/store", "")
    assert [each.path for each in tree.files] == ["both/inner", "good"]
    tree.hollow(tmp_path / "inside")
    assert files_under(tmp_path) == {"inside/both/inner": b"\0", "inside/good": b"\0"}
    assert sum(path.stat().st_blocks for path in tmp_path.rglob("*") if path.is_file()) == 0


def test_a_part_is_fetched(system: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    tree = list_tree(f"{URL}/store", "")
    tree.below("config", "abort").fetch(tmp_path)
    assert files_under(tmp_path) == {path: FILES[path] for path in ("config/topics.json", "abort")}
    assert [each.path for each in tree.without_larger(2).files] == ["abort", "config/topics.json"]


def test_a_file_that_is_gone_since_is_named(system: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    tree = list_tree(f"{URL}/store", "")
    system.rm(f"{URL}/store/config/topics.json")
    with pytest.raises(RemoteReadError, match=f"{URL}/store/config/topics.json: was removed since it was listed"):
        tree.fetch(tmp_path)


def test_a_listing_that_fails_is_named(system: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(type(system), "find", refuse)
    with pytest.raises(RemoteReadError, match=f"{URL}/store: cannot be listed: Access Denied"):
        list_tree(f"{URL}/store", "")


def test_a_copy_of_one_file_is_gone_afterwards(system: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    found = list_tree(f"{URL}/store", "").object("config/topics.json")
    with local_copy(found.url, found) as copy:
        assert (copy.name, copy.read_bytes()) == ("topics.json", b"{}")
        assert named_as(copy, found.url)(f"in {copy}: wrong") == f"in {found.url}: wrong"
    assert not copy.parent.exists()
    with local_copy(str(tmp_path / "here"), None) as path:
        assert path == tmp_path / "here"
        assert named_as(path, str(path))("text") == "text"


def test_files_of_this_machine_may_be_urls() -> None:
    assert [is_url(each) for each in ("/a", "file:///a", "s3://a")] == [False, False, True]
    assert [local_path(each) for each in ("/a b", "file:///a%20b", "file:/a")] == ["/a b", "/a b", "/a"]
