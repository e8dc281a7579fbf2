"""Two names exchanged in one step, and no name ever taken from something else."""

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_jobs.publish import _atomic_rename
from spark_jobs.publish._atomic_rename import exchange, rename_to_free


@pytest.fixture(params=["library", "number"])
def call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the C library's function, and by the system call's number as before glibc 2.28."""
    if request.param == "number":
        monkeypatch.setattr(_atomic_rename, "_LIBC", SimpleNamespace(syscall=_atomic_rename._LIBC.syscall))


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A directory with a file and one without."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "file").write_text("content")
    (tmp_path / "second").mkdir()
    return tmp_path / "first", tmp_path / "second"


@pytest.mark.usefixtures("call")
def test_directories_get_each_others_names(two: tuple[Path, Path]) -> None:
    first, second = two
    inodes = first.stat().st_ino, second.stat().st_ino
    assert exchange(first, second)
    assert (second.stat().st_ino, first.stat().st_ino) == inodes
    assert (second / "file").read_text() == "content"
    assert not list(first.iterdir())
    with pytest.raises(FileNotFoundError) as caught:
        exchange(first, first / "none")
    assert (caught.value.filename, caught.value.filename2) == (str(first), str(first / "none"))


@pytest.mark.usefixtures("call")
def test_a_free_name_is_taken_and_one_in_use_is_not(two: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = two
    rename_to_free(first, tmp_path / "third")
    assert (tmp_path / "third" / "file").read_text() == "content"
    # A plain rename would silently replace an empty directory.
    with pytest.raises(FileExistsError):
        rename_to_free(tmp_path / "third", second)
    assert second.is_dir()
    with pytest.raises(FileNotFoundError):
        rename_to_free(first, tmp_path / "fourth")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_what_a_file_system_cannot_is_told_and_renamed_plainly(
    two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    first, second = two
    monkeypatch.setattr(_atomic_rename, "renameat2", lambda *_: number)
    assert not exchange(first, second)
    assert (first / "file").exists()
    with pytest.raises(FileExistsError):
        rename_to_free(first, second)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        rename_to_free(first, tmp_path / "link")
    rename_to_free(first, tmp_path / "third")
    assert (tmp_path / "third" / "file").exists()


@pytest.mark.parametrize("function", [exchange, rename_to_free])
def test_any_other_failure_is_an_error(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, function: Callable[[Path, Path], object]
) -> None:
    monkeypatch.setattr(_atomic_rename, "renameat2", lambda *_: errno.EXDEV)
    with pytest.raises(OSError, match="Invalid cross-device link"):
        function(*two)


def test_a_machine_whose_number_is_not_known_has_no_such_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_atomic_rename, "_LIBC", SimpleNamespace())
    monkeypatch.setattr(_atomic_rename.platform, "machine", lambda: "pdp11")
    assert _atomic_rename.renameat2(tmp_path, tmp_path, 0) == errno.ENOSYS
