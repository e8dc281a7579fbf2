"""What stays of a store: second names or copies, and nothing that its owner may not read."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import PlantedFile, StoreError
from read_only import reachable_directory
from storage.files.kept_files import copy_kept, link_kept, read_kept
from storage.files.own_directories import HeldDirectory

BY_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="root alone can give files away")
OWNER, ANOTHER = 65534, 12345


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with one of ours, `own`, and one of a store, `store`."""
    with reachable_directory() as directory:
        (directory / "own").mkdir()
        (directory / "store").mkdir()
        (directory / "store" / "x").write_bytes(b"kept" * 2000)
        yield directory


def test_a_copy_has_bytes_holes_times_and_rights(place: Path) -> None:
    source, target = place / "store" / "x", place / "own" / "x"
    with source.open("r+b") as file:
        file.truncate(1 << 20)
    os.utime(source, ns=(1_000, 2_000))
    source.chmod(0o640)
    with HeldDirectory.open(place / "store") as directory:
        copy_kept(directory, "x", target)
    assert target.read_bytes() == source.read_bytes()
    status = target.stat()
    assert (status.st_mtime_ns, stat.S_IMODE(status.st_mode)) == (2_000, 0o640)
    assert status.st_blocks <= source.stat().st_blocks


@pytest.mark.parametrize("stop", [0, 1, 4096, 7999, 8000, 9000])
def test_what_is_not_wanted_of_a_copy_is_zero(place: Path, stop: int) -> None:
    with HeldDirectory.open(place / "store") as directory:
        copy_kept(directory, "x", place / "own" / "x", stop)
    assert (place / "own" / "x").read_bytes() == (b"kept" * 2000)[:stop].ljust(8000, b"\0")


def test_a_second_name_is_that_of_the_same_file(place: Path) -> None:
    with HeldDirectory.open(place / "store") as directory:
        assert link_kept(directory, "x", place / "own" / "x")
        assert (place / "own" / "x").samefile(place / "store" / "x")
        with pytest.raises(FileExistsError):
            link_kept(directory, "x", place / "own" / "x")


@BY_ROOT
@pytest.mark.parametrize("owner", [0, OWNER, ANOTHER])
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_of_ours_gets_no_second_name_out_of_a_directory_of_others(place: Path, owner: int, mode: int) -> None:
    os.chown(place / "store" / "x", owner, owner)
    (place / "store" / "x").chmod(mode)
    os.chown(place / "store", OWNER, OWNER)
    with HeldDirectory.open(place / "store") as directory:
        assert link_kept(directory, "x", place / "own" / "x") == (owner != 0)
        assert (place / "own" / "x").exists() == (owner != 0)
        if owner == OWNER or mode == 0o644:
            copy_kept(directory, "x", place / "own" / "y")
        else:
            with pytest.raises(PlantedFile, match=rf"x: belongs to user .*{owner}.*lies in a directory of user nobody"):
                copy_kept(directory, "x", place / "own" / "y")
            assert not (place / "own" / "y").exists()


@BY_ROOT
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_is_no_file_is_not_kept(place: Path, kind: str) -> None:
    (place / "store" / "x").unlink()
    if kind == "link":
        (place / "store" / "x").symlink_to("/etc/passwd")
    else:
        os.mkfifo(place / "store" / "x")
    os.lchown(place / "store" / "x", OWNER, OWNER)
    os.chown(place / "store", OWNER, OWNER)
    with HeldDirectory.open(place / "store") as directory:
        for keep in (link_kept, copy_kept):
            with pytest.raises(PlantedFile, match=r"store/x: is not a regular file but a .* of user nobody"):
                keep(directory, "x", place / "own" / "x")
            assert not os.path.lexists(place / "own" / "x")


def test_a_link_of_ours_in_a_directory_of_ours_is_followed(place: Path) -> None:
    (place / "store" / "y").symlink_to("x")
    assert read_kept(place / "store" / "y", 8000) == b"kept" * 2000


def test_a_small_file_is_read_whole_or_not_at_all(place: Path) -> None:
    with pytest.raises(StoreError, match="is longer than 7999 bytes"):
        read_kept(place / "store" / "x", 7999)
    with pytest.raises(FileNotFoundError):
        read_kept(place / "store" / "none", 1)
