"""Directories and files of our own and of others: nobody leads us elsewhere, and nothing is written into a store."""

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from protocol.errors import ConfigError, PlantedFile, StoreError
from read_only import reachable_directory
from storage.files.kept_files import copy_kept, link_kept
from storage.files.mount_points import is_mount_point
from storage.files.own_directories import HeldDirectory, hold_kept, is_writable, open_regular, open_to_append, read_own
from storage.files.write_guard import check_outside, is_inside


@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o2770, 0o2777])
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


BY_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="root alone can give files away")
OWNER = 65534


@pytest.fixture
def place():
    with reachable_directory() as directory:
        yield directory


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


@pytest.fixture
def both():
    with reachable_directory() as directory:
        (directory / "own").mkdir()
        (directory / "store").mkdir()
        (directory / "store" / "x").write_bytes(b"kept" * 2000)
        yield directory


def test_a_copy_has_bytes_holes_times_and_rights(both: Path) -> None:
    source, target = both / "store" / "x", both / "own" / "x"
    with source.open("r+b") as file:
        file.truncate(1 << 20)
    os.utime(source, ns=(1_000, 2_000))
    source.chmod(0o640)
    with HeldDirectory.open(both / "store") as directory:
        copy_kept(directory, "x", target)
    assert target.read_bytes() == source.read_bytes()
    status = target.stat()
    assert (status.st_mtime_ns, stat.S_IMODE(status.st_mode)) == (2_000, 0o640)
    assert status.st_blocks <= source.stat().st_blocks


@BY_ROOT
@pytest.mark.parametrize("owner", [0, OWNER, 12345])
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_of_ours_gets_no_second_name_out_of_a_directory_of_others(both: Path, owner: int, mode: int) -> None:
    os.chown(both / "store" / "x", owner, owner)
    (both / "store" / "x").chmod(mode)
    os.chown(both / "store", OWNER, OWNER)
    with HeldDirectory.open(both / "store") as directory:
        assert link_kept(directory, "x", both / "own" / "x") == (owner != 0)
        assert (both / "own" / "x").exists() == (owner != 0)
        if owner == OWNER or mode == 0o644:
            copy_kept(directory, "x", both / "own" / "y")
        else:
            with pytest.raises(PlantedFile, match=rf"x: belongs to user .*{owner}.*lies in a directory of user nobody"):
                copy_kept(directory, "x", both / "own" / "y")
            assert not (both / "own" / "y").exists()


@BY_ROOT
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_is_no_file_is_not_kept(both: Path, kind: str) -> None:
    (both / "store" / "x").unlink()
    if kind == "link":
        (both / "store" / "x").symlink_to("/etc/passwd")
    else:
        os.mkfifo(both / "store" / "x")
    os.lchown(both / "store" / "x", OWNER, OWNER)
    os.chown(both / "store", OWNER, OWNER)
    with HeldDirectory.open(both / "store") as directory:
        for keep in (link_kept, copy_kept):
            with pytest.raises(PlantedFile, match=r"store/x: is not a regular file but a .* of user nobody"):
                keep(directory, "x", both / "own" / "x")
            assert not os.path.lexists(both / "own" / "x")


def test_a_store_and_all_in_it_is_inside_whatever_the_way_there(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (tmp_path / "link").symlink_to(store)
    for place in ("store", "store/new/deep", "other/../store/x", "link/x"):
        assert is_inside(tmp_path / place, store), place
    for place in ("", "store2", "store/../other"):
        assert not is_inside(tmp_path / place, store), place


@pytest.mark.parametrize(("place", "told"), [
    (
        "s3://bucket/out",
        "--out s3://bucket/out is a URL: only a path is possible, as of a file system mounted here",
    ),
    ("hdfs://name:8020/a", "--out hdfs://name:8020/a is a URL"),
    ("file:///srv/out", "--out file:///srv/out is a URL: write the path alone, /srv/out"),
])  # fmt: skip
def test_a_url_is_no_path_also_when_it_was_taken_for_one(tmp_path: Path, place: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(told)}"):
        check_outside([tmp_path], {"--out": Path(place)})
    with pytest.raises(ConfigError, match=f"^{re.escape(told.replace('--out', 'STORE'))}"):
        check_outside([Path(place)], {})
    check_outside([tmp_path / "a:b"], {"--out": tmp_path / "s3:" / "c", "--work": Path("a:b/c")})


def test_the_option_is_named_whose_place_lies_in_one_of_the_directories(tmp_path: Path) -> None:
    stores = (tmp_path / "store", tmp_path / "log")
    check_outside(stores, {"--out": tmp_path / "out", "--work": None})
    with pytest.raises(ConfigError, match=r"^--work .*/log/work lies inside .*/log: choose a place beside it$"):
        check_outside(stores, {"--out": None, "--work": tmp_path / "log" / "work"})
    with pytest.raises(ConfigError, match="lies inside the store"):
        check_outside(stores[:1], {"--out": tmp_path / "store"})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.parametrize("name", ["store", "a store\tof\\ours\nbelow"])
def test_what_is_bound_within_one_file_system_cannot_be_renamed_and_is_a_mount_point(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    root.mkdir()
    assert not is_mount_point(root)
    subprocess.run(["mount", "--bind", str(root), str(root)], check=True)
    try:
        assert is_mount_point(root)
        assert not is_mount_point(tmp_path)
        with pytest.raises(OSError, match="busy"):
            root.rename(tmp_path / "elsewhere")
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)
    assert not is_mount_point(root)


def test_a_directory_is_made_where_it_can_be(tmp_path: Path) -> None:
    assert is_writable(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert not is_writable(Path("/proc/none/x"))


def test_what_nobody_else_can_change_is_used_by_its_name(place: Path) -> None:
    with HeldDirectory.own(place / "a" / "b") as held:
        assert (held.path, held.exposure) == (place / "a" / "b", None)
        assert stat.S_IMODE(held.path.stat().st_mode) == 0o700
        assert stat.S_IMODE((place / "a").stat().st_mode) & 0o022 == 0


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
def test_errors_call_a_held_directory_by_its_name(place: Path) -> None:
    os.chown(place, OWNER, OWNER)
    with HeldDirectory.own(place / "a") as held, pytest.raises(StoreError) as error, held.named_errors():
        raise StoreError(held.path / "x", what=f"beside {held.path}/y", found=held.path)
    assert str(error.value) == f"{place}/a/x: beside {place}/a/y {place}/a"
