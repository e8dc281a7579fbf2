"""Directories of our own, where nobody leads us elsewhere."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import PlantedFile, StoreError
from read_only import reachable_directory
from storage.files.own_directories import (
    HeldDirectory,
    hold_kept,
    is_writable,
    open_regular,
    open_to_append,
    read_own,
)

VOLUMES = [0o755, 0o1777, 0o2770, 0o2777]
"""Rights of a directory as root or a volume of a container platform has it."""


@pytest.mark.parametrize("mode", VOLUMES)
def test_files_are_kept_below_a_directory_whoever_may_write_to_it(tmp_path: Path, mode: int) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    for writes in (True, False):  # it is found again
        with hold_kept(state / "entries" / "queues", writes=writes) as held:
            status = os.fstat(held.descriptor)
            assert (status.st_uid, status.st_mode & 0o022) == (os.geteuid(), 0)
            assert status.st_ino == (state / "entries" / "queues").stat().st_ino


@pytest.mark.parametrize("mode", [0o777, 0o2777])
def test_what_is_kept_goes_into_the_directory_that_is_held_whatever_gets_its_name(tmp_path: Path, mode: int) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    (tmp_path / "elsewhere").mkdir()
    with hold_kept(state / "entries", writes=True) as held:
        (state / "entries").rename(state / "moved")
        (state / "entries").symlink_to(tmp_path / "elsewhere")
        (held.path / "x").write_text("")
    assert os.listdir(state / "moved") == ["x"]
    for writes in (True, False):
        with pytest.raises(
            PermissionError, match=r"entries: is a link of user .* \(everybody may write to .*not followed"
        ):
            hold_kept(state / "entries", writes=writes)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_directory_is_made_where_it_can_be(tmp_path: Path) -> None:
    assert is_writable(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert not is_writable(Path("/proc/none/x"))


# --- what is held -----------------------------------------------------------------------------------------------------

BY_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="root alone can give files away")
OWNER = 65534


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may enter."""
    with reachable_directory() as directory:
        yield directory


def test_what_nobody_else_can_change_is_used_by_its_name(place: Path) -> None:
    with HeldDirectory.own(place / "a" / "b") as held:
        assert (held.path, held.exposure) == (place / "a" / "b", None)
        assert stat.S_IMODE(held.path.stat().st_mode) == 0o700
        assert stat.S_IMODE((place / "a").stat().st_mode) & 0o022 == 0


@BY_ROOT
@pytest.mark.parametrize(("owner", "mode", "reason"), [
    (OWNER, 0o755, "a belongs to user nobody (65534)"),
    (0, 0o777, "everybody may write to"),
    (0, 0o1777, None),
    (0, 0o775, None),
])  # fmt: skip
def test_who_may_put_another_in_its_place_is_known(place: Path, owner: int, mode: int, reason: str | None) -> None:
    (place / "a" / "b").mkdir(parents=True)
    (place / "a").chmod(mode)
    os.chown(place / "a", owner, owner)
    with HeldDirectory.own(place / "a" / "b") as held:
        assert (held.exposure is None) == (reason is None)
        assert held.exposure is None or str(reason) in held.exposure.reason
        (place / "a" / "b").rename(place / "a" / "c")
        (place / "a" / "b").mkdir()
        (held.path / "x").write_text("")
        assert os.listdir(place / "a" / ("c" if reason else "b")) == ["x"]


@BY_ROOT
@pytest.mark.parametrize("mode", [0o2777, 0o1777])
def test_nothing_is_kept_in_or_read_from_what_another_user_made_in_a_volume(place: Path, mode: int) -> None:
    (place / "entries" / "queues").mkdir(parents=True)
    place.chmod(mode)
    os.chown(place / "entries", OWNER, OWNER)
    os.chown(place / "entries" / "queues", OWNER, OWNER)
    for name in ("entries", "entries/queues"):
        for writes in (True, False):
            with pytest.raises(PermissionError, match=r"belongs to user nobody \(65534\), and this runs as user root"):
                hold_kept(place / name, writes=writes)


@BY_ROOT
def test_who_asks_reads_what_is_kept_by_the_user_whom_the_state_belongs_to(place: Path) -> None:
    (place / "state" / "entries").mkdir(parents=True)
    for path in (place / "state", place / "state" / "entries"):
        os.chown(path, OWNER, OWNER)
    hold_kept(place / "state" / "entries", writes=False).close()
    with pytest.raises(PermissionError, match="belongs to user nobody"):
        hold_kept(place / "state" / "entries", writes=True)


def test_who_may_exchange_a_directory_further_up_is_not_forgotten_for_a_group(place: Path) -> None:
    inner = place / "volume" / "group" / "x"
    inner.mkdir(parents=True)
    (place / "volume").chmod(0o777)
    (place / "volume" / "group").chmod(0o2775)
    with (
        HeldDirectory.open(inner) as held,
        pytest.raises(PlantedFile, match=r"everybody may write to .*/volume: choose"),
    ):
        held.require_own()


@BY_ROOT
@pytest.mark.parametrize("owner", [0, OWNER])
@pytest.mark.parametrize("directory", [0, OWNER])
def test_a_link_is_followed_where_only_root_can_have_put_it(place: Path, owner: int, directory: int) -> None:
    (place / "there" / "x").mkdir(parents=True)
    (place / "a").mkdir()
    (place / "a" / "link").symlink_to("../there")
    os.lchown(place / "a" / "link", owner, owner)
    os.chown(place / "a", directory, directory)
    if owner == directory == 0:
        with HeldDirectory.open(place / "a" / "link" / "x") as held:
            assert os.fstat(held.descriptor).st_ino == (place / "there" / "x").stat().st_ino
    else:
        with pytest.raises(PlantedFile, match=rf"a/link: is a link of user .* \({owner}\) to \.\./there"):
            HeldDirectory.open(place / "a" / "link" / "x")


@pytest.mark.parametrize("name", ["a/../../x", "/etc/x", "", "a\0b"])
def test_no_name_leads_out_of_a_directory(place: Path, name: str) -> None:
    with HeldDirectory.own(place / "a") as held, pytest.raises(PlantedFile, match="leads elsewhere"):
        held.new_file(name)


@BY_ROOT
def test_errors_call_a_held_directory_by_its_name(place: Path) -> None:
    os.chown(place, OWNER, OWNER)
    with HeldDirectory.own(place / "a") as held, pytest.raises(StoreError) as error, held.named_errors():
        raise StoreError(held.path / "x", what=f"beside {held.path}/y", found=held.path)
    assert str(error.value) == f"{place}/a/x: beside {place}/a/y {place}/a"


@BY_ROOT
@pytest.mark.parametrize(("owner", "mode", "said"), [
    (OWNER, 0o644, "belongs to user nobody (65534), and this runs as user root (0)"),
    (0, 0o664, "but its group may write to it (mode 0664)"),
    (0, 0o646, "but everybody may write to it (mode 0646)"),
])  # fmt: skip
def test_what_is_not_ours_alone_is_not_read(place: Path, owner: int, mode: int, said: str) -> None:
    (place / "x").write_bytes(b"1")
    assert read_own(place / "x") == b"1"
    (place / "x").chmod(mode)
    os.chown(place / "x", owner, owner)
    with pytest.raises(PlantedFile, match=re.escape(said)):
        read_own(place / "x")


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_file_is_not_opened(place: Path, kind: str) -> None:
    if kind == "link":
        (place / "x").symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(place / "x")
    else:
        (place / "x").mkdir()
    for read in (lambda: open_regular(place / "x", os.O_RDWR), lambda: read_own(place / "x")):
        with pytest.raises(PlantedFile, match=rf"is not a regular file but a {kind} of user".replace("fifo", "FIFO")):
            read()


@BY_ROOT
@pytest.mark.parametrize("kind", ["link", "second name", "their file"])
def test_nothing_is_appended_to_what_somebody_else_put_there(place: Path, kind: str) -> None:
    (place / "theirs").mkdir()
    (place / "ours").write_bytes(b"")
    log = place / "theirs" / "log"
    if kind == "link":
        log.symlink_to(place / "ours")
    elif kind == "second name":
        os.link(place / "ours", log)
    else:
        log.write_bytes(b"")
        os.chown(log, OWNER, OWNER)
    os.chown(place / "theirs", OWNER, OWNER)
    with pytest.raises(PlantedFile, match=r"theirs/log: .*user"):
        open_to_append(log, 0o600)
    log.unlink()
    os.close(open_to_append(log, 0o600))
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
