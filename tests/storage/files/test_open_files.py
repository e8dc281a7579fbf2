"""Queue files open at a time: bounded, shared, and released only when nobody reads them any more."""

import gc
import itertools
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.files.open_files import OpenFiles


def make_files(directory: Path, count: int) -> list[tuple[str, int]]:
    found = []
    for number in range(count):
        path = directory / str(number)
        path.write_bytes(b"file %d" % number)
        found.append((str(path), path.stat().st_ino))
    return found


def test_a_later_file_of_the_same_name_is_another_file(tmp_path: Path) -> None:
    files = OpenFiles()
    (place,) = make_files(tmp_path, 1)
    files.get(*place)
    other = tmp_path / "other"
    other.write_bytes(b"replaced")
    other.replace(place[0])
    assert bytes(files.get(place[0], os.stat(place[0]).st_ino).view) == b"replaced"
    assert bytes(files.get(*place).view) == b"file 0"


@pytest.fixture
def few_descriptors() -> Iterator[None]:
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


@pytest.mark.parametrize("lose", [lambda path: os.truncate(path, 3), os.unlink], ids=["cut", "removed"])
def test_a_file_that_became_shorter_or_is_gone_is_told_of_as_long_as_it_is_open(
    tmp_path: Path, lose: Callable[[str], None]
) -> None:
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
