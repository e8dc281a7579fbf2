"""Which processes may write to a store's files, for each way to open a file; processes that only read do not count."""

import os
from pathlib import Path

import pytest

from publishing import HOLDERS, holding
from read_only import as_nobody, reachable_directory
from spark_jobs.publish import _open_writers
from spark_jobs.publish._open_writers import Process, find_writers

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
ALL_PROCESSES = _open_writers._other_processes


@pytest.fixture(autouse=True)
def few_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_open_writers, "_other_processes", lambda: iter(sorted(HOLDERS)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "store" / "index" / "20240101000000000"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(100))
    return path


def writers(path: Path, besides: Path | None = None) -> list[Process]:
    return find_writers([path.parents[1]], besides)[0]


@pytest.mark.parametrize("how", ["O_WRONLY", "O_RDWR", "map shared"])
def test_who_may_write_is_found_with_its_name_and_the_file(file: Path, how: str) -> None:
    assert writers(file) == []
    with holding(file, how) as pid:
        found = writers(file)
        assert found == [Process(pid, Path(f"/proc/{pid}/comm").read_text().strip(), str(file))]
        assert str(found[0]).startswith(f"{pid} (")
    assert writers(file) == []


def test_all_processes_of_the_machine_are_looked_at(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_open_writers, "_other_processes", ALL_PROCESSES)
    with holding(file, "O_RDWR") as pid:
        assert [each.pid for each in writers(file)] == [pid]


@pytest.mark.parametrize("how", ["O_RDONLY", "map private", "map read"])
def test_who_can_only_read_is_not(file: Path, how: str) -> None:
    with holding(file, how):
        assert writers(file) == []


@pytest.mark.parametrize("how", ["O_RDWR", "map shared"])
def test_this_process_and_those_of_deleted_files_do_not_count(file: Path, how: str) -> None:
    with file.open("r+b"), holding(file, how) as pid:
        assert [each.pid for each in writers(file)] == [pid]
        file.unlink()
        assert writers(file) == []


def test_files_elsewhere_do_not_count(file: Path, tmp_path: Path) -> None:
    (tmp_path / "store-2").mkdir()
    (tmp_path / "store-2" / "file").touch()
    with holding(tmp_path / "store-2" / "file", "O_RDWR"):
        assert writers(file) == []
        found = find_writers([tmp_path / "nowhere", tmp_path / "store-2"])[0]
        assert [each.path for each in found] == [str(tmp_path / "store-2" / "file")]


def test_files_of_our_own_work_do_not_count(file: Path) -> None:
    with holding(file, "O_RDWR") as pid:
        assert writers(file, besides=file.parent) == []
        assert [each.pid for each in writers(file, besides=file.parent / "2")] == [pid]
        assert [each.pid for each in writers(file, besides=file.parent.with_name("ind"))] == [pid]


@pytest.mark.parametrize("how", ["O_RDWR", "map shared"])
def test_a_file_is_known_by_any_path(file: Path, tmp_path: Path, how: str) -> None:
    """A container knows the same files by other paths; here it is a second name."""
    os.link(file, tmp_path / "other name")
    with holding(tmp_path / "other name", how) as pid:
        assert [(each.pid, each.path) for each in writers(file)] == [(pid, str(tmp_path / "other name"))]
    linked = tmp_path / "linked"
    linked.symlink_to(file.parents[1])
    with holding(file, how) as pid:
        assert [each.pid for each in find_writers([linked])[0]] == [pid]


def test_a_file_with_other_numbers_is_known_by_its_path(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In maps btrfs shows another device than stat does; a FUSE file may not even be asked."""
    monkeypatch.setattr(_open_writers, "_numbers", lambda _: (-1, -1))
    monkeypatch.setattr(_open_writers.os, "makedev", lambda *_: -1)
    for how in ("O_RDWR", "map shared"):
        with holding(file, how) as pid:
            assert [(each.pid, each.path) for each in writers(file)] == [(pid, str(file))]
            assert writers(file, besides=file.parent) == []


def test_a_process_that_may_not_be_looked_at_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listdir = os.listdir
    with holding(file, "O_RDWR") as pid:

        def refuse(path: Path) -> list[str]:
            if str(path) == f"/proc/{pid}/fd":
                raise PermissionError(path)
            return listdir(path)

        monkeypatch.setattr(os, "listdir", refuse)
        found, unseen = find_writers([file.parents[1]])
        assert found == []
        assert [each.pid for each in unseen if each.pid == pid] == [pid]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_somebody_else_does_not_see_what_root_does_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_open_writers, "_other_processes", ALL_PROCESSES)
    with reachable_directory() as directory:
        (directory / "file").touch()
        with holding(directory / "file", "O_RDWR") as pid:

            def look() -> str:
                found, unseen = find_writers([directory])
                kernel = sum(each.name.startswith(("kthreadd", "kworker", "ksoftirqd")) for each in unseen)
                return f"{len(found)} {pid in [each.pid for each in unseen]} {kernel}"

            assert as_nobody(look) == "0 True 0"


def test_processes_that_end_while_they_are_looked_at_are_ignored(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with holding(file, "O_RDWR") as pid:
        pass
    monkeypatch.setattr(_open_writers, "_other_processes", lambda: iter([pid]))
    assert find_writers([file.parents[1]]) == ([], [])
    assert Process.of(pid) == Process(pid, "?")
